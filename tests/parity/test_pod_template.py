"""What is made of pod templates: stored revisions, hashes, comparison and defaults, down to quantities and image names."""

from collections.abc import Sequence
from random import Random

import msgspec
import pytest

from kcm.api.pod_template import compute_hash, dump, equal_ignore_hash, revision_data
from kcm.api.pod_template_defaults import image_tag
from kcm.api.pod_template_types import type_named
from kcm.api.quantity import Quantity
from kcm.api.types.meta import Document, Whole
from tests.parity.make import chance
from tests.parity.mutate import mutated_pair
from tests.parity.oracle import Answer
from tests.parity.ring import Ring
from tests.parity.templates import TABLE, Templates, image, quantity


def test_the_table_is_what_reflection_tells(ring: Ring) -> None:
    """After a pin moved: `python -m tools.pod_template_fields`."""
    (answer,) = ring.oracle.ask("podTemplateTypes", [{}])
    assert answer.out == TABLE
    fields = [field for made_of in TABLE.values() if isinstance(made_of, list) for field in made_of]
    assert {kind for *_, options, kind in fields if "omitzero" in options} == {"v1.Time"}, "no other type is read so"


@pytest.mark.row("D-074")
def test_quantities_are_the_same(ring: Ring) -> None:
    kind = type_named("resource.Quantity")

    def ours(given: Sequence[str]) -> Document:
        one, other = map(Quantity.parse, given)
        return {
            "text": f'"{one}"',
            "rounded": str(one.rounded(-3)),
            "dump": f"({kind.name}){kind.dump(one)}",
            "equal": one.value == other.value,
        }

    ring.agree("quantity", lambda random: [quantity(random), quantity(random)], ours)


def test_image_names_have_the_same_tags(ring: Ring) -> None:
    ring.agree("imageTag", image, image_tag)


@pytest.mark.row("S-053", "S-054", "S-055", "S-056", "S-057")
def test_revisions_have_the_same_data(ring: Ring) -> None:
    ring.agree(
        "revisionData",
        lambda random: Templates(random).template(),
        lambda given: revision_data({"spec": {"template": given}}).decode(),
    )


@pytest.mark.row("S-070")
def test_defaults_are_the_same(ring: Ring) -> None:
    """Where they are used: a StatefulSet goes back to a revision, is defaulted, and written again.

    There the reference does not tell upper case from lower, which no revision that it wrote shows.
    """

    def random_input(random: Random) -> Document:
        patch = Templates(random, capitals=False).template() | {"$patch": "replace"}
        return {
            "template": Templates(random).template(),
            "data": msgspec.json.encode({"spec": {"template": patch}}).decode(),
        }

    def ours(given: Document) -> str:
        stored = msgspec.json.decode(given["data"])
        del stored["spec"]["template"]["$patch"]
        return revision_data(stored, with_defaults=True).decode()

    ring.agree("restoredRevisionData", random_input, ours)


@pytest.mark.row("D-070", "D-071", "D-072", "D-073", "D-074")
def test_hashes_are_the_same(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a stock manager on a machine that has no time zone, which a dump of a set timestamp depends on."""
    monkeypatch.setenv("TZ", "")

    def random_input(random: Random) -> Document:
        count = random.choice((0, 1, 2**31 - 1)) if chance(random, 0.5) else None
        return {"template": Templates(random).template(), "collisionCount": count}

    def ours(given: Document) -> list[str]:
        return [compute_hash(_with_template(given["template"]), given["collisionCount"]), dump(given["template"])]

    ring.agree("templateHash", random_input, ours)


@pytest.mark.row("D-052")
def test_however_odd_the_same_templates_are_equal(ring: Ring) -> None:
    random = ring.random("odd templates")
    pairs = [mutated_pair(random, Templates(random, nulls=False).template()) for _ in range(ring.inputs)]
    answers = ring.oracle.ask("equalIgnoreHash", pairs)
    verdicts = [Answer(out=answer.out["equal"]) for answer in answers]
    ring.compare("equalIgnoreHash", pairs, verdicts, lambda pair: equal_ignore_hash(*map(_with_template, pair)))


def _with_template(template: Document) -> Whole:
    return Whole(raw=msgspec.json.encode({"spec": {"template": template}}))
