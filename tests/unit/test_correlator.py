"""Which events are combined, counted and left out."""

from datetime import datetime

import pytest
from msgspec.structs import replace

from kcm.api.types.events import Event, EventSource, ObjectReference
from kcm.api.types.meta import ObjectMeta
from kcm.events import correlator
from kcm.events.correlator import EventCorrelator
from tests.clocks import FakeClock

RS = ObjectReference(
    api_version="apps/v1", kind="ReplicaSet", namespace="ns", name="web", uid="uid", resource_version="1"
)


class Events:
    """Events about one ReplicaSet, each with a name of its own, through a correlator."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.correlator = EventCorrelator(self.clock)
        self.made = 0

    def now(self) -> datetime:
        return self.clock.now().replace(microsecond=0)

    def make(
        self,
        message: str = "Created pod: web-1",
        *,
        about: ObjectReference = RS,
        reason: str = "SuccessfulCreate",
        event_type: str = "Normal",
        component: str = "replicaset-controller",
    ) -> Event:
        self.made += 1
        return Event(
            api_version="v1",
            kind="Event",
            metadata=ObjectMeta(name=f"web.{self.made}", namespace="ns"),
            involved_object=about,
            reason=reason,
            message=message,
            source=EventSource(component=component),
            first_timestamp=self.now(),
            last_timestamp=self.now(),
            count=1,
            type=event_type,
            reporting_component=component,
        )

    def correlate(self, message: str = "Created pod: web-1", **attributes: str) -> Event | None:
        return self.correlator.correlate(self.make(message, **attributes))  # type: ignore[arg-type]  # names of fields


def different(number: int) -> list[str]:
    return [f"message {index}" for index in range(number)]


@pytest.mark.row("M-114", "R-128")
def test_nine_different_messages_pass_as_they_are() -> None:
    events = Events()
    for message in different(9):
        event = events.make(message)
        assert events.correlator.correlate(event) == event


@pytest.mark.row("M-114", "M-116", "R-128")
def test_from_the_tenth_on_they_become_one_event_that_tells_the_latest() -> None:
    events = Events()
    for message in different(9):
        events.correlate(message)
    events.clock.seconds += 5
    tenth = events.make("the tenth")
    combined = events.correlator.correlate(tenth)
    assert combined == replace(tenth, message="(combined from similar events): the tenth", reporting_component="")
    assert combined.count == 1
    first_seen = events.now()
    events.clock.seconds += 5
    again = events.correlate("the eleventh")
    assert again is not None
    assert again.message == "(combined from similar events): the eleventh"
    assert (again.metadata.name, again.count) == (combined.metadata.name, 2)
    assert (again.first_timestamp, again.last_timestamp) == (first_seen, events.now())


@pytest.mark.row("M-114")
@pytest.mark.parametrize(
    "other",
    [
        {"about": replace(RS, name="other")},
        {"about": replace(RS, uid="other")},
        {"about": replace(RS, namespace="other")},
        {"about": replace(RS, kind="Deployment")},
        {"about": replace(RS, api_version="apps/v2")},
        {"reason": "SuccessfulDelete"},
        {"event_type": "Warning"},
        {"component": "deployment-controller"},
    ],
)
def test_what_differs_in_more_than_its_message_is_another_group(other: dict[str, str]) -> None:
    events = Events()
    for message in different(9):
        events.correlate(message)
    stranger = events.correlate("the tenth", **other)
    assert stranger is not None
    assert stranger.message == "the tenth"
    member = events.correlate("the tenth")
    assert member is not None
    assert member.message == "(combined from similar events): the tenth"


@pytest.mark.row("M-114")
def test_another_version_of_the_object_is_the_same_group() -> None:
    events = Events()
    for message in different(9):
        events.correlate(message)
    combined = events.correlator.correlate(events.make("the tenth", about=replace(RS, resource_version="2")))
    assert combined is not None
    assert combined.message.startswith("(combined")


@pytest.mark.row("M-115")
@pytest.mark.parametrize(("gap", "message"), [(600, "(combined from similar events): late"), (600.001, "late")])
def test_a_group_starts_afresh_after_more_than_600_quiet_seconds(gap: float, message: str) -> None:
    events = Events()
    for early in different(9):
        events.correlate(early)
        events.clock.seconds += 100
    events.clock.seconds += gap - 100
    late = events.correlate("late")
    assert late is not None
    assert late.message == message


@pytest.mark.row("M-115")
def test_repeated_messages_do_not_make_a_group_full() -> None:
    events = Events()
    for _ in range(3):
        for message in different(8):
            event = events.correlate(message)
            assert event is None or event.message == message


@pytest.mark.row("M-115")
def test_after_combining_all_but_one_of_the_messages_still_pass_as_they_are() -> None:
    events = Events()
    for message in [*different(9), "the tenth"]:
        events.correlate(message)
    for message in [*different(9)[1:], "the tenth"]:
        known = events.correlate(message)
        assert known is not None
        assert known.message == message
    forgotten = events.correlate("message 0")
    assert forgotten is not None
    assert forgotten.message == "(combined from similar events): message 0"


@pytest.mark.row("M-117", "R-129")
def test_a_repetition_counts_up_under_the_first_name_and_time() -> None:
    events = Events()
    first = events.correlate()
    assert first is not None
    events.clock.seconds += 60
    second = events.correlate()
    assert second is not None
    assert second.metadata.name == first.metadata.name
    assert (second.first_timestamp, second.last_timestamp) == (first.first_timestamp, events.now())
    third = events.correlate()
    assert third is not None
    assert (first.count, second.count, third.count) == (1, 2, 3)


@pytest.mark.row("M-117")
@pytest.mark.parametrize("field_path", ["", "spec.containers{web}"])
def test_another_field_of_the_object_is_no_repetition(field_path: str) -> None:
    events = Events()
    events.correlate()
    event = events.correlator.correlate(events.make(about=replace(RS, field_path=field_path)))
    assert event is not None
    assert event.count == (1 if field_path else 2)


@pytest.mark.row("M-119", "R-130")
def test_25_events_about_an_object_pass_and_then_one_every_300_seconds() -> None:
    events = Events()
    passed = [events.correlate() is not None for _ in range(30)]
    assert passed == [True] * 25 + [False] * 5
    events.clock.seconds += 299.9
    assert events.correlate() is None
    events.clock.seconds += 0.1
    after = events.correlate()
    assert after is not None
    assert after.count == 32
    assert events.correlate() is None


@pytest.mark.row("M-120", "M-119")
def test_the_reason_does_not_matter_but_object_type_and_source_do() -> None:
    events = Events()
    for number in range(25):
        assert events.correlate(reason=f"Reason{number}") is not None
    assert events.correlate(reason="Another") is None
    assert events.correlate(event_type="Warning") is not None
    assert events.correlate(component="deployment-controller") is not None
    assert events.correlator.correlate(events.make(about=replace(RS, uid="other"))) is not None


@pytest.mark.row("R-130")
def test_3000_pods_of_one_replica_set_make_25_writes() -> None:
    events = Events()
    written = [event for number in range(3000) if (event := events.correlate(f"Created pod: {number}")) is not None]
    assert len(written) == 25
    assert len({event.metadata.name for event in written}) == 10


@pytest.mark.row("M-121", "R-131")
def test_what_was_not_seen_for_4096_others_is_forgotten() -> None:
    events = Events()

    def about(number: int) -> ObjectReference:
        return replace(RS, uid=str(number))

    def count(number: int) -> int:
        event = events.correlator.correlate(events.make(about=about(number)))
        assert event is not None
        return event.count

    for number in range(4096):
        assert count(number) == 1
    assert count(0) == 2
    assert count(4096) == 1
    assert count(0) == 3
    assert count(1) == 1


@pytest.mark.row("M-121")
@pytest.mark.parametrize("cache", ["_groups", "_observed", "_buckets"])
def test_no_cache_grows_further(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert correlator.CACHE_SIZE == 4096
    monkeypatch.setattr(correlator, "CACHE_SIZE", 16)
    events = Events()
    for number in range(20):
        events.correlator.correlate(events.make(about=replace(RS, uid=str(number))))
    assert len(getattr(events.correlator, cache)._entries) == 16
