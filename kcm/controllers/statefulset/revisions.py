"""Which revisions a StatefulSet's pods are made from. Follows stateful_set_control.go:getStatefulSetRevisions.

The update revision is what pods should be: the StatefulSet's template, under the name that it got when it was first seen. The
current revision is what they were before, until an update is complete.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from kcm.api.pod_template import revision_data, template_document
from kcm.api.selectors import selector_of
from kcm.api.types.apps import ControllerRevision, StatefulSet
from kcm.api.types.core import Pod
from kcm.api.types.meta import Document
from kcm.controllers.history import History, same_data
from kcm.controllers.statefulset.stateful_set_utils import pod_revision, revision_template

#: How many pairs of a StatefulSet and a revision are remembered to mean the same.
MAX_REMEMBERED = 10_000

#: Tells whether a StatefulSet's template is what a stored one becomes with the API's defaults; ValueError for what is none.
Comparison = Callable[[Document, Document], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Revisions:
    """What was chosen for one sync."""

    current: ControllerRevision
    update: ControllerRevision
    #: How many names of revisions were taken by other data so far.
    collision_count: int


class RevisionControl:
    """Chooses revisions, creates them, and deletes those that nobody needs.

    Args:
        history: Reads and writes them.
        same_template: Compares templates where their bytes differ (gate StatefulSetSemanticRevisionComparison); without it
            only bytes count.
    """

    def __init__(self, history: History, *, same_template: Comparison | None) -> None:
        self._history = history
        self._same_template = same_template
        #: Known matches: UID and generation of the StatefulSet, version of the revision; least recently used first.
        self._matches: OrderedDict[tuple[str, int, str], None] = OrderedDict()

    def list(self, stateful_set: StatefulSet) -> list[ControllerRevision]:
        """A StatefulSet's revisions and the orphans that it would adopt, the latest last.

        Raises:
            SelectorError: its selector is invalid.
        """
        return self._history.list(stateful_set.metadata, selector_of(stateful_set.spec.selector))

    async def adopt(self, stateful_set: StatefulSet, orphans: Iterable[ControllerRevision]) -> None:
        """Adopt revisions, one after another.

        Raises:
            StatusError: one was refused; those after it were not tried.
            TransportError: no answer.
        """
        for orphan in orphans:
            await self._history.adopt(stateful_set.metadata, orphan)

    async def choose(self, stateful_set: StatefulSet, revisions: Sequence[ControllerRevision]) -> Revisions:
        """Find, renumber or create the update revision, and find the current one.

        Args:
            stateful_set: As cached.
            revisions: Those that `list` gave.

        Raises:
            StatusError: a write was refused.
            TransportError: no answer.
        """
        data = revision_data({"spec": {"template": template_document(stateful_set)}})
        collisions = stateful_set.status.collision_count or 0
        latest = revisions[-1] if revisions else None
        equal = latest_equal(revisions, data)
        if latest is not None and equal is latest:
            update = latest
        elif latest is not None and equal is not None:
            update = await self._history.renumber(equal, latest.revision + 1)
        elif latest is not None and self._means_the_same(stateful_set, latest):
            update = latest
        else:
            update, collisions = await self._history.create(
                stateful_set.metadata,
                labels=stateful_set.spec.template.metadata.labels,
                data=data,
                number=1 if latest is None else latest.revision + 1,
                collision_count=collisions,
            )
        named = (one for one in revisions if one.metadata.name == stateful_set.status.current_revision)
        return Revisions(current=next(named, update), update=update, collision_count=collisions)

    async def truncate(
        self,
        stateful_set: StatefulSet,
        pods: Iterable[Pod],
        revisions: Sequence[ControllerRevision],
        chosen: Revisions | None,
    ) -> None:
        """Delete surplus history, one revision after another.

        Raises:
            StatusError: one was refused or is gone already; those after it were not tried.
            TransportError: no answer.
        """
        live = {pod_revision(pod) for pod in pods}
        if chosen is not None:
            live |= {chosen.current.metadata.name, chosen.update.metadata.name}
        for revision in surplus_history(revisions, live, stateful_set.spec.revision_history_limit):
            await self._history.delete(revision)

    def _means_the_same(self, stateful_set: StatefulSet, latest: ControllerRevision) -> bool:
        """Whether going back to the latest revision would change nothing but how the template is written down."""
        if self._same_template is None:
            return False
        meta = stateful_set.metadata
        key = meta.uid, meta.generation, latest.metadata.resource_version
        if key in self._matches:
            self._matches.move_to_end(key)
            return True
        try:
            same = self._same_template(template_document(stateful_set), revision_template(latest))
        except ValueError:
            return False
        if same:
            self._matches[key] = None
            if len(self._matches) > MAX_REMEMBERED:
                self._matches.popitem(last=False)
        return same


def latest_equal(revisions: Sequence[ControllerRevision], data: bytes) -> ControllerRevision | None:
    """The latest revision with this data."""
    return next((revision for revision in reversed(revisions) if same_data(revision.data, data)), None)


def surplus_history(
    revisions: Sequence[ControllerRevision], live: Collection[str], limit: int
) -> Sequence[ControllerRevision]:
    """The oldest of the revisions that are not live, as far as there are more than the limit; a negative one keeps all."""
    history = [revision for revision in revisions if revision.metadata.name not in live]
    return history[: len(history) - limit] if 0 <= limit < len(history) else []
