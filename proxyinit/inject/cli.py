"""The program `proxy-injector` as click sees it; commands are imported when called."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
from typing import Any

import click

from proxyinit import __version__
from proxyinit.commands import usage_error
from proxyinit.errors import ProxyInitError

LAZY = {
    "inject": "proxyinit.inject.inject_cli:inject",
    "uninject": "proxyinit.inject.inject_cli:uninject",
    "serve": "proxyinit.inject.serve_cli:serve",
}
"""Where each command is, as ``module:object``."""

_HELP = """\
Bring the redirect and the identity into pods.

\b
Examples:
  proxy-injector inject deployment.yaml | kubectl apply -f -
  proxy-injector uninject deployment.yaml
  proxy-injector serve
"""


class RootCommand(click.Group):
    """proxy-injector: holds the commands, and tells their errors."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The commands, in the order in which one meets them."""
        return list(LAZY)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Say which commands there are where the first word is none of them."""
        if args and args[0] not in (*LAZY, "--help", "-h", "--version"):
            raise usage_error([_no_command(args)], ctx, "nothing was done")
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command, and say what to install where that fails."""
        if cmd_name not in LAZY:
            return None
        module, _, name = LAZY[cmd_name].partition(":")
        try:
            found = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            package = (error.name or "a package").partition(".")[0]
            raise click.ClickException(
                f"{package} is not installed: the injector comes with an extra, "
                "pip install 'proxyinit[inject]'"
            ) from error
        if not isinstance(found, click.Command):
            raise TypeError(f"{LAZY[cmd_name]} is no command")
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what it can't do is told in one message."""
        try:
            return super().invoke(ctx)
        except ProxyInitError as error:
            raise click.ClickException(str(error)) from error


def _no_command(args: Sequence[str]) -> str:
    later = [word for word in args if word in LAZY]
    if args[0].startswith("-") and later:
        called = f"proxy-injector {later[0]} [flags]"
        return f"command {later[0]!r} has to come first, before {args[0]!r}: {called}"
    close = difflib.get_close_matches(args[0], LAZY, n=1)
    meant = f": did you mean {close[0]}?" if close else ""
    return f"expected a command, one of {', '.join(LAZY)}, got {args[0]!r}{meant}"


@click.command(
    "proxy-injector",
    cls=RootCommand,
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def root() -> None:
    """Do nothing: there is always a command."""


def main(argv: Sequence[str]) -> int:
    """Run a command line; the exit code."""
    try:
        root.main(args=list(argv), prog_name="proxy-injector")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
