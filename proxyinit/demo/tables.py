"""The tables of the chapters on interception: how they look, not what is in them."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from proxyinit.backend import ALL_VERSIONS, family
from proxyinit.demo.checks import Found, past
from proxyinit.demo.expectations import (
    APP_PORT,
    CHAINS,
    IGNORED_PORT,
    PROXY_IN,
    PROXY_OUT,
    WEB_PORT,
    Case,
    ChainLines,
    Seen,
)
from proxyinit.demo.narrator import grid
from proxyinit.demo.stage import APP_UID
from proxyinit.lab import CLIENT, POD, PROXY_UID, WORLD, Load

_MEANING_WIDTH = max(len(line.meaning) for wanted in CHAINS for line in wanted.lines)


def scene() -> Table:
    """Who is where."""
    people = (
        ("client", "client", CLIENT, "", ()),
        ("world", "client", WORLD, "", (WEB_PORT, IGNORED_PORT)),
        ("app", "pod", POD, str(APP_UID), (APP_PORT, IGNORED_PORT)),
        ("proxy", "pod", POD, str(PROXY_UID), (PROXY_IN, PROXY_OUT)),
    )
    return grid(
        [
            (
                who,
                where,
                *(addresses[version] for version in ALL_VERSIONS),
                user,
                ", ".join(map(str, ports)),
            )
            for who, where, addresses, user, ports in people
        ],
        heading=("who", "namespace", *map(family, ALL_VERSIONS), "user", "listens on"),
    )


def answers(found: Found) -> Table:
    """Who answered each connection, before and after; callers stand apart."""
    heading = ("from", "to", "before", "after", "original destination")
    rows: list[tuple[str | Text, ...]] = []
    callers = ""
    for case, seen in found:
        if callers and case.caller != callers:
            rows.append(("",) * len(heading))
        callers = case.caller
        ends = case.caller, str(case.to), str(case.before)
        rows.append((*ends, *_outcome(case, seen)))
    return grid(rows, heading=heading)


def _outcome(case: Case, seen: Seen) -> tuple[Text, Text]:
    """Who answered, and what it was told or why it was told nothing."""
    if seen != case.after:
        return Text(str(seen), "bold red"), Text(f"expected {case.after}", "red")
    if case.exempt:
        return Text(str(seen)), Text(f"({case.exempt})", "dim")
    return Text(str(seen), "green"), Text(str(seen.original))


def chain(wanted: ChainLines) -> Table:
    """The rules of one chain, each with its meaning in front."""
    table = grid((Text(line.meaning, "dim"), line.text) for line in wanted.lines)
    table.columns[0].min_width = _MEANING_WIDTH
    table.title = Text.assemble(
        (wanted.title, "bold"), f": {wanted.builtin} jumps to {wanted.name}"
    )
    table.title_justify, table.title_style = "left", ""
    return table


def counts(mine: Load, peer: Load) -> Table:
    """How many connections were made during re-runs, and who answered them."""
    rows = [
        (
            title,
            f"{seen.total:,}",
            f"{seen.answers.get('proxy', 0):,}",
            _zero_wanted(past(seen)),
            _zero_wanted(len(seen.errors)),
        )
        for title, seen in (("proxy-init", mine), ("one command a rule", peer))
    ]
    heading = ("", "connections", "by the proxy", "past it", "errors")
    table = grid(rows, heading=heading)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _zero_wanted(number: int) -> Text:
    return Text(f"{number:,}", "bold red" if number else "bold green")
