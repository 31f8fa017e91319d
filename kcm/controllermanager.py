"""The process around the controllers. Follows cmd/kube-controller-manager/app/controllermanager.go.

Serving comes up first, then election, then informers, then controllers; they stop in reverse. Two threads: the controllers'
loop is the caller's; the control thread serves and renews the Lease. This module is the only place where they meet.
"""

import asyncio
import os
import platform
import random
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any, NoReturn, Self

from aiohttp import web

from kcm import KUBERNETES_VERSION, __version__, logs
from kcm.api.client import REQUEST_TIMEOUT, Client, Fence
from kcm.api.client_builder_dynamic import ServiceAccountCredentials
from kcm.api.config import ClientConfig, load_config
from kcm.api.credentials import ConfigCredentials
from kcm.api.errors import ConfigError, FencedError, StatusError, TransportError
from kcm.api.resources import LEASES
from kcm.api.transport import Transport
from kcm.command_line import flag_texts
from kcm.component_config import component_config
from kcm.control_thread import ControlThread, Heartbeat
from kcm.controller_descriptor import DESCRIPTORS, ControllerContext, ControllerDescriptor
from kcm.controllers.controller import Controller
from kcm.events.recorder import EventBroadcaster, reference_to
from kcm.features import show
from kcm.gotext import format_duration
from kcm.informers.factory import SharedInformerFactory
from kcm.leaderelection.leader_election import LeaderElector, LeadershipLostError
from kcm.leaderelection.lease_lock import LeaseLock
from kcm.metrics import Metrics
from kcm.options import IMPLEMENTED_CONTROLLERS, LeaderElectionOptions, Options
from kcm.serving import SecureServer, ServingError
from kcm.serving.delegation import delegate
from kcm.serving.metrics_pages import MetricsPage
from kcm.serving.profiling import Profiling, set_verbosity
from kcm.serving.responses import json_response
from kcm.serving.secure_serving import NO_DELEGATION, Handler
from kcm.serving.zpages import Flagz, Statusz

log = logs.get_logger(__name__)

COMPONENT = "kube-controller-manager"
#: Where the controllers' own service accounts are.
SERVICE_ACCOUNTS_NAMESPACE = "kube-system"
RELEASE_GATE = "ControllerManagerReleaseLeaderElectionLockOnExit"
#: Seconds that a leader waits for the API server to be healthy before it gives up.
API_SERVER_PATIENCE = 10.0
#: Seconds between two lines of a stop that has no limit.
STILL_WAITING_PERIOD = 5.0
#: Seconds beyond the lease duration that the leaderElection check tolerates.
LEADER_TOLERANCE = 20.0


class ManagerError(Exception):
    """The manager cannot start or go on; the text says why."""


# What says by itself why everything ends; whatever else breaks is told with all that broke.
_REASONS = (ManagerError, ServingError, ConfigError, FencedError, LeadershipLostError)


class ControllerManager:
    """Serves, leads, and runs controllers until it is cancelled.

    A program embeds it as an async context manager, which is entered once the controllers run:

        async with ControllerManager(options) as manager:
            ...

    Args:
        options: What the command line says.
        config: Where the API server is; read from the options if not given.
        on_lost: Told that the Lease is lost, in the thread that learns it first. The command ends the process there and then.
            Without it `run` raises LeadershipLostError; nothing is written in between, because the fence is closed.
    """

    def __init__(
        self,
        options: Options,
        *,
        config: ClientConfig | None = None,
        on_lost: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.metrics = Metrics()
        self._options = options
        self._config = config or load_config(kubeconfig=options.kubeconfig, master=options.master)
        self._on_lost = on_lost
        self._heartbeat = Heartbeat(self.metrics.loop_lag("controllers"), monotonic=time.monotonic)
        self._left_to_others: frozenset[str] = frozenset()
        if options.leader_election.leader_elect:
            try:
                self._left_to_others = options.leader_migration.left_to_others(IMPLEMENTED_CONTROLLERS)
            except ValueError as error:
                raise ManagerError(str(error)) from error
        self._identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        self._server: SecureServer
        self._elector: LeaderElector | None = None
        self._led = False
        self._loops: dict[str, asyncio.AbstractEventLoop] = {}
        self.metrics.feature_gates(options.feature_gates)
        self.metrics.restrict(options.metrics)
        self._informers: SharedInformerFactory | None = None
        self._controllers: list[Controller] = []
        self._running = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run(), name="controller manager")
        self._task.add_done_callback(lambda _: self._running.set())
        try:
            await self._running.wait()
        except asyncio.CancelledError:
            await self.__aexit__()
            raise
        if self._task.done():
            await self._task
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            await self._task

    async def wait(self) -> None:
        """Inside the context: return or raise, as `run`, once the manager has ended by itself."""
        if self._task is None:
            raise RuntimeError("the manager was not entered")
        await asyncio.shield(self._task)

    async def run(self) -> NoReturn:
        """Lead and control until cancelled; then stop controllers, informers, election and serving, in this order.

        Raises:
            ManagerError: the API server does not become healthy, or nothing can be served.
            LeadershipLostError: the Lease was lost and there is no `on_lost`.
            FencedError: a write came too late for the Lease.
            ExceptionGroup: something broke; see design 11 in ARCHITECTURE.md.
        """
        loop = self._loops["controllers"] = asyncio.get_running_loop()
        leading: asyncio.Future[None] = loop.create_future()
        ended: asyncio.Future[NoReturn] = loop.create_future()

        def on_leading() -> None:
            loop.call_soon_threadsafe(_settle, leading, None)

        def on_end(error: BaseException | None) -> None:
            if error is not None:
                loop.call_soon_threadsafe(_settle, ended, error)

        control = ControlThread(lambda stack, up: self._control(stack, up, on_leading), on_end=on_end)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._heartbeat.run(self._refresh_metrics), name="heartbeat")
                await control.start()
                tasks.create_task(_never_ends(ended), name="control thread")
                await leading
                await self._lead()
        except BaseExceptionGroup as group:
            for cause in _leaves(group):
                if isinstance(cause, _REASONS):
                    raise cause from None
            raise
        finally:
            ended.cancel()
            await control.stop()
        raise AssertionError("unreachable")

    # In the control thread

    async def _control(self, stack: AsyncExitStack, up: Callable[[], None], on_leading: Callable[[], None]) -> None:
        """Serve, and lead or let the controllers start at once."""
        self._loops["control"] = asyncio.get_running_loop()
        lag = Heartbeat(self.metrics.loop_lag("control"), monotonic=time.monotonic)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        tasks.create_task(lag.run())
        server = await stack.enter_async_context(await self._secure_server(stack, tasks))
        self._server = server
        server.add_checks(livez={"controllers-loop": self._check_loop}, readyz={"informer-sync": self._check_synced})
        election = self._options.leader_election
        if not election.leader_elect:
            up()
            on_leading()
            await asyncio.Event().wait()
        transport = await stack.enter_async_context(open_transport(self._config))
        events = self._client(transport, COMPONENT)
        broadcaster = await stack.enter_async_context(EventBroadcaster(events, verbosity=0))
        recorder = broadcaster.recorder(COMPONENT)
        lock = LeaseLock(
            self._client(transport, "leader-election", timeout=lease_request_timeout(election.renew_deadline)),
            namespace=election.resource_namespace,
            name=election.resource_name,
            identity=self._identity,
            record_event=lambda lease, reason, message: recorder.event(
                reference_to(LEASES, lease.metadata), "Normal", reason, message
            ),
        )
        self._elector = LeaderElector(
            lock,
            name=election.resource_name,
            lease_duration=election.lease_duration,
            renew_deadline=election.renew_deadline,
            retry_period=election.retry_period,
            release_on_cancel=self._releases,
            on_new_leader=self._on_new_leader,
            may_renew=lambda: self._heartbeat.age < election.renew_deadline,
            metrics=self.metrics.leader_election,
        )
        server.add_checks(healthz={"leaderElection": self._check_leader})
        up()
        try:
            await self._elector.run(on_leading)
        except LeadershipLostError as lost:
            if self._on_lost is not None:
                self._on_lost(lost)  # right here: what else this thread and the other do may take its time
            raise

    async def _secure_server(self, stack: AsyncExitStack, tasks: asyncio.TaskGroup) -> SecureServer:
        options = self._options

        async def connect(config: ClientConfig) -> Client:
            transport = await stack.enter_async_context(open_transport(config))
            return Client(
                transport, user_agent=user_agent("delegation"), qps=200, burst=400, metrics=self.metrics.rest_client
            )

        delegation = NO_DELEGATION
        if options.serving.secure_port != 0:
            delegation = await delegate(options.authentication, options.authorization, connect=connect, tasks=tasks)
        return SecureServer(
            options.serving,
            handlers=self._handlers(),
            delegation=delegation,
            metrics=self.metrics.requests,
            health_metrics=self.metrics.health,
        )

    def _handlers(self) -> dict[str, Handler]:
        options, gates = self._options, self._options.feature_gates
        config = component_config(options)

        async def configz(_: object) -> web.Response:
            return json_response(config)

        handlers: dict[str, Handler] = {
            "/metrics": MetricsPage(self.metrics.render),
            "/metrics/slis": MetricsPage(self.metrics.health.render, self.metrics.health.reset),
            "/configz": configz,
        }
        if gates.enabled("ComponentFlagz"):
            handlers["/flagz"] = Flagz(COMPONENT, flag_texts(options))
        if gates.enabled("ComponentStatusz"):
            paths = ["/configz", "/flagz", "/healthz", "/livez", "/metrics", "/readyz"]
            handlers["/statusz"] = Statusz(
                COMPONENT, version=options.version, emulated=show(gates.emulated), paths=paths
            )
        if options.debugging.profiling:
            handlers["/debug/pprof"] = handlers["/debug/pprof/"] = Profiling(lambda: self._loops)
            handlers["/debug/flags/v"] = set_verbosity
        return handlers

    @property
    def _releases(self) -> bool:
        """Whether a clean stop gives the Lease up; an embedder always gets one."""
        return self._on_lost is None or self._options.feature_gates.enabled(RELEASE_GATE)

    def _on_new_leader(self, identity: str) -> None:
        election = self._options.leader_election
        lease = f"{election.resource_namespace}/{election.resource_name}"
        if identity == self._identity:
            self._led = True
            _warn_of_displaced(election)
        elif identity and not self._led:
            log.info(
                "Waiting for a Lease that another holds; to run beside it, choose another Lease and what to run with "
                "--leader-elect-resource-name=kcm and --controllers",
                lease=lease,
                holder=identity,
            )

    def _check_leader(self) -> str | None:
        return None if self._elector is None else self._elector.check(LEADER_TOLERANCE)

    def _check_loop(self) -> str | None:
        age, limit = self._heartbeat.age, self._options.leader_election.renew_deadline
        return None if age < limit else f"the controllers' loop has not moved for {age:.1f} s"

    def _check_synced(self) -> str | None:
        unsynced = [] if self._informers is None else self._informers.unsynced
        return f"caches not filled: {', '.join(unsynced)}" if unsynced else None

    # In the controllers' thread

    async def _lead(self) -> NoReturn:
        """Fill the caches and run the controllers; stop them before the caches."""
        options = self._options
        async with AsyncExitStack() as stack:
            transport = await stack.enter_async_context(open_transport(self._config))
            informer_client = self._client(transport, "shared-informers")
            await _wait_for_api_server(informer_client)
            resync = options.generic.min_resync_period * random.uniform(1.0, 2.0)
            self._informers = SharedInformerFactory(
                informer_client, resync_period=resync, metrics=self.metrics.informers.for_resource
            )
            enabled = []
            for descriptor in DESCRIPTORS:
                if not options.generic.is_enabled(descriptor.name):
                    log.info("Warning: controller is disabled", controller=descriptor.name)
                    continue
                if descriptor.name in self._left_to_others:
                    log.warning("Controller is left to another manager", controller=descriptor.name)
                    continue
                enabled.append((descriptor, await self._build(descriptor, transport, stack)))
            self._controllers = [controller for _, controller in enabled]
            self._server.add_checks(healthz={descriptor.name: _always_well for descriptor, _ in enabled})
            informing = await stack.enter_async_context(asyncio.TaskGroup())
            informing.create_task(self._informers.run(), name="informers")
            async with asyncio.TaskGroup() as controlling:
                for descriptor, controller in enabled:
                    controlling.create_task(self._start(descriptor, controller), name=descriptor.name)
                self._running.set()
                if not enabled:
                    await asyncio.Event().wait()  # there may be others that this Lease keeps from acting
        raise ManagerError("all controllers terminated")

    async def _build(self, descriptor: ControllerDescriptor, transport: Transport, stack: AsyncExitStack) -> Controller:
        client = await self._controller_client(descriptor.client_name, transport, stack)
        broadcaster = await stack.enter_async_context(EventBroadcaster(client))
        if self._informers is None:
            raise AssertionError("controllers are built on informers")
        context = ControllerContext(
            client=client,
            recorder=broadcaster.recorder(descriptor.client_name),
            informers=self._informers,
            features=self._options.feature_gates,
            metrics=self.metrics,
        )
        return descriptor.build(context)

    async def _controller_client(self, name: str, transport: Transport, stack: AsyncExitStack) -> Client:
        """A client for a controller, which speaks as its own service account if the options say so."""
        fence = self._fence if self._elector is not None else None
        if not self._options.generic.use_service_account_credentials:
            return self._client(transport, name, fence=fence)
        credentials = ServiceAccountCredentials(
            self._config,
            self._client(transport, COMPONENT, fence=fence),
            namespace=SERVICE_ACCOUNTS_NAMESPACE,
            name=name,
        )
        try:
            await credentials.ensure_account()
        except (StatusError, TransportError) as error:
            log.error("Error initializing a controller", err=error, controller=name)
            text = f"error building controllers: service account {SERVICE_ACCOUNTS_NAMESPACE}/{name}: {error}"
            raise ManagerError(text) from error
        own = await stack.enter_async_context(Transport(self._config.endpoint(), credentials))
        return self._client(own, f"system:serviceaccount:{SERVICE_ACCOUNTS_NAMESPACE}:{name}", fence=fence)

    def _fence(self) -> None:
        try:
            if self._elector is not None:
                self._elector.fence()
        except FencedError as fenced:
            if self._on_lost is not None:
                self._on_lost(fenced)
            raise

    async def _start(self, descriptor: ControllerDescriptor, controller: Controller) -> None:
        await asyncio.sleep(self._options.generic.controller_start_interval * random.uniform(1.0, 2.0))
        log.info("Controller starting...", v=1, controller=descriptor.name)
        self.metrics.controller_started(descriptor.client_name)
        try:
            await controller.run(descriptor.workers(self._options))
        finally:
            log.info("Controller terminated", v=1, controller=descriptor.name)

    def _client(
        self, transport: Transport, name: str, *, timeout: float = REQUEST_TIMEOUT, fence: Fence | None = None
    ) -> Client:
        generic = self._options.generic
        return Client(
            transport,
            user_agent=user_agent(name),
            qps=generic.kube_api_qps,
            burst=generic.kube_api_burst,
            timeout=timeout,
            fence=fence,
            metrics=self.metrics.rest_client,
        )

    def _refresh_metrics(self) -> None:
        for controller in self._controllers:
            controller.queue.refresh_metrics()


def lease_request_timeout(renew_deadline: float) -> float:
    """Seconds that one request for the Lease may take, so that two fit before the deadline (resourcelock/interface.go)."""
    return max(1.0, renew_deadline / 2)


def open_transport(config: ClientConfig) -> Transport:
    """Connections to the API server of a configuration, as the identity that it names."""
    return Transport(config.endpoint(), ConfigCredentials(config))


def user_agent(name: str) -> str:
    """What a client calls itself (client-go rest/config.go:AddUserAgent), with kcm's version where a commit would stand."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    system = platform.system().lower()
    return f"{COMPONENT}/{KUBERNETES_VERSION} ({system}/{machine}) kubernetes/kcm-{__version__}/{name}"


def _always_well() -> str | None:
    return None


def _warn_of_displaced(election: LeaderElectionOptions) -> None:
    if election.resource_name == LeaderElectionOptions().resource_name:
        log.warning(
            "This process leads under the stock manager's Lease, so nobody runs the controllers that kcm does not have; where "
            "the stock manager should, start kcm with --leader-elect-resource-name=kcm",
            have=",".join(IMPLEMENTED_CONTROLLERS),
        )


def _settle(future: asyncio.Future[Any], error: BaseException | None) -> None:
    if not future.done():
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


async def _never_ends(future: asyncio.Future[NoReturn]) -> NoReturn:
    await future


async def _wait_for_api_server(client: Client) -> None:
    """Ask the API server's health each second (controller-manager app/helper.go:WaitForAPIServer).

    Raises:
        ManagerError: it was not healthy in time.
    """
    problem = "timed out"
    try:
        async with asyncio.timeout(API_SERVER_PATIENCE):
            while True:
                try:
                    await client.request("GET", "/healthz")
                except (StatusError, TransportError) as error:
                    problem = str(error)
                else:
                    return
                await asyncio.sleep(1)
    except TimeoutError:
        text = f"failed to wait for apiserver being healthy: {client.host} does not answer /healthz with 200: {problem}"
        raise ManagerError(text) from None


# The command


def run(options: Options) -> int:
    """Run until a signal, the loss of the Lease, or a failure, and give the exit status.

    Raises:
        ConfigError: there is no usable client configuration.
        ManagerError: it could not start.
    """
    config = load_config(kubeconfig=options.kubeconfig, master=options.master)
    log.info("Starting", version=KUBERNETES_VERSION, kcm=__version__)
    releases = options.feature_gates.enabled(RELEASE_GATE)
    if not releases:
        _die_of_signals()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_main(options, config, stop_on_signals=releases))


async def _main(options: Options, config: ClientConfig, *, stop_on_signals: bool) -> int:
    manager = ControllerManager(options, config=config, on_lost=_end_on_lost_lease)
    stopped = False
    task = asyncio.current_task()
    if stop_on_signals and task is not None:

        def stop() -> None:
            nonlocal stopped
            if stopped:
                _exit(1)
            stopped = True
            _limit_shutdown(options.generic.controller_shutdown_timeout)
            task.cancel()

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        await manager.run()
    except asyncio.CancelledError:
        if not stopped:
            raise
        return 0
    except BaseException as error:  # noqa: BLE001 - whatever it is decides the exit status
        return _status_of(error)


def _limit_shutdown(timeout: float) -> None:
    """End the process if the stop takes longer than this many seconds, 0 for no limit, and tell that it takes long."""
    loop = asyncio.get_running_loop()
    period = timeout / 3 if timeout > 0 else STILL_WAITING_PERIOD

    def tell() -> None:
        log.info("Still waiting for some controllers to terminate...")
        loop.call_later(period, tell)

    def give_up() -> None:
        log.error("Controller shutdown timeout reached", timeout=format_duration(timeout))
        _exit(1)

    loop.call_later(period, tell)
    if timeout > 0:
        loop.call_later(timeout, give_up)


def _status_of(error: BaseException) -> int:
    """Log what ended the manager and give the exit status that it means."""
    causes = list(_leaves(error))
    for cause in causes:
        if isinstance(cause, ManagerError | ServingError | ConfigError):
            raise ManagerError(str(cause)) from cause
        if isinstance(cause, FencedError | LeadershipLostError):
            log.error("leaderelection lost/stopped", err=str(cause))
            return 1
    for cause in causes:
        log.error("Unrecovered failure, the process ends", err=cause, traceback=True)
    return 2


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error


_ending = threading.Lock()


def _end_on_lost_lease(error: BaseException) -> NoReturn:
    _ending.acquire()  # never released: if both threads learn it, the other waits here for the end
    # Nothing may run on without the Lease, so nothing is waited for.
    log.error("leaderelection lost/stopped", err=str(error))
    _exit(1)


def _exit(status: int) -> NoReturn:
    logs.flush()
    sys.stderr.flush()
    os._exit(status)


def _die_of_signals() -> None:
    """Let SIGTERM and SIGINT end the process at once, without releasing the Lease, as the reference does by default."""
    for number in (signal.SIGTERM, signal.SIGINT):
        if os.getpid() == 1:  # for which the kernel has no default action
            signal.signal(number, lambda received, _: _exit(128 + received))
        else:
            signal.signal(number, signal.SIG_DFL)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - an optional extra
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
