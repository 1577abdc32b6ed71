"""The commands of proxy-init as click sees them: help, mistakes told, subcommands."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import click

from proxyinit import __version__, entry
from proxyinit.commands import PflagCommand, PflagOption, read_arguments
from proxyinit.flags import CLEANUP_FLAGS, INSTALL_FLAGS
from proxyinit.pflag import Arguments

_EXAMPLES = """\b
Example, as Linkerd's charts call it:
  proxy-init --incoming-proxy-port 4143 --outgoing-proxy-port 4140 \\
    --proxy-uid 2102 --inbound-ports-to-ignore 4190,4191
"""

LAZY = {
    "explain": "proxyinit.explain.cli:explain_command",
    "verify": "proxyinit.verify.cli:verify_command",
    "watch": "proxyinit.verify.watch_cli:watch_command",
}
"""Commands by where they are: each is imported when it is called or listed."""


class RootCommand(click.Group):
    """proxy-init: installs when called bare, and holds the other commands."""

    def __init__(self) -> None:
        super().__init__(
            "proxy-init",
            params=[PflagOption(flag) for flag in INSTALL_FLAGS],
            help=f"Redirect a pod's traffic to its sidecar proxy.\n\n{_EXAMPLES}",
            invoke_without_command=True,
        )

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, those not imported yet too."""
        return sorted({*super().list_commands(ctx), *LAZY})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        if cmd_name in LAZY:
            module, _, name = LAZY[cmd_name].partition(":")
            found: click.Command = getattr(importlib.import_module(module), name)
            return found
        return super().get_command(ctx, cmd_name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """A first word that names a command goes there; all else is an install."""
        if args and args[0] in self.list_commands(ctx):
            rest: list[str] = super().parse_args(ctx, args)
            return rest
        if args == ["--version"]:
            click.echo(f"proxy-init {__version__}")
            ctx.exit()
        ctx.obj = read_arguments(ctx, args, INSTALL_FLAGS)
        return []

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command named, or install."""
        if ctx.obj is None:
            return super().invoke(ctx)
        return ctx.exit(entry.execute(ctx.obj, entry.run_install))


def _run_cleanup(arguments: Arguments) -> int:
    from proxyinit.cleanup import cleanup  # noqa: PLC0415  (only this command's)

    return entry.execute(arguments, lambda session, _: cleanup(session))


root = RootCommand()
root.add_command(
    PflagCommand(
        "cleanup",
        CLEANUP_FLAGS,
        _run_cleanup,
        "Remove the redirect: our chains and the jumps to them, wherever they are.",
    )
)


def run(argv: Sequence[str]) -> int:
    """Run a command line through click; the exit code."""
    try:
        root.main(args=list(argv), prog_name="proxy-init")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
