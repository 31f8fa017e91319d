"""`python -m kcm.testing build`: have the servers of the test control plane ready."""

import click

from kcm.testing import binaries


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """The test control plane of kcm."""


@main.command()
@click.argument("names", nargs=-1, type=click.Choice(list(binaries.BINARIES)), metavar="[NAME]...")
def build(names: tuple[str, ...]) -> None:
    """Build what is missing of NAME..., by default of everything.

    The names are etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and kwok.
    """
    try:
        binaries.build(names or tuple(binaries.BINARIES), report=click.echo)
    except binaries.BinariesError as failure:
        raise click.ClickException(str(failure)) from failure


if __name__ == "__main__":
    main(prog_name="python -m kcm.testing")
