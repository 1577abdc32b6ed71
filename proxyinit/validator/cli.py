"""The command as click sees it: help, version, and mistakes told all at once."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from proxyinit import __version__
from proxyinit.commands import PflagCommand
from proxyinit.pflag import Arguments
from proxyinit.validator import entry
from proxyinit.validator.settings import FLAGS, problems, settings

NAME = "network-validator"
_HELP = """\
Prove that this pod's outbound connections are redirected to the proxy.

Listens at the proxy's outbound port, connects to an address that nobody needs to
have, and wants its own random token back. Exits 0 when it comes, 95 when it does
not come in time; then it says what happened instead.

\b
Examples, the second for both IP versions in one run:
  network-validator --listen-addr 0.0.0.0:4140 --connect-addr 192.0.2.2:1404
  network-validator --listen-addr [::]:4140 \\
    --connect-addr 192.0.2.2:1404,[2001:db8::2]:1404
"""


def _run(arguments: Arguments) -> int:
    return entry.execute(settings(arguments, os.environ))


command = PflagCommand(
    NAME,
    FLAGS,
    _run,
    _HELP,
    check=lambda arguments: problems(arguments, os.environ),
    assurance="nothing was tried",
)


def run(argv: Sequence[str]) -> int:
    """Run a command line through click; the exit code."""
    if "-V" in argv or "--version" in argv:
        click.echo(f"{NAME} {__version__}")
        return 0
    try:
        command.main(args=list(argv), prog_name=NAME)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
