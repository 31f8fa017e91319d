"""The command `kcm`: flags become `Options`, and a runner runs them.

Follows cmd/kube-controller-manager/app/controllermanager.go:NewControllerManagerCommand and component-base cli/run.go. In
order: all flags are read, feature gates are set, --version prints and leaves, logging is set up, the flags are logged, the
options are validated, the manager runs. A command line that cannot be read is told in plain words with the usage; whatever
goes wrong after that is one line `"command failed" err="…"` of the log. Both end with status 1.
"""

import platform
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import click

from kcm import KUBERNETES_VERSION, __version__, logs
from kcm.command_line import FLAGS, options_from_flags
from kcm.features import aggregate, before
from kcm.flags import FlagCommand
from kcm.gotext import quote
from kcm.options import IMPLEMENTED_CONTROLLERS, Options, resolve_aliases

#: Runs until the end and gives the exit status; `CommandError` is for failures that one line explains.
Runner = Callable[[Options], int]

log = logs.get_logger(__name__)

DESCRIPTION = """\
kcm runs Kubernetes' workload controllers against an API server: it keeps Deployments
and ReplicaSets rolled out and their pods at the wanted number, as the workload part of
kube-controller-manager does, and takes that manager's flags. Of several replicas only
the one that holds the Lease acts."""


class CommandError(Exception):
    """The manager could not start or go on; the text is all that there is to say."""


def build_command(runner: Runner) -> FlagCommand:
    """The click command. `runner` gets valid options; the process's exit status is what it returns."""

    def callback(**values: Any) -> NoReturn:
        try:
            status = _execute(command, values, runner)
        except CommandError as error:
            log.error("command failed", err=str(error))
            status = 1
        except Exception as error:  # noqa: BLE001 - whatever it is, it is logged in the chosen format
            log.error("Unrecovered failure, the process ends", err=error, traceback=True)
            status = 2
        logs.flush()
        click.get_current_context().exit(status)

    command = FlagCommand("kcm", FLAGS, callback, DESCRIPTION)
    return command


def _execute(command: FlagCommand, values: Mapping[str, Any], runner: Runner) -> int:
    try:
        options = options_from_flags(values)
    except ValueError as error:
        raise CommandError(str(error)) from error
    if values["version"] in {"true", "raw"}:
        click.echo(_raw_version(options) if values["version"] == "raw" else f"Kubernetes {KUBERNETES_VERSION}")
        return 0
    _check(options.logging.validate(alpha=options.feature_gates.enabled("LoggingAlphaOptions")))
    logs.configure(
        format="json" if options.logging.format == "json" else "text",
        verbosity=options.logging.verbosity,
        vmodule=options.logging.vmodule,
        split=options.logging.split_stream,
    )
    options.feature_gates.log_settings()
    for line in command.describe(values):
        log.plain(line, v=1)
    _check(options.validate())
    # Whom `*` leaves without a manager is said by the one that leads, for whether it matters depends on the Lease.
    named = resolve_aliases(options.generic.controllers)
    if missing := [name for name in options.generic.missing_controllers() if name in named]:
        log.warning(
            "Controllers are asked for that kcm does not have", controllers=missing, have=IMPLEMENTED_CONTROLLERS
        )
    if options.foreign.values:
        names = [f"--{name}" for name in sorted(options.foreign.values)]
        log.warning("Flags of controllers that kcm does not have are without effect", flags=names)
    return runner(options)


def _check(errors: Sequence[str]) -> None:
    if errors:
        raise CommandError(aggregate(errors))


def _raw_version(options: Options) -> str:
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    emulated = options.feature_gates.emulated
    compatible = options.feature_gates.min_compatibility or before(emulated)
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    fields = {
        "Major": major,
        "Minor": minor,
        "EmulationMajor": str(emulated[0]),
        "EmulationMinor": str(emulated[1]),
        "MinCompatibilityMajor": str(compatible[0]),
        "MinCompatibilityMinor": str(compatible[1]),
        "GitVersion": KUBERNETES_VERSION,
        "GitCommit": "",
        "GitTreeState": "",
        "BuildDate": "1970-01-01T00:00:00Z",
        "GoVersion": "",
        "Compiler": f"kcm {__version__}, {platform.python_implementation()} {platform.python_version()}",
        "Platform": f"{platform.system().lower()}/{machine}",
    }
    return f"version.Info{{{', '.join(f'{name}:{quote(value)}' for name, value in fields.items())}}}"


def _run_manager(options: Options) -> int:
    # --help, --version and a wrong flag must not wait for all of this to be imported.
    from kcm.api.errors import ConfigError  # noqa: PLC0415
    from kcm.controllermanager import ManagerError, run  # noqa: PLC0415

    try:
        return run(options)
    except (ConfigError, ManagerError, OSError) as error:
        raise CommandError(logs.describe(error)) from error


def main() -> NoReturn:
    """The console script: runs the command with the process's arguments and exits."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # An interrupt ends the process as in the reference, not with a traceback; `run` decides for itself what it does.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    build_command(_run_manager).main(prog_name="kcm")
    raise AssertionError("click exits")
