"""Commands whose flags `proxyinit.pflag` reads: help pages and mistakes through click.

Flags are declared as `pflag.Flag`, one way of spelling for every command; click
knows them for its help pages and prints what is wrong, all mistakes at once.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import click

from proxyinit import entry
from proxyinit.errors import ProxyInitError
from proxyinit.pflag import Arguments, Flag, parse

Check: TypeAlias = Callable[[Arguments], Iterable[str]]
"""Everything wrong with arguments, their own `problems` included."""

CHANGED = "nothing was changed"
LOOKED_AT = "nothing was looked at"


class PflagOption(click.Option):
    """A flag, for help pages only."""

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
    """A command whose arguments `proxyinit.pflag.parse` reads.

    `run` gets arguments that `check` finds nothing wrong with, and returns the exit
    code; a `ProxyInitError` that it lets out is printed and means 1. `assurance` is
    what people are told of a command line with mistakes.
    """

    def __init__(  # noqa: PLR0913  (what a command is made of)
        self,
        name: str,
        flags: tuple[Flag, ...],
        run: Callable[[Arguments], int],
        help_text: str,
        *,
        check: Check = entry.problems,
        assurance: str = CHANGED,
    ) -> None:
        super().__init__(
            name, params=[PflagOption(flag) for flag in flags], help=help_text
        )
        self._flags = flags
        self._run = run
        self._check = check
        self._assurance = assurance

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; every mistake is in the one error raised."""
        ctx.obj = read_arguments(
            ctx, args, self._flags, check=self._check, assurance=self._assurance
        )
        return []

    def invoke(self, ctx: click.Context) -> Any:
        """Run; the exit code is click's to pass on."""
        try:
            ctx.exit(self._run(ctx.obj))
        except ProxyInitError as error:
            raise click.ClickException(str(error)) from error


def read_arguments(
    ctx: click.Context,
    args: list[str],
    flags: tuple[Flag, ...],
    *,
    check: Check = entry.problems,
    assurance: str = CHANGED,
) -> Arguments:
    """Arguments without mistakes; otherwise help, or an error that lists them all."""
    arguments = parse(args, flags)
    if arguments.help:
        click.echo(ctx.get_help())
        ctx.exit()
    mistakes = [_suggest(problem, flags) for problem in check(arguments)]
    mistakes += [_stray(word, ctx, flags) for word in arguments.words]
    if mistakes:
        raise usage_error(mistakes, ctx, assurance)
    return arguments


def usage_error(
    mistakes: Sequence[str], ctx: click.Context | None = None, assurance: str = CHANGED
) -> click.UsageError:
    """The error that tells of all mistakes of a command line; exit code 2."""
    count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    lines = "".join(f"\n  {mistake}" for mistake in mistakes)
    return click.UsageError(f"{count}, {assurance}:{lines}", ctx)


def _suggest(problem: str, flags: Sequence[Flag]) -> str:
    if not problem.startswith("unknown flag --"):
        return problem
    typed = problem.removeprefix("unknown flag --")
    close = difflib.get_close_matches(typed, [flag.name for flag in flags], n=1)
    return f"{problem}: did you mean --{close[0]}?" if close else problem


def _stray(word: str, ctx: click.Context, flags: Sequence[Flag]) -> str:
    command = ctx.command
    if isinstance(command, click.Group) and word in command.list_commands(ctx):
        return f"command {word!r} has to come first: {command.name} {word} [flags]"
    if word.lower() in ("true", "false"):
        names = ", ".join(f"--{f.name}={word}" for f in flags if f.is_bool)
        return f"unexpected word {word!r}: values of switches need '=', as in {names}"
    return f"unexpected word {word!r}: expected flags only"
