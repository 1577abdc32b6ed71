"""The commands as click sees them: help, mistakes told to people, subcommands.

Flags are declared in `proxyinit.flags` and read by `proxyinit.pflag`, for every
command; click knows them for its help pages and prints what is wrong.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import click

from proxyinit import __version__, entry
from proxyinit.cleanup import cleanup
from proxyinit.flags import CLEANUP_FLAGS, INSTALL_FLAGS
from proxyinit.pflag import Arguments, Flag, parse
from proxyinit.session import Session

Action: TypeAlias = Callable[[Session, Arguments], object]

_EXAMPLES = """\b
Example, as Linkerd's charts call it:
  proxy-init --incoming-proxy-port 4143 --outgoing-proxy-port 4140 \\
    --proxy-uid 2102 --inbound-ports-to-ignore 4190,4191
"""


class PflagOption(click.Option):
    """A flag of `proxyinit.flags`, for help pages only."""

    def __init__(self, flag: Flag) -> None:
        names = [f"--{flag.name}", *([f"-{flag.short}"] if flag.short else [])]
        super().__init__(
            names,
            help=flag.help,
            metavar="" if flag.is_bool else flag.metavar,
            default=None,
            expose_value=False,
        )
        self._flag = flag

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:  # noqa: ARG002
        """Spelling and text, in the order short, long, value."""
        flag = self._flag
        short = f"-{flag.short}, " if flag.short else ""
        value = "[=true|false]" if flag.is_bool else f" {flag.metavar}"
        default = str(flag.default).lower() if flag.is_bool else flag.default
        shown = "" if default in (None, 0, "false") else f"  [default: {default}]"
        return f"{short}--{flag.name}{value}", f"{flag.help}{shown}"


class PflagCommand(click.Command):
    """A command whose arguments `proxyinit.pflag.parse` reads."""

    def __init__(
        self, name: str, flags: tuple[Flag, ...], action: Action, help_text: str
    ) -> None:
        super().__init__(
            name,
            params=[PflagOption(flag) for flag in flags],
            callback=None,
            help=help_text,
        )
        self._flags = flags
        self._action = action

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; every mistake is in the one error raised."""
        ctx.obj = read_arguments(ctx, args, self._flags)
        return []

    def invoke(self, ctx: click.Context) -> Any:
        """Run the action; the exit code is click's to pass on."""
        ctx.exit(entry.execute(ctx.obj, self._action))


class RootCommand(click.Group):
    """proxy-init: installs when called bare, and holds the other commands."""

    def __init__(self) -> None:
        super().__init__(
            "proxy-init",
            params=[PflagOption(flag) for flag in INSTALL_FLAGS],
            help=f"Redirect a pod's traffic to its sidecar proxy.\n\n{_EXAMPLES}",
            invoke_without_command=True,
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """A first word that names a command goes there; all else is an install."""
        if args and args[0] in self.commands:
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


def read_arguments(
    ctx: click.Context, args: list[str], flags: tuple[Flag, ...]
) -> Arguments:
    """Arguments without mistakes; otherwise help, or an error that lists them all."""
    arguments = parse(args, flags)
    if arguments.help:
        click.echo(ctx.get_help())
        ctx.exit()
    mistakes = [_suggest(problem, flags) for problem in entry.problems(arguments)]
    mistakes += [_stray(word, ctx.command, flags) for word in arguments.words]
    if mistakes:
        count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        lines = "".join(f"\n  {mistake}" for mistake in mistakes)
        raise click.UsageError(f"{count}, nothing was changed:{lines}", ctx)
    return arguments


def _suggest(problem: str, flags: Sequence[Flag]) -> str:
    if not problem.startswith("unknown flag --"):
        return problem
    typed = problem.removeprefix("unknown flag --")
    close = difflib.get_close_matches(typed, [flag.name for flag in flags], n=1)
    return f"{problem}: did you mean --{close[0]}?" if close else problem


def _stray(word: str, command: click.Command, flags: Sequence[Flag]) -> str:
    if isinstance(command, click.Group) and word in command.commands:
        return f"command {word!r} has to come first: {command.name} {word} [flags]"
    if word.lower() in ("true", "false"):
        names = ", ".join(f"--{f.name}={word}" for f in flags if f.is_bool)
        return f"unexpected word {word!r}: values of switches need '=', as in {names}"
    return f"unexpected word {word!r}: expected flags only"


def _run_cleanup(session: Session, arguments: Arguments) -> None:  # noqa: ARG001
    cleanup(session)


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
