"""Authenticator and authorizer from the options. Follows apiserver pkg/server/options/authentication.go and authorization.go.

What the flags leave open is looked up in ConfigMap kube-system/extension-apiserver-authentication, and again every minute.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from kcm.api.client import Client
from kcm.api.config import ClientConfig, load_config
from kcm.api.errors import ConfigError, StatusError, TransportError
from kcm.logs import get_logger
from kcm.options import AuthenticationOptions, AuthorizationOptions, RequestHeaderOptions
from kcm.serving.authentication import Authenticator
from kcm.serving.authorities import Authorities, FileAuthorities
from kcm.serving.authorization import Authorizer
from kcm.serving.certificates import ServingError
from kcm.serving.reviews import AccessReviews, TokenReviews
from kcm.serving.secure_serving import Delegation

log = get_logger(__name__)

CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
#: Seconds between two looks at the ConfigMap.
LOOKUP_PERIOD = 60.0


async def delegate(
    authentication: AuthenticationOptions,
    authorization: AuthorizationOptions,
    *,
    connect: Callable[[ClientConfig], Awaitable[Client]],
    tasks: asyncio.TaskGroup,
) -> Delegation:
    """Set up who finds out who asks and what they may read.

    Args:
        authentication: What the flags say of the one.
        authorization: And of the other.
        connect: Makes a client for an API server.
        tasks: Where the looks at the ConfigMap run on.

    Raises:
        ServingError: a file cannot be used, or the cluster's authorities cannot be read.
    """
    client = await _client(authentication.kubeconfig, "authentication", connect)
    authenticator = await _authenticator(authentication, client, tasks)
    review = None
    if (asking := await _client(authorization.kubeconfig, "authorization", connect)) is not None:
        review = AccessReviews(
            asking, authorized_ttl=authorization.authorized_ttl, unauthorized_ttl=authorization.unauthorized_ttl
        )
    else:
        log.warning("Without --authorization-kubeconfig only the open paths can be read")
    if errors := authorization.validate():
        raise ServingError("; ".join(errors))
    return Delegation(authenticator, Authorizer(authorization.always_allow_paths, review))


async def _client(kubeconfig: str, what: str, connect: Callable[[ClientConfig], Awaitable[Client]]) -> Client | None:
    if not kubeconfig:
        return None
    try:
        return await connect(load_config(kubeconfig=kubeconfig, master=""))
    except ConfigError as error:
        raise ServingError(f"failed to get delegated {what} kubeconfig: {error}") from error


async def _authenticator(
    options: AuthenticationOptions, client: Client | None, tasks: asyncio.TaskGroup
) -> Authenticator:
    clients: Authorities | None = None
    proxies: Authorities | None = None
    headers = options.request_header
    if options.client_ca_file:
        clients = _from_file("unable to load client CA provider", "client-ca-bundle", options.client_ca_file)
    if headers.client_ca_file:
        name = "unable to create request header authentication config"
        proxies = _from_file(name, "request-header", headers.client_ca_file)
    if not options.skip_lookup and (clients is None or proxies is None):
        if client is None:
            log.warning(
                "Without --authentication-kubeconfig the authorities of client certificates are not looked up in the cluster",
                configMap="kube-system/extension-apiserver-authentication",
                missing=[
                    flag
                    for flag, given in (("--client-ca-file", clients), ("--requestheader-client-ca-file", proxies))
                    if given is None
                ],
            )
        else:
            lookup = _Lookup(client)
            try:
                data = await lookup.read()
            except ServingError as error:
                if not options.tolerate_lookup_failure:
                    raise
                log.warning(
                    "Starting without the cluster's authorities: until they can be read, client certificates count for nothing",
                    problem=str(error),
                )
                data = {}
            if clients is None:
                clients = lookup.authorities("client-ca-file")
            if proxies is None:
                proxies = lookup.authorities("requestheader-client-ca-file")
                headers = _headers_of(data)
            lookup.apply(data)
            tasks.create_task(lookup.run(), name="authorities")
    return Authenticator(
        client_authorities=clients,
        proxy_authorities=proxies,
        request_header=headers,
        review=None if client is None else TokenReviews(client, ttl=options.token_cache_ttl),
    )


def _from_file(what: str, name: str, path: str) -> Authorities:
    try:
        return FileAuthorities(name, path)
    except ServingError as error:
        raise ServingError(f"{what}: {error}") from error


class _Lookup:
    """Authorities that the cluster publishes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._authorities: dict[str, Authorities] = {}

    def authorities(self, key: str) -> Authorities:
        """Those under this key of the ConfigMap, empty until `apply`."""
        return self._authorities.setdefault(key, Authorities(f"{CONFIG_MAP}::{key}"))

    async def read(self) -> Mapping[str, str]:
        """The ConfigMap's data.

        Raises:
            ServingError: it cannot be read.
        """
        try:
            answer: dict[str, Any] = msgspec.json.decode(await self._client.request("GET", CONFIG_MAP))
        except (StatusError, TransportError) as error:
            raise ServingError(
                f"unable to load configmap based request-header-client-ca-file: {error}; grant Role "
                "kube-system/extension-apiserver-authentication-reader, or set --authentication-tolerate-lookup-failure"
            ) from error
        return answer.get("data") or {}

    def apply(self, data: Mapping[str, str]) -> None:
        """Take over what has changed; what cannot be used is logged, and the old stays."""
        for key, authorities in self._authorities.items():
            pem = data.get(key, "").encode()
            if pem != authorities.pem:
                try:
                    authorities.replace(pem)
                except ServingError as error:
                    log.error("Unable to use the cluster's authorities", err=error)

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            await asyncio.sleep(LOOKUP_PERIOD)
            try:
                self.apply(await self.read())
            except ServingError as error:
                log.warning("Unable to look up the cluster's authorities, the old ones stay", problem=str(error))


def _headers_of(data: Mapping[str, str]) -> RequestHeaderOptions:
    def names(key: str) -> tuple[str, ...]:
        try:
            return tuple(msgspec.json.decode(data.get(f"requestheader-{key}") or "[]", type=list[str]))
        except msgspec.DecodeError as error:
            raise ServingError(f"{CONFIG_MAP}: requestheader-{key}: {error}") from error

    return RequestHeaderOptions(
        allowed_names=names("allowed-names"),
        username_headers=names("username-headers"),
        uid_headers=names("uid-headers"),
        group_headers=names("group-headers"),
        extra_headers_prefix=names("extra-headers-prefix"),
    )
