"""The command `kcm`: flags become `Options`, and a runner runs them.

Follows cmd/kube-controller-manager/app/controllermanager.go:NewControllerManagerCommand and component-base cli/run.go. In
order: all flags are read, feature gates are set, --version prints and leaves, logging is set up, the flags are logged, the
options are validated, the manager runs. A command line that cannot be read is told in plain words with the usage; whatever
goes wrong after that is one line `"command failed" err="…"` of the log. Both end with status 1.
"""

import asyncio
import platform
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import click
from click.shell_completion import get_completion_class

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
the one that holds the Lease acts.

kcm check [flags] tells whether it could work with these flags, and whose work it would take over;
kcm completion bash|zsh|fish prints what makes a shell complete the flags."""

CHECK_DESCRIPTION = """\
kcm check tells whether kcm could work with these flags: it reaches the API server, asks for every verb that the chosen
controllers use whether it is allowed, compares clocks, and looks who holds the Lease and what would be left to nobody if kcm
took it. It writes nothing; the status is 1 if anything failed."""


class CommandError(Exception):
    """The manager could not start or go on; the text is all that there is to say."""


def build_command(runner: Runner, *, name: str = "kcm", description: str = DESCRIPTION) -> FlagCommand:
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

    command = FlagCommand(name, FLAGS, callback, description)
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
    if options.feature_gates.enabled("CoordinatedLeaderElection"):
        log.warning(
            "kcm has no coordinated election: it competes for the Lease as without the gate CoordinatedLeaderElection"
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


def _run_check(options: Options) -> int:
    from kcm.api.config import load_config  # noqa: PLC0415 - as above
    from kcm.api.errors import ConfigError  # noqa: PLC0415
    from kcm.check import check, table  # noqa: PLC0415

    try:
        config = load_config(kubeconfig=options.kubeconfig, master=options.master)
    except ConfigError as error:
        raise CommandError(str(error)) from error
    findings = asyncio.run(check(options, config))
    click.echo(table(findings), nl=False)
    return 1 if any(finding.result == "failed" for finding in findings) else 0


def completion(command: click.Command) -> click.Command:
    """`kcm completion SHELL`, which prints what makes a shell complete the flags of `command`."""

    def print_script(shell: str) -> None:
        kind = get_completion_class(shell)
        if kind is None:
            raise AssertionError("click.Choice has checked it")
        script = kind(command, {}, "kcm", "_KCM_COMPLETE")
        click.echo(script.source_template % script.source_vars(), nl=False)

    return click.Command(
        "kcm completion",
        params=[click.Argument(["shell"], type=click.Choice(["bash", "zsh", "fish"]))],
        callback=print_script,
        help="Print a script that makes a shell complete kcm's flags: source <(kcm completion bash)",
    )


def main() -> NoReturn:
    """The console script: runs the command with the process's arguments and exits."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # An interrupt ends the process as in the reference, not with a traceback; `run` decides for itself what it does.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    command, arguments = build_command(_run_manager), sys.argv[1:]
    if arguments[:1] == ["check"]:
        build_command(_run_check, name="kcm check", description=CHECK_DESCRIPTION).main(
            arguments[1:], prog_name="kcm check"
        )
    if arguments[:1] == ["completion"]:
        completion(command).main(arguments[1:], prog_name="kcm completion")
    command.main(arguments, prog_name="kcm")
    raise AssertionError("click exits")
