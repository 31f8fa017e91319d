"""Who asks, and what they may read."""

import asyncio
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from multidict import CIMultiDict, CIMultiDictProxy

from kcm import logs
from kcm.options import AuthorizationOptions, RequestHeaderOptions
from kcm.serving import ServingError
from kcm.serving.authentication import AuthenticationError, Authenticator, Peer, User
from kcm.serving.authorities import Authorities, FileAuthorities
from kcm.serving.authorization import Authorizer, Decision
from kcm.serving.reviews import AnswerCache
from kcm.testing.certificates import Authority
from tests.clocks import FakeClock

CLIENTS, PROXIES, STRANGERS = Authority("clients"), Authority("proxies"), Authority("strangers")
EXTRA_PREFIX = "X-Remote-Extra-"


def der(pem: bytes) -> bytes:
    return x509.load_pem_x509_certificates(pem)[0].public_bytes(Encoding.DER)


def peer(authority: Authority, name: str, groups: tuple[str, ...] = ()) -> Peer:
    return Peer(der(authority.client(name, groups).certificate), der(authority.certificate))


def sent(*pairs: tuple[str, str]) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict(pairs))


class Reviewer:
    """Knows one token."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, token: str) -> User | None:
        self.asked.append(token)
        return User(name="robot", groups=("robots",)) if token == "good" else None


def authenticator(reviewer: Reviewer | None = None, **headers: tuple[str, ...]) -> Authenticator:
    return Authenticator(
        client_authorities=Authorities("clients", CLIENTS.certificate),
        proxy_authorities=Authorities("proxies", PROXIES.certificate),
        request_header=RequestHeaderOptions(**headers),  # type: ignore[arg-type]
        review=reviewer,
    )


@pytest.mark.row("C-094")
async def test_a_certificate_names_a_user_and_its_groups() -> None:
    user = await authenticator().authenticate(sent(), peer(CLIENTS, "jane", ("admins", "staff")))
    assert (user.name, user.groups) == ("jane", ("admins", "staff", "system:authenticated"))
    (credential,) = user.extra["authentication.kubernetes.io/credential-id"]
    assert credential.startswith("X509SHA256=")


async def test_who_shows_nothing_is_anonymous() -> None:
    user = await authenticator(Reviewer()).authenticate(sent(), None)
    assert (user.name, user.groups) == ("system:anonymous", ("system:unauthenticated",))


@pytest.mark.parametrize("header", ["Bearer good", "bearer good", " Bearer good  "])
async def test_a_token_is_reviewed(header: str) -> None:
    user = await authenticator(Reviewer()).authenticate(sent(("Authorization", header)), None)
    assert (user.name, user.groups) == ("robot", ("robots", "system:authenticated"))


@pytest.mark.parametrize("header", ["Bearer", "Basic good", "good"])
async def test_what_is_no_token_is_not_reviewed(header: str) -> None:
    reviewer = Reviewer()
    user = await authenticator(reviewer).authenticate(sent(("Authorization", header)), None)
    assert (user.name, reviewer.asked) == ("system:anonymous", [])


async def test_a_wrong_token_is_not_taken_for_none() -> None:
    with pytest.raises(AuthenticationError, match="invalid bearer token"):
        await authenticator(Reviewer()).authenticate(sent(("Authorization", "Bearer bad")), None)
    # Where nobody can be asked tokens count for nothing.
    assert (await authenticator().authenticate(sent(("Authorization", "Bearer bad")), None)).name == "system:anonymous"


async def test_a_certificate_counts_more_than_a_token_and_a_token_more_than_a_useless_certificate() -> None:
    headers = sent(("Authorization", "Bearer good"))
    assert (await authenticator(Reviewer()).authenticate(headers, peer(CLIENTS, "jane"))).name == "jane"
    assert (await authenticator(Reviewer()).authenticate(headers, peer(PROXIES, "proxy"))).name == "robot"


async def test_a_proxy_says_for_whom_it_asks() -> None:
    headers = sent(
        ("X-Remote-User", "joe"),
        ("X-Remote-Group", "a"),
        ("x-remote-group", "b"),
        (f"{EXTRA_PREFIX}Scopes%2fOf", "one"),
        (f"{EXTRA_PREFIX}scopes%2fof", "two"),
    )
    user = await authenticator().authenticate(headers, peer(PROXIES, "proxy"))
    assert (user.name, user.groups) == ("joe", ("a", "b", "system:authenticated"))
    assert user.extra == {"scopes/of": ["one", "two"]}


async def test_only_a_proxy_may_say_so() -> None:
    headers = sent(("X-Remote-User", "root"), ("X-Remote-Group", "system:masters"))
    assert (await authenticator().authenticate(headers, None)).name == "system:anonymous"
    assert (await authenticator().authenticate(headers, peer(CLIENTS, "jane"))).name == "jane"
    with pytest.raises(AuthenticationError):
        await authenticator().authenticate(headers, peer(STRANGERS, "proxy"))
    with pytest.raises(AuthenticationError, match="cn=other is not in the allowed list"):
        await authenticator(allowed_names=("proxy",)).authenticate(headers, peer(PROXIES, "other"))
    assert (await authenticator(allowed_names=("proxy",)).authenticate(headers, peer(PROXIES, "proxy"))).name == "root"


async def test_authorities_in_a_file_change_while_it_runs(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_bytes(CLIENTS.certificate)
    authorities = FileAuthorities("client-ca-bundle", str(file))
    file.write_bytes(STRANGERS.certificate + b"\n")
    authorities.refresh()
    assert authorities.certificates == {der(STRANGERS.certificate)}
    with logs.capture() as records:
        file.write_bytes(b"nonsense")
        authorities.refresh()
        authorities.refresh()
        file.unlink()
        authorities.refresh()
    assert [record.message for record in records] == ["Unable to reload authorities, the old ones stay"] * 2
    assert authorities.certificates == {der(STRANGERS.certificate)}


@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_authorities_that_cannot_be_used_end_the_start(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "ca.crt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ServingError, match=str(file)):
        FileAuthorities("client-ca-bundle", str(file))


# What they may read


@pytest.mark.row("C-095", "C-096")
@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/healthz", True),
        ("/healthz/x", False),
        ("/healthzz", False),
        ("/open", True),
        ("/opening/hours", True),
        ("/", False),
        ("/metrics", False),
    ],
)
async def test_open_paths_are_exact_or_prefixes(path: str, allowed: bool) -> None:
    authorizer = Authorizer(["/healthz", "open*"])
    assert (await authorizer.authorize(User(name="jane"), "get", path)).allowed is allowed
    assert (await authorizer.authorize(User(name="root", groups=("system:masters",)), "get", path)).allowed


async def test_everything_else_is_reviewed() -> None:
    asked = []

    async def review(user: User, verb: str, path: str) -> Decision:
        asked.append((user.name, verb, path))
        return Decision(path == "/metrics", "because")

    authorizer = Authorizer(["/healthz"], review)
    assert (await authorizer.authorize(User(name="jane"), "get", "/metrics")).allowed
    assert await authorizer.authorize(User(name="jane"), "put", "/nope") == Decision(False, "because")
    assert asked == [("jane", "get", "/metrics"), ("jane", "put", "/nope")]


def test_a_star_in_the_middle_of_a_path_is_refused() -> None:
    assert AuthorizationOptions(always_allow_paths=("/a*b", "/c*", "/")).validate() == [
        'only trailing * allowed in "a*b"'
    ]


# Kept answers


async def test_an_answer_is_kept_for_its_time_and_asked_for_once() -> None:
    clock, asked, go = FakeClock(), [], asyncio.Event()
    cache: AnswerCache[str] = AnswerCache(lambda answer: 10.0 if answer == "yes" else 1.0, clock=clock)

    async def ask() -> str:
        asked.append(1)
        await go.wait()
        return "yes"

    waiting = [asyncio.create_task(cache.get(b"q", ask)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    go.set()
    assert await asyncio.gather(*waiting[1:]) == ["yes", "yes"]
    assert len(asked) == 1
    clock.seconds += 9.9
    assert (await cache.get(b"q", ask), len(asked)) == ("yes", 1)
    clock.seconds += 0.2
    assert (await cache.get(b"q", ask), len(asked)) == ("yes", 2)


async def test_an_error_is_not_kept() -> None:
    cache: AnswerCache[str] = AnswerCache(lambda _: 10.0, clock=FakeClock())
    count = 0

    async def ask() -> str:
        nonlocal count
        count += 1
        if count == 1:
            raise AuthenticationError("no answer")
        return "yes"

    with pytest.raises(AuthenticationError):
        await cache.get(b"q", ask)
    assert await cache.get(b"q", ask) == "yes"


async def test_a_cache_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcm.serving.reviews.CACHE_SIZE", 3)
    cache: AnswerCache[int] = AnswerCache(lambda _: 10.0, clock=FakeClock())
    asked = []

    async def get(number: int) -> int:
        async def ask() -> int:
            asked.append(number)
            return number

        return await cache.get(str(number).encode(), ask)

    for number in (1, 2, 3, 4, 4, 1):
        assert await get(number) == number
    assert asked == [1, 2, 3, 4, 1]
