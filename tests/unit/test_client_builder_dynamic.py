"""Tokens of service accounts: who is asked, when they are replaced, and what happens when they can't be."""

import asyncio
import json
from collections.abc import Callable, Mapping
from datetime import timedelta

import pytest

from kcm.api.client import JSON, Body, Client
from kcm.api.client_builder_dynamic import ServiceAccountCredentials
from kcm.api.config import ClientConfig
from kcm.api.errors import Status, StatusError, TransportError
from kcm.logs import capture
from tests.clocks import FakeClock, LoopClock

CONFIG = ClientConfig(
    server="http://127.0.0.1:1", source="test", token="root", client_certificate_file="/x", client_key_file="/y"
)
ACCOUNTS = "/api/v1/namespaces/kube-system/serviceaccounts"
ACCOUNT = f"{ACCOUNTS}/deployment-controller"
NAMESPACE = "/api/v1/namespaces/kube-system"


def refusal(code: int, reason: str) -> StatusError:
    return StatusError(Status(message=reason, reason=reason, code=code))


class Server(Client):
    """Knows accounts and gives tokens that are numbered; `refuse` makes requests fail."""

    def __init__(self, clock: FakeClock | LoopClock, *, paths: set[str], lifetime: float = 3600) -> None:
        self.clock = clock
        self.paths = paths
        self.lifetime = lifetime
        self.calls: list[str] = []
        self.bodies: list[object] = []
        self.refuse: Callable[[str], BaseException | None] = lambda call: None
        self.tokens = 0

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Body | None = None,
        content_type: str = JSON,
    ) -> bytes:
        call = f"{method} {path}"
        self.calls.append(call)
        await asyncio.sleep(0)
        if error := self.refuse(call):
            raise error
        if path.endswith("/token"):
            self.bodies.append(body)
            self.tokens += 1
            expires = (self.clock.now() + timedelta(seconds=self.lifetime)).isoformat().replace("+00:00", "Z")
            return json.dumps({"status": {"token": f"t{self.tokens}", "expirationTimestamp": expires}}).encode()
        if method == "GET" and path not in self.paths:
            raise refusal(404, "NotFound")
        if method == "POST" and isinstance(body, Mapping):
            made = f"{path}/{body['metadata']['name']}"
            if made in self.paths:
                raise refusal(409, "AlreadyExists")
            self.paths.add(made)
        return b"{}"


def credentials(server: Server) -> ServiceAccountCredentials:
    return ServiceAccountCredentials(
        CONFIG, server, namespace="kube-system", name="deployment-controller", clock=server.clock
    )


@pytest.mark.row("C-083")
async def test_a_token_is_asked_for_an_hour_and_replaced_after_four_fifths_of_its_life() -> None:
    clock = FakeClock()
    server = Server(clock, paths={ACCOUNT})
    who = credentials(server)
    assert await asyncio.gather(*(who.authorization() for _ in range(3))) == ["Bearer t1"] * 3
    assert server.calls == [f"GET {ACCOUNT}", f"POST {ACCOUNT}/token"]
    assert server.bodies == [
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    ]
    clock.seconds += 0.8 * 3600 - 1
    assert await who.authorization() == "Bearer t1"
    clock.seconds += 1
    assert await who.authorization() == "Bearer t2"


@pytest.mark.row("C-083")
async def test_a_life_below_ten_minutes_counts_as_ten_minutes() -> None:
    clock = FakeClock()
    server = Server(clock, paths={ACCOUNT}, lifetime=-30)
    who = credentials(server)
    await who.authorization()
    clock.seconds += 479
    assert await who.authorization() == "Bearer t1"
    clock.seconds += 1
    assert await who.authorization() == "Bearer t2"


@pytest.mark.row("C-083")
async def test_a_missing_account_is_made_with_its_namespace() -> None:
    server = Server(FakeClock(), paths=set())
    await credentials(server).ensure_account()
    assert server.calls == [
        f"GET {ACCOUNT}",
        f"GET {NAMESPACE}",
        "POST /api/v1/namespaces",
        f"POST {ACCOUNTS}",
    ]
    assert server.paths == {NAMESPACE, ACCOUNT}


async def test_who_may_not_see_namespaces_still_makes_the_account_and_one_made_by_another_will_do() -> None:
    server = Server(FakeClock(), paths=set())
    server.refuse = lambda call: refusal(403, "Forbidden") if call == f"GET {NAMESPACE}" else None
    await credentials(server).ensure_account()
    assert server.paths == {ACCOUNT}

    server.refuse = lambda call: refusal(404, "NotFound") if call == f"GET {ACCOUNT}" else None
    await credentials(server).ensure_account()


async def test_an_account_that_cannot_be_looked_at_or_made_is_an_error() -> None:
    server = Server(FakeClock(), paths={NAMESPACE})
    for refused in (f"GET {ACCOUNT}", f"POST {ACCOUNTS}"):
        server.refuse = {refused: refusal(403, "Forbidden")}.get
        with pytest.raises(StatusError, match="Forbidden"):
            await credentials(server).ensure_account()


@pytest.mark.row("C-084")
@pytest.mark.looptime
async def test_a_token_is_tried_for_four_times() -> None:
    clock = LoopClock()
    server = Server(clock, paths={ACCOUNT})
    server.refuse = lambda call: refusal(500, "InternalError") if call.endswith("/token") else None
    who = credentials(server)
    began = clock.monotonic()
    with capture() as logged, pytest.raises(TransportError, match="kube-system/deployment-controller: InternalError"):
        await who.authorization()
    assert clock.monotonic() - began == pytest.approx(0.5 + 1 + 2)
    assert sum(call.endswith("/token") for call in server.calls) == 4
    assert sum("Getting a token failed" in str(line) for line in logged) == 3

    fails = iter([True, True, True, False])
    server.refuse = lambda call: TransportError("no answer") if call.endswith("/token") and next(fails) else None
    assert await who.authorization() == "Bearer t1"


@pytest.mark.looptime
async def test_an_old_token_goes_on_when_there_is_no_new_one() -> None:
    clock = LoopClock()
    server = Server(clock, paths={ACCOUNT}, lifetime=1000)
    who = credentials(server)
    await who.authorization()
    await asyncio.sleep(900)
    server.refuse = lambda call: TransportError("no answer")
    with capture() as logged:
        assert await who.authorization() == "Bearer t1"
    assert any("Unable to rotate token" in str(line) for line in logged)


@pytest.mark.row("C-084")
async def test_a_rejected_token_is_dropped_and_an_older_ones_rejection_is_not_news() -> None:
    server = Server(FakeClock(), paths={ACCOUNT})
    who = credentials(server)
    assert await who.authorization() == "Bearer t1"
    await who.rejected("Bearer t1")
    assert await who.authorization() == "Bearer t2"
    await who.rejected("Bearer t1")
    assert await who.authorization() == "Bearer t2"


@pytest.mark.row("C-085")
def test_only_the_servers_side_of_the_configuration_is_kept() -> None:
    full = ClientConfig(
        server="https://s",
        source="f",
        tls_server_name="n",
        ca_data=b"ca",
        proxy_url="http://p",
        client_certificate_data=b"c",
        client_key_data=b"k",
        token="t",
        token_file="f",
        username="u",
        password="p",
    )
    assert full.anonymous() == ClientConfig(
        server="https://s", source="f", tls_server_name="n", ca_data=b"ca", proxy_url="http://p"
    )


@pytest.mark.parametrize("answer", [b"{}", b"not json"])
@pytest.mark.looptime
async def test_an_answer_without_a_token_is_an_error(answer: bytes) -> None:
    class Odd(Server):
        async def request(self, method: str, path: str, **options: object) -> bytes:
            return answer

    with pytest.raises(TransportError, match="no TokenRequest"):
        await credentials(Odd(LoopClock(), paths=set())).authorization()
