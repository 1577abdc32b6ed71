"""``proxy-init explain``: a question on the command line, an answer for people."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from proxyinit import entry
from proxyinit.errors import ProxyInitError
from proxyinit.explain import explain
from proxyinit.explain_flags import (
    EXPLAIN_FLAGS,
    NO_DIRECTION,
    Undirected,
    problems,
    quiet,
)
from proxyinit.explain_show import as_json, lines, text
from proxyinit.explain_source import source
from proxyinit.pflag import Arguments, parse
from proxyinit.trace import Explanation

_HELP = """\
Follow one packet through the rules, one by one, and say what becomes of it.

\b
Examples:
  proxy-init explain --from 10.0.0.5 --to 10.0.0.7:8080 --pid 4711
  proxy-init explain --from 10.0.0.7 --to 10.9.0.1:443 --uid 1000 \\
    --incoming-proxy-port 4143 --outgoing-proxy-port 4140 --proxy-uid 2102
  iptables-save | proxy-init explain --dump - --inbound \\
    --from 10.0.0.5 --to 10.0.0.7:8080

Through the rules that flags of an install would make, or those in a dump, or else
those of a namespace as they are. Exit codes: 0 answered, 1 undecided, 2 mistakes.
"""


class ExplainCommand(click.Command):
    """The command; its flags are read as those of an install are."""

    def __init__(self) -> None:
        super().__init__("explain", help=_HELP)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The flags, for the help page."""
        from proxyinit.cli import PflagOption  # noqa: PLC0415  (it imports this module)

        options = [PflagOption(flag) for flag in EXPLAIN_FLAGS]
        return [*options, *super().get_params(ctx)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; every mistake is in the one error raised."""
        from proxyinit.cli import _stray, _suggest  # noqa: PLC0415  (as above)

        arguments = parse(args, EXPLAIN_FLAGS)
        if arguments.help:
            click.echo(ctx.get_help())
            ctx.exit()
        namespace = entry.problems(_only_namespace(arguments))
        mistakes = [*arguments.problems, *problems(arguments), *namespace]
        mistakes = [_suggest(mistake, EXPLAIN_FLAGS) for mistake in mistakes]
        mistakes += [_stray(word, self, EXPLAIN_FLAGS) for word in arguments.words]
        _refuse(mistakes, ctx)
        ctx.obj = arguments
        return []

    def invoke(self, ctx: click.Context) -> Any:
        """Answer; the exit code is click's to pass on."""
        arguments: Arguments = ctx.obj
        try:
            explanation = _answer(ctx, arguments)
        except ProxyInitError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(1)
        _show(explanation, str(arguments.values["format"]))
        ctx.exit(0 if explanation.decided else 1)


def _only_namespace(arguments: Arguments) -> Arguments:
    """What is left to be checked: the namespace that is named, if one is."""
    plain = quiet(arguments)
    values = {
        name: value
        for name, value in plain.values.items()
        if name not in ("incoming-proxy-port", "outgoing-proxy-port")
    }
    names = {"netns", "pid"} & arguments.given.keys()
    given = {name: arguments.given[name] for name in names}
    return Arguments(values, given, (), (), help=False)


def _refuse(mistakes: list[str], ctx: click.Context) -> None:
    if mistakes:
        count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        listed = "".join(f"\n  {mistake}" for mistake in dict.fromkeys(mistakes))
        raise click.UsageError(f"{count}:{listed}", ctx)


def _answer(ctx: click.Context, arguments: Arguments) -> Explanation:
    rules = source(arguments)
    packet = Undirected(arguments).packet(rules.own)
    if packet is None:
        _refuse([NO_DIRECTION], ctx)
        raise AssertionError  # _refuse has raised
    explanation = explain(rules.tables, packet)
    return explanation.but_for(rules.unread)


# === output ===


def _show(explanation: Explanation, form: str) -> None:
    if form == "json":
        _print(json.dumps(as_json(explanation), indent=2) + "\n")
    elif sys.stdout.isatty() and _show_coloured(explanation):
        return
    else:
        _print(text(explanation))


def _print(shown: str) -> None:
    try:
        sys.stdout.write(shown.encode("utf-8", "replace").decode())
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None  # nothing to flush at the end


def _show_coloured(explanation: Explanation) -> bool:
    """Print for a terminal; False when `rich` is not installed."""
    try:
        from rich.console import Console  # noqa: PLC0415  (40 ms, and optional)
        from rich.text import Text  # noqa: PLC0415
    except ImportError:
        return False
    console = Console(highlight=False, soft_wrap=True)
    for line in lines(explanation):
        mark, style = _STYLES[line.kind]
        row = Text("  " * line.depth)
        row.append(mark + line.text, style)
        if line.why:
            row.append(f"  {line.why}", "dim italic")
        console.print(row)
    return True


_STYLES: dict[str, tuple[str, str]] = {
    "title": ("", "bold"),
    "chain": ("", "bold cyan"),
    "yes": ("✓ ", "green"),
    "no": ("✗ ", "dim"),
    "open": ("? ", "yellow"),
    "end": ("→ ", "cyan"),
    "fork": ("? ", "yellow"),
    "note": ("! ", "yellow"),
    "answer": ("", "bold"),
}

explain_command = ExplainCommand()
