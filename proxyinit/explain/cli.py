"""``proxy-init explain``: a question on the command line, an answer for people."""

from __future__ import annotations

import json
import os

import click

from proxyinit import entry
from proxyinit.commands import LOOKED_AT, PflagCommand, usage_error
from proxyinit.explain.flags import EXPLAIN_FLAGS, Undirected, quiet
from proxyinit.explain.mistakes import NO_DIRECTION, problems
from proxyinit.explain.show import as_json, lines, text
from proxyinit.explain.source import source
from proxyinit.explain.tables import explain
from proxyinit.explain.trace import Explanation
from proxyinit.output import put
from proxyinit.pflag import Arguments

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


def _mistakes(arguments: Arguments) -> list[str]:
    """Everything wrong with the arguments, in the order of a reader's interest."""
    values = dict(quiet(arguments).values)
    for name in ("incoming-proxy-port", "outgoing-proxy-port"):
        values.pop(name, None)  # `problems` has asked for them
    names = {"netns", "pid"} & arguments.given.keys()
    given = {name: arguments.given[name] for name in names}
    namespace = entry.problems(Arguments(values, given, (), (), help=False))
    found = (*arguments.problems, *problems(arguments), *namespace)
    return list(dict.fromkeys(found))


def _run(arguments: Arguments) -> int:
    rules = source(arguments)
    packet = Undirected(arguments).packet(rules.own)
    if packet is None:
        raise usage_error([NO_DIRECTION], click.get_current_context(), LOOKED_AT)
    explanation = explain(rules.tables, packet).but_for(rules.unread)
    _show(explanation, str(arguments.values["format"]))
    return 0 if explanation.decided else 1


# === output ===


def _show(explanation: Explanation, form: str) -> None:
    if form == "json":
        put(json.dumps(as_json(explanation), indent=2) + "\n")
    elif os.isatty(1) and _show_coloured(explanation):
        return
    else:
        put(text(explanation))


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

explain_command = PflagCommand(
    "explain",
    EXPLAIN_FLAGS,
    _run,
    _HELP,
    check=_mistakes,
    assurance=LOOKED_AT,
)
