"""``make bench``: measure, print a table, and put it into the README."""

from __future__ import annotations

import datetime as dt
import os
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))

import certification
import containers
import explain
import injection
import interception
import manifests
import validator
import verify

MODULES = (
    interception,
    verify,
    explain,
    validator,
    certification,
    injection,
    manifests,
    containers,
)
"""What is measured, each with its `rows`, in the order of the table."""

README = Path(__file__).parents[2] / "README.md"
START, END = "<!-- bench -->", "<!-- /bench -->"


def main() -> int:
    """Measure all; 1 when a target is missed."""
    console = Console()
    table = Table("what", "measured", "target", "")
    rows = []
    for row in chain.from_iterable(module.rows() for module in MODULES):
        console.print(f"measured: {row.what}", style="dim")
        rows.append(row)
        table.add_row(row.what, row.figure, row.target, _mark(row))
    console.print(table)
    write_readme(rows)
    return 0 if all(row.met is not False for row in rows) else 1


def _mark(row: interception.Row) -> str:
    return "" if row.met is None else ("ok" if row.met else "missed")


def write_readme(rows: Sequence[interception.Row]) -> None:
    """Replace the table between the marks in the README."""
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    if not after:
        raise SystemExit(f"{README} has no {START} ... {END} to write to")
    cores, gib = os.cpu_count(), _memory_gib()
    today = dt.datetime.now(tz=dt.UTC).date()
    lines = ["| what | measured | target |", "|---|---|---|"]
    lines += [f"| {r.what} | {r.figure} | {r.target} |" for r in rows]
    heading = f"Measured on {today} by `make bench`: {cores} cores, {gib:.0f} GiB."
    body = "\n".join([START, heading, "", *lines, END])
    README.write_text(before + body + after, encoding="utf-8")


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


if __name__ == "__main__":
    sys.exit(main())
