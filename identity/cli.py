"""The commands as click sees them: options, help, and one place for errors.

Commands live in modules of their own and are imported when they are called: who
asks for `show` does not wait for gRPC.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import click

from identity.bootstrap import PROXY
from identity.errors import IdentityError, Misconfigured
from identity.variables import DIRECTORY, LOCAL_NAME
from proxyinit import __version__

LAZY = {
    "certify": "identity.client_cli:certify",
    "run": "identity.client_cli:run",
    "show": "identity.show_cli:show",
    "ca": "identity.ca_cli:ca",
    "issuer": "identity.issuer.cli:issuer",
}
"""Where each command is, as ``module:object``."""

_HELP = f"""\
Give a workload its identity: a key, a CSR, a certificate that stays fresh.

Without a command: write key.p8 and csr.der for the name in {LOCAL_NAME} into the
directory in {DIRECTORY}, then become the proxy.

\b
Examples:
  proxy-identity
  proxy-identity --proxy /usr/bin/env -- printenv
  proxy-identity run --exec 'nginx -s reload'
"""


class RootCommand(click.Group):
    """proxy-identity: the bootstrap when called bare; otherwise a command."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The commands, in the order in which one meets them."""
        return list(LAZY)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        if cmd_name not in LAZY:
            return None
        module, _, name = LAZY[cmd_name].partition(":")
        found = getattr(importlib.import_module(module), name)
        if not isinstance(found, click.Command):
            raise TypeError(f"{LAZY[cmd_name]} is no command")
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what it can't do is told in one message."""
        try:
            return super().invoke(ctx)
        except Misconfigured as error:
            raise click.UsageError(str(error), ctx) from error
        except IdentityError as error:
            raise click.ClickException(str(error)) from error


@click.command(
    "proxy-identity",
    cls=RootCommand,
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.option(
    "--proxy",
    metavar="PATH",
    default=PROXY,
    show_default=True,
    help="Program to become after the bootstrap; its arguments follow '--'.",
)
def root(proxy: str) -> None:
    """Become nothing: --proxy is read by the bootstrap, which has no command."""
    if proxy != PROXY:
        raise click.UsageError("--proxy belongs to the bootstrap, without a command")


def run(argv: Sequence[str]) -> int:
    """Run a command line through click; the exit code."""
    try:
        root.main(args=list(argv), prog_name="proxy-identity")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
