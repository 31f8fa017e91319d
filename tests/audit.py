"""Who a manager is to a server that keeps an audit log, and what it asked for."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from kcm.testing import ControlPlane
from tests.managers import PATIENCE, Document, Namespace, audited

MASTERS = ("system:masters",)


class User:
    """An identity of its own for the manager of one test.

    Args:
        control_plane: A server with an audit log.
        ns: The test's namespace; other namespaces do not count.
        groups: Whose rights it has besides its own.
        name: What it is called, unless there is but one in the namespace.
    """

    def __init__(
        self, control_plane: ControlPlane, ns: Namespace, *, groups: Sequence[str] = MASTERS, name: str = ""
    ) -> None:
        self.name = name or f"manager-of-{ns.name}"
        self._control_plane = control_plane
        self._namespace = ns.name
        self._groups = groups

    def kubeconfig(self) -> Path:
        """Write a kubeconfig for it."""
        return self._control_plane.write_kubeconfig(user=self.name, groups=self._groups)

    async def requests(self, resource: str = "", *verbs: str) -> list[Document]:
        """The audit events of what it asked so far of the namespace, or of all namespaces at once, in the order of answers.

        Args:
            resource: Plural, with the subresource after a slash if there is one; by default all.
            verbs: By default all.
        """
        return [
            event
            for event in await audited(self._control_plane)
            if event["user"]["username"] == self.name
            and event.get("objectRef", {}).get("namespace", self._namespace) == self._namespace
            and resource in {"", asked_of(event)}
            and (not verbs or event["verb"] in verbs)
        ]

    async def until_asked(self, resource: str, verb: str, *, times: int) -> None:
        """Return once it has asked so often."""
        async with asyncio.timeout(PATIENCE):
            while len(await self.requests(resource, verb)) < times:  # noqa: ASYNC110 - nothing tells when
                await asyncio.sleep(0.05)

    async def answers(self, resource: str, *verbs: str) -> Counter[tuple[str, int]]:
        """How often its requests were answered, by verb and status."""
        return Counter((event["verb"], code(event)) for event in await self.requests(resource, *verbs))


def asked_of(event: Document) -> str:
    """The resource that an audit event is about, with its subresource; empty for none."""
    reference = event.get("objectRef", {})
    return "/".join(reference[part] for part in ("resource", "subresource") if part in reference)


def code(event: Document) -> int:
    """The status of the answer."""
    return int(event["responseStatus"]["code"])
