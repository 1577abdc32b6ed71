"""What verify found, for people and for programs."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxyinit.output import put
from proxyinit.printable import printable
from proxyinit.verify.checks import FAIL, OK, WARN, Check
from proxyinit.verify.node import Report, exit_code
from proxyinit.verify.readback import flags
from proxyinit.verify.sense import backend_name

_MARKS = {OK: ("ok", "green"), WARN: ("warn", "yellow"), FAIL: ("FAIL", "bold red")}
_VERDICTS = {
    "intercepted": ("ok", "green"),
    "differs": ("FAIL", "bold red"),
    "gone": ("gone", "yellow"),
}
_UNSURE = ("?", "magenta")
_PIPE_WIDTH = 2000
"""Nothing is wrapped or cut where no terminal is; no line is as long."""


def print_one(report: Report) -> None:
    """Every check with a mark; cause and next step where something is wrong."""
    whose = report.identity
    command = f", {whose.command}" if whose.command else ""
    title = printable(f"{whose.name}{command}: {report.verdict}")
    table = _table()
    for check in report.judgement.checks:
        table.add_row(_mark(check), Text(check.name), _said(check))
    shown: list[Text | Table] = [Text(title, "bold"), table]
    live = report.judgement.live
    if live:
        name = backend_name(report.judgement.backend)
        shown.append(Text(f"\nThe rules in {name} are those of:", "dim"))
        shown.append(Text(" \\\n  ".join(["proxy-init", *flags(live)])))
    _print(shown)


def print_all(reports: list[Report], hidden: int, others: int) -> None:
    """One line a namespace, cut where the terminal ends; how many had none."""
    table = _table()
    for _ in range(4):
        table.add_column(no_wrap=True)
    table.add_column()
    for report in reports:
        text, style = _VERDICTS.get(report.verdict, _UNSURE)
        pid = str(report.identity.pid or "")
        backend = report.judgement.backend
        table.add_row(
            Text(text, style),
            Text(printable(report.identity.name)),
            Text(pid),
            Text(backend_name(backend) if backend else ""),
            Text(_in_short(report), no_wrap=True, overflow="ellipsis"),
        )
    here = _counted(len(reports), "namespace", "namespaces")
    text = f"{here} with a redirect or a proxy, {others} without"
    shown: list[Text | Table] = [table, Text(text, "dim")]
    if hidden:
        text = _counted(hidden, "process", "processes")
        text += " may not be looked at: run as root to see them all"
        shown.append(Text(text, "yellow"))
    _print(shown)


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _in_short(report: Report) -> str:
    """The worst that was found, or where connections go."""
    faults = report.faults
    wanted = report.judgement.wanted
    if faults and (faults[0].state != WARN or not wanted):
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        return f"{faults[0].name}: {_on_one_line(faults[0].found)}{more}"
    if not wanted:
        return ""
    ports = f"to {wanted.config.inbound_port} and {wanted.config.outbound_port}"
    return f"{ports}; {_on_one_line(faults[0].found)}" if faults else ports


def _on_one_line(text: str) -> str:
    return printable(" ".join(text.splitlines()))


def _mark(check: Check) -> Text:
    return Text(*_MARKS.get(check.state, _UNSURE))


def _said(check: Check) -> Text:
    text = Text("\n".join(map(printable, check.found.splitlines())))
    if check.advice:
        text.append(f"\n-> {check.advice}", "dim")
    return text


def _table() -> Table:
    return Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))


def _print(shown: list[Text | Table]) -> None:
    """Print without the blanks that fill a table's last column."""
    tty = os.isatty(1)
    page = io.StringIO()
    console = Console(
        file=page,
        force_terminal=tty,
        width=None if tty else _PIPE_WIDTH,
        highlight=False,
        soft_wrap=not tty,
    )
    for part in shown:
        console.print(part)
    put("".join(f"{line.rstrip()}\n" for line in page.getvalue().split("\n")[:-1]))


# === for programs ===


def print_json(reports: list[Report], hidden: int) -> None:
    """Everything that is known, as one JSON document."""
    document = {
        "exit_code": exit_code(reports),
        "hidden_processes": hidden,
        "namespaces": list(map(_namespace, reports)),
    }
    put(f"{json.dumps(document, indent=2)}\n")


def _namespace(report: Report) -> dict[str, Any]:
    whose, judgement = report.identity, report.judgement
    return {
        "name": whose.name,
        "pod": whose.pod,
        "pod_uid": whose.pod_uid,
        "pid": whose.pid,
        "command": whose.command,
        "path": report.target.path,
        "inode": report.target.inode,
        "verdict": report.verdict,
        "backend": judgement.backend,
        "flags": flags(judgement.live) if judgement.live else [],
        "checks": list(_checks(judgement.checks)),
    }


def _checks(checks: tuple[Check, ...]) -> Iterator[dict[str, str]]:
    for check in checks:
        yield {
            "name": check.name,
            "state": check.state,
            "found": check.found,
            "advice": check.advice,
        }
