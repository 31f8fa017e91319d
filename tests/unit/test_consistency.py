"""The consistency store: what it records, when it blocks, what makes it forget."""

import pytest

from kcm.api.resource_version import InvalidResourceVersionError, compare_resource_versions
from kcm.consistency import ConsistencyError, NoConsistencyStore, RealConsistencyStore

RS, PODS, REPLICA_SETS = "ns/rs", "pods", "replicasets.apps"


class Caches:
    """Stores that have come as far as a test says."""

    def __init__(self) -> None:
        self.versions = {PODS: "100", REPLICA_SETS: "100"}
        self.store = RealConsistencyStore(
            {PODS: lambda: self.versions[PODS], REPLICA_SETS: lambda: self.versions[REPLICA_SETS]}
        )

    def wrote(self, version: str, *, resource: str = PODS, uid: str = "uid") -> None:
        self.store.wrote_at(RS, uid, resource, version)

    def blocked(self) -> str | None:
        """The version that is waited for, if any."""
        try:
            self.store.ensure_ready(RS)
        except ConsistencyError as error:
            return error.wrote
        return None


@pytest.mark.row("R-068", "R-169", "M-129")
@pytest.mark.parametrize(
    ("a", "b", "order"),
    [
        ("1", "1", 0),
        ("9", "10", -1),
        ("10", "9", 1),
        ("19", "21", -1),
        ("9" * 40, "1" + "0" * 40, -1),
        ("1" * 40, "1" * 39 + "2", -1),
    ],
)
def test_versions_compare_as_numbers_of_any_length(a: str, b: str, order: int) -> None:
    assert compare_resource_versions(a, b) == order


@pytest.mark.row("R-169")
@pytest.mark.parametrize("version", ["", "0", "01", "-1", "1a", "1.0", " 1", "\u0663", "\u00b2"])
def test_what_is_no_positive_decimal_number_cannot_be_compared(version: str) -> None:
    for pair in ((version, "1"), ("1", version)):
        with pytest.raises(InvalidResourceVersionError, match="resource version is not well formed: "):
            compare_resource_versions(*pair)


@pytest.mark.row("R-065", "R-066", "M-061", "M-063")
@pytest.mark.parametrize(
    ("resource", "text", "group", "plural"),
    [
        (PODS, "read version: 100 is not as new as written version: 101 for group resource pods", "", "pods"),
        (
            REPLICA_SETS,
            "read version: 100 is not as new as written version: 101 for group resource replicasets.apps",
            "apps",
            "replicasets",
        ),
    ],
)
def test_a_cache_older_than_the_write_blocks(resource: str, text: str, group: str, plural: str) -> None:
    caches = Caches()
    caches.wrote("101", resource=resource)
    with pytest.raises(ConsistencyError) as caught:
        caches.store.ensure_ready(RS)
    assert str(caught.value) == text
    assert (caught.value.group, caught.value.resource) == (group, plural)


@pytest.mark.row("R-065", "M-063")
def test_every_resource_written_must_have_arrived() -> None:
    caches = Caches()
    caches.wrote("101", resource=PODS)
    caches.wrote("102", resource=REPLICA_SETS)
    caches.versions[PODS] = "101"
    assert caches.blocked() == "102"
    caches.versions[REPLICA_SETS] = "1000"
    assert caches.blocked() is None


@pytest.mark.row("R-067", "M-064")
def test_a_passed_check_drops_the_record_and_without_one_nothing_blocks() -> None:
    caches = Caches()
    assert caches.blocked() is None
    caches.wrote("100")
    assert caches.blocked() is None
    caches.versions[PODS] = "50"
    assert caches.blocked() is None


def test_a_failed_check_keeps_the_record() -> None:
    caches = Caches()
    caches.wrote("101")
    assert caches.blocked() == "101"
    assert caches.blocked() == "101"


@pytest.mark.row("R-067", "M-065")
@pytest.mark.parametrize("read", ["", "0", "not a version"])
def test_a_cache_whose_version_is_unknown_never_blocks(read: str) -> None:
    caches = Caches()
    caches.wrote("101")
    caches.versions[PODS] = read
    assert caches.blocked() is None


@pytest.mark.row("R-067", "M-065")
def test_neither_an_unreadable_write_nor_a_resource_without_a_cache_blocks() -> None:
    caches = Caches()
    caches.wrote("", resource=PODS)
    caches.wrote("999", resource="secrets")
    assert caches.blocked() is None


@pytest.mark.row("M-061", "R-170")
@pytest.mark.parametrize("second", ["99", "101", "11"])
def test_an_older_or_equal_write_changes_nothing(second: str) -> None:
    caches = Caches()
    caches.wrote("101")
    caches.wrote(second)
    assert caches.blocked() == "101"


@pytest.mark.row("M-061", "R-170")
def test_a_newer_write_replaces_the_record() -> None:
    caches = Caches()
    caches.wrote("999")
    caches.wrote("1000")
    assert caches.blocked() == "1000"


@pytest.mark.row("R-169")
@pytest.mark.parametrize(("first", "second", "waits_for"), [("", "101", "101"), ("101", "0", None)])
def test_where_versions_cannot_be_compared_the_later_write_counts(
    first: str, second: str, waits_for: str | None
) -> None:
    caches = Caches()
    caches.wrote(first)
    caches.wrote(second)
    assert caches.blocked() == waits_for


@pytest.mark.row("M-062", "R-069")
def test_a_write_for_another_uid_makes_void_what_was_recorded() -> None:
    caches = Caches()
    caches.wrote("500", resource=REPLICA_SETS, uid="old")
    caches.wrote("101", resource=PODS, uid="new")
    assert caches.blocked() == "101"
    caches.versions[PODS] = "101"
    assert caches.blocked() is None


@pytest.mark.row("M-066", "R-069")
@pytest.mark.parametrize(("uid", "blocked"), [("uid", None), ("", None), ("other", "101")])
def test_clearing_needs_the_same_uid_or_none(uid: str, blocked: str | None) -> None:
    caches = Caches()
    caches.wrote("101")
    caches.store.clear(RS, uid)
    caches.store.clear("ns/unknown", uid)
    assert caches.blocked() == blocked


def test_owners_are_independent() -> None:
    caches = Caches()
    caches.wrote("101")
    caches.store.ensure_ready("ns/other")
    assert caches.blocked() == "101"


def test_the_store_that_remembers_nothing_is_always_ready() -> None:
    store = NoConsistencyStore()
    store.wrote_at(RS, "uid", PODS, "101")
    store.ensure_ready(RS)
    store.clear(RS, "uid")
