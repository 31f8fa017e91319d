"""Speaking as a service account, with tokens that are asked for.

Follows k8s.io/controller-manager pkg/clientbuilder/client_builder_dynamic.go and client-go transport/token_source.go.
"""

import asyncio
import ssl
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from kcm.api.client import Client
from kcm.api.config import ClientConfig
from kcm.api.credentials import ConfigCredentials
from kcm.api.errors import StatusError, TransportError, is_already_exists, is_not_found
from kcm.clock import REAL, Clock
from kcm.logs import get_logger

log = get_logger(__name__)

#: Life that is asked for; the server may give another one.
TOKEN_LIFETIME = timedelta(hours=1)
#: Taken for the life of a token that seems to have less: rather the clocks differ.
MINIMUM_LIFETIME = timedelta(minutes=10)
#: Part of its life after which a token is replaced.
ROTATE_AFTER = 0.8
#: Seconds between the tries to get a token.
_WAITS = (0.5, 1.0, 2.0)

_NAMESPACES = "/api/v1/namespaces"


class _TokenRequestStatus(msgspec.Struct, rename="camel"):
    token: str
    expiration_timestamp: datetime


class _TokenRequest(msgspec.Struct):
    status: _TokenRequestStatus


class ServiceAccountCredentials:
    """A service account's token, as `kcm.api.transport.Credentials`. For one event loop.

    The account, and its namespace, are made where they are missing. Of the configuration only the server's side is used.

    Args:
        config: Where the server is and whom it is believed by.
        client: Asks for tokens and makes accounts, with rights of its own.
        namespace: The account's namespace.
        name: The account's name.
        clock: What tells when a token gets old.

    Raises:
        ConfigError: the server's CA cannot be used.
    """

    def __init__(self, config: ClientConfig, client: Client, *, namespace: str, name: str, clock: Clock = REAL) -> None:
        self._server = ConfigCredentials(config.anonymous(), clock=clock)
        self._client = client
        self._namespace = namespace
        self._name = name
        self._clock = clock
        self._header: str | None = None
        self._rotate_at = 0.0
        self._asking = asyncio.Lock()

    async def authorization(self) -> str:
        """The Authorization header to send now; waits for a new token when the last one has got old.

        Raises:
            TransportError: there is no token, and none could be got in four tries.
        """
        async with self._asking:
            if self._header is None or self._clock.monotonic() >= self._rotate_at:
                await self._rotate()
            assert self._header is not None  # noqa: S101 - for the type checker
            return self._header

    async def tls(self) -> ssl.SSLContext | None:
        """As `ConfigCredentials.tls`."""
        return await self._server.tls()

    async def rejected(self, authorization: str | None) -> None:
        """Ask for a new token before the next request, unless the header was an old one anyway."""
        if authorization == self._header:
            self._header = None
        await self._server.rejected(None)

    async def close(self) -> None:
        """Nothing runs beside requests."""
        await self._server.close()

    async def _rotate(self) -> None:
        try:
            status = await self._ask_patiently()
        except (StatusError, TransportError) as error:
            if self._header is None:
                raise TransportError(
                    f"failed to get a token for service account {self._namespace}/{self._name}: {error}"
                ) from error
            log.error("Unable to rotate token", err=error, namespace=self._namespace, name=self._name)
            return
        lifetime = max(status.expiration_timestamp - self._clock.now(), MINIMUM_LIFETIME)
        self._rotate_at = self._clock.monotonic() + ROTATE_AFTER * lifetime.total_seconds()
        self._header = f"Bearer {status.token}"

    async def _ask_patiently(self) -> _TokenRequestStatus:
        for wait in _WAITS:
            try:
                return await self._ask()
            except (StatusError, TransportError) as error:
                log.warning("Getting a token failed", err=error, namespace=self._namespace, name=self._name)
            await asyncio.sleep(wait)
        return await self._ask()

    async def _ask(self) -> _TokenRequestStatus:
        await self.ensure_account()
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": int(TOKEN_LIFETIME.total_seconds())},
        }
        answer = await self._client.request("POST", f"{self._accounts}/{self._name}/token", body=body)
        try:
            return msgspec.json.decode(answer, type=_TokenRequest).status
        except msgspec.DecodeError as error:
            raise TransportError(f"the server's answer is no TokenRequest: {error}") from error

    async def ensure_account(self) -> None:
        """Look whether the account is there, and make it, with its namespace, if it is not.

        Raises:
            StatusError: refused.
            TransportError: no answer.
        """
        if await self._exists(f"{self._accounts}/{self._name}"):
            return
        await self._ensure_namespace()
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"namespace": self._namespace, "name": self._name},
        }
        await self._create(self._accounts, account)

    async def _ensure_namespace(self) -> None:
        try:
            if await self._exists(f"{_NAMESPACES}/{self._namespace}"):
                return
        except StatusError:
            return  # who may not look at namespaces may still make accounts
        try:
            await self._create(
                _NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._namespace}}
            )
        except StatusError as error:
            log.warning("Creating the namespace of service accounts failed", err=error, namespace=self._namespace)

    @property
    def _accounts(self) -> str:
        return f"{_NAMESPACES}/{self._namespace}/serviceaccounts"

    async def _exists(self, path: str) -> bool:
        try:
            await self._client.request("GET", path)
        except StatusError as error:
            if is_not_found(error):
                return False
            raise
        return True

    async def _create(self, path: str, document: Mapping[str, object]) -> None:
        try:
            await self._client.request("POST", path, body=document)
        except StatusError as error:
            if not is_already_exists(error):
                raise
