"""Every wrong command line ends both kcm and the stock manager with status 1, and docs/command-line-errors.md is how it is."""

import pytest

from tests import wrong_command_lines


@pytest.mark.row("C-042", "C-046", "C-048", "C-049")
async def test_wrong_command_lines_are_answered_as_the_page_says() -> None:
    answers = await wrong_command_lines.run()
    assert len(answers) >= 60
    assert [
        (line, stock.status, kcm.status) for line, stock, kcm in answers if (stock.status, kcm.status) != (1, 1)
    ] == []
    assert wrong_command_lines.page(answers) == wrong_command_lines.PAGE.read_text(), (
        "write it anew: python -m tests.wrong_command_lines"
    )
