"""The tables of the chapters: how they look, not what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cryptography.x509 import Certificate
from rich.table import Table
from rich.text import Text

from proxyinit.backend import ALL_VERSIONS, family
from proxyinit.demo.checks import Found, common_name, past
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

if TYPE_CHECKING:
    from identity.testing.peers import Meeting

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


def authorities(certificates: Sequence[Certificate]) -> Table:
    """Who signs for whom, and for how long."""
    heading = ("authority", "signed by", "valid until")
    return grid([_authority(found) for found in certificates], heading=heading)


def _authority(found: Certificate) -> tuple[str, str, str]:
    who, by = common_name(found.subject), common_name(found.issuer)
    return who, "itself" if by == who else by, f"{found.not_valid_after_utc:%F}"


def meeting(met: Meeting, names: tuple[str, str]) -> Table:
    """What each of two workloads knows of the other."""
    client, server = names
    return grid(
        [(client, "meets", met.server.name), (server, "meets", met.client.name)]
    )


def renewals(found: Sequence[tuple[str, Certificate, Certificate]]) -> Table:
    """Certificates before and after, by workload."""
    rows = [
        (who, when, f"{certificate.serial_number:032x}", _time(certificate))
        for who, old, new in found
        for when, certificate in (("before", old), ("after", new))
    ]
    return grid(rows, heading=("", "", "serial", "valid until"))


def _time(certificate: Certificate) -> str:
    return f"{certificate.not_valid_after_utc:%T} UTC"
