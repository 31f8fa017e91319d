"""What all controllers do alike."""

import asyncio
from collections.abc import Callable

import pytest

from kcm.api.errors import FencedError, Status, StatusError, TransportError
from kcm.api.types.core import Pod
from kcm.api.types.meta import ObjectMeta, OwnerReference
from kcm.controllers.controller import (
    POD_CONTROLLER_INDEX,
    Controller,
    pod_controller_index,
    pods_of,
    split_key,
)
from kcm.informers.store import Indexer
from kcm.logs import capture
from kcm.workqueue.queue import Queue


class Filled:
    """A cache that is filled when it is told."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def wait_synced(self) -> None:
        await self.event.wait()


class Scripted(Controller):
    """Does what the test says for each sync."""

    def __init__(self, *caches: Filled) -> None:
        super().__init__("test-controller", Queue(""), list(caches))
        self.synced: list[str] = []
        self.script: list[Callable[[], None] | None] = []
        self.happened = asyncio.Event()

    async def sync(self, key: str) -> None:
        self.synced.append(key)
        self.happened.set()
        step = self.script.pop(0) if self.script else None
        if step is not None:
            step()

    async def next_sync(self) -> None:
        await self.happened.wait()
        self.happened.clear()


def fails(error: BaseException) -> Callable[[], None]:
    def step() -> None:
        raise error

    return step


def refusal(code: int, reason: str) -> StatusError:
    return StatusError(Status(message=reason, reason=reason, code=code))


@pytest.mark.row("R-003", "D-004")
async def test_no_worker_starts_before_all_caches_are_filled() -> None:
    first, second = Filled(), Filled()
    controller = Scripted(first, second)
    controller.queue.add("ns/a")
    task = asyncio.create_task(controller.run(2))
    first.event.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert controller.synced == []
    second.event.set()
    await controller.next_sync()
    assert controller.synced == ["ns/a"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    controller.queue.add("ns/b")
    assert len(controller.queue) == 0, "the queue is shut down"


@pytest.mark.row("R-062", "R-063", "R-185", "D-025")
@pytest.mark.looptime
@pytest.mark.parametrize(
    "error",
    [
        refusal(409, "Conflict"),
        refusal(403, "Forbidden"),
        refusal(504, "Timeout"),
        TransportError("no"),
        KeyError("bug"),
    ],
)
async def test_whatever_a_sync_raises_is_tried_again_and_forgotten_with_success(error: Exception) -> None:
    controller = Scripted()
    controller.script = [fails(error)] * 20
    controller.queue.add("ns/a")
    task = asyncio.create_task(controller.run(1))
    with capture() as records:
        for _ in range(20):
            await controller.next_sync()
        await asyncio.sleep(0)
        assert controller.queue.num_requeues("ns/a") == 20, "there is no limit"
        await controller.next_sync()
    assert [record.message for record in records if record.level == "error"] == ["Sync failed"] * 20
    assert controller.queue.num_requeues("ns/a") == 0
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.row("M-131")
async def test_a_cancelled_worker_lets_go_of_its_key() -> None:
    entered = asyncio.Event()

    class Hanging(Scripted):
        async def sync(self, key: str) -> None:
            entered.set()
            await asyncio.Event().wait()

    controller = Hanging()
    controller.queue.add("ns/a")
    task = asyncio.create_task(controller.run(1))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(KeyError):
        controller.queue.done("ns/a")


async def test_a_write_without_the_lease_ends_the_controller() -> None:
    controller = Scripted()
    controller.script = [fails(FencedError("lost"))]
    controller.queue.add("ns/a")
    with pytest.raises(BaseExceptionGroup) as caught:
        await controller.run(1)
    assert caught.group_contains(FencedError)


async def test_syncs_that_never_wait_let_others_run() -> None:
    controller = Scripted()
    for number in range(20_000):
        controller.queue.add(f"ns/{number}")
    task = asyncio.create_task(controller.run(1))
    turns = 0
    while len(controller.synced) < 20_000:
        await asyncio.sleep(0)
        turns += 1
    assert turns > 2
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.row("R-055", "D-030")
def test_keys_have_one_slash_at_most() -> None:
    assert split_key("ns/a") == ("ns", "a")
    assert split_key("a") == ("", "a")
    with pytest.raises(ValueError, match="unexpected key format"):
        split_key("a/b/c")


@pytest.mark.row("R-008", "R-009", "R-041", "R-164")
def test_pods_are_found_by_their_controlling_owner_and_orphans_come_last() -> None:
    def owned(name: str, *owners: OwnerReference, namespace: str = "ns") -> Pod:
        return Pod(metadata=ObjectMeta(name=name, namespace=namespace, owner_references=owners))

    mine = OwnerReference(api_version="any/v1", kind="ReplicaSet", name="rs", uid="u", controller=True)
    plain = OwnerReference(kind="ReplicaSet", name="rs", uid="u")
    other = OwnerReference(kind="ReplicaSet", name="other", uid="o", controller=True)
    store: Indexer[Pod] = Indexer({POD_CONTROLLER_INDEX: pod_controller_index})
    pods = [
        owned("orphan", plain),
        owned("a", plain, mine),
        owned("b", other, mine),
        owned("far", namespace="elsewhere"),
    ]
    for pod in pods:
        store.put(pod)
    owner = ObjectMeta(name="rs", namespace="ns", uid="u")
    assert [pod.metadata.name for pod in pods_of(store, "ReplicaSet", owner, orphans=True)] == ["a", "orphan"]
    assert [pod.metadata.name for pod in pods_of(store, "ReplicaSet", owner)] == ["a"]
    for kind, broken in (
        ("", owner),
        ("ReplicaSet", ObjectMeta(name="rs", namespace="ns")),
        ("ReplicaSet", ObjectMeta(namespace="ns", uid="u")),
        ("ReplicaSet", ObjectMeta(name="rs", uid="u")),
    ):
        with pytest.raises(ValueError, match=r"^no owner \w+ provided$"):
            pods_of(store, kind, broken)
