"""``python -m proxyinit.demo``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

PROGRAM = Path(sys.executable).with_name("proxy-init")
IDENTITY_PROGRAM = Path(sys.executable).with_name("proxy-identity")


@click.command()
@click.option(
    "--iptables-mode",
    "mode",
    type=click.Choice(["legacy", "nft"]),
    default="legacy",
    show_default=True,
    help="Which iptables proxy-init is to use.",
)
@click.option(
    "--program",
    type=click.Path(path_type=Path),
    default=PROGRAM,
    help="The proxy-init to prove; by default the one installed with this Python.",
)
@click.option(
    "--identity-program",
    type=click.Path(path_type=Path),
    default=IDENTITY_PROGRAM,
    help="The proxy-identity to prove, likewise.",
)
@click.option(
    "--part",
    type=click.Choice(["all", "interception", "examination", "injection", "identity"]),
    default="all",
    show_default=True,
    help="What to show of it.",
)
def demo(mode: str, program: Path, identity_program: Path, part: str) -> None:
    """Show how a pod is intercepted and gets its identity, and prove every claim.

    Needs root. Happens in network namespaces made for it; nothing stays behind.
    Exits with 0 when everything was as it should be, otherwise with 1.
    """
    try:
        from proxyinit.demo.play import play  # noqa: PLC0415  (an extra's libraries)
    except ModuleNotFoundError as error:
        package = (error.name or "a package").partition(".")[0]
        raise click.ClickException(
            f"{package} is not installed: the demo comes with an extra, "
            "pip install 'proxyinit[netns,identity,inject]'"
        ) from error
    programs = str(program.absolute()), str(identity_program.absolute())
    sys.exit(play(mode, *programs, part))


if __name__ == "__main__":
    demo(prog_name="python -m proxyinit.demo")
