"""What was found against what was expected: pure, and loud where they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from proxyinit.backend import family
from proxyinit.demo.expectations import CHAINS, Case, Seen
from proxyinit.errors import ProxyInitError
from proxyinit.iptables_save import render_rule
from proxyinit.rules import OUR_CHAINS, Comment, Rule, Ruleset

if TYPE_CHECKING:
    from proxyinit.lab import Load
    from proxyinit.rules import Version

Found: TypeAlias = Sequence[tuple[Case, Seen]]
"""Connections, and who answered each."""

Tables: TypeAlias = Mapping[str, Ruleset]
"""A pod's nat tables of one IP version, by the kernel interface they are in."""


class NotAsExpected(ProxyInitError):
    """Something that the demo shows did not happen as it should."""


# === connections ===


def require_answers(found: Found, expected: Callable[[Case], Seen]) -> None:
    """Raises `NotAsExpected` that names the first connection with a wrong answer."""
    wrong = [(case, seen) for case, seen in found if seen != expected(case)]
    if not wrong:
        return
    case, seen = wrong[0]
    raise NotAsExpected(
        f"{len(wrong)} of {len(found)} connections went wrong; the first, from the "
        f"{case.caller} to {case.to}: expected {_in_words(expected(case))}, "
        f"found {_in_words(seen)}"
    )


def _in_words(seen: Seen) -> str:
    at = f" at port {seen.port}" if seen.port else ""
    told = f", told of {seen.original}" if seen.original else ""
    return f"{seen.who}{at}{told}"


def past(seen: Load) -> int:
    """How many connections somebody else than the proxy answered."""
    return sum(count for who, count in seen.answers.items() if who != "proxy")


def require_no_slip(seen: Load, *, at_least: int) -> None:
    """Raises `NotAsExpected` unless the proxy answered every one of enough."""
    errors = len(seen.errors)
    if past(seen) or errors:
        raise NotAsExpected(
            f"of {seen.total:,} connections {past(seen):,} went past the proxy and "
            f"{errors:,} failed while proxy-init ran again, expected 0 and 0",
            "\n".join(seen.errors[:1]),
        )
    if seen.total < at_least:
        raise NotAsExpected(
            f"only {seen.total} connections were made while proxy-init ran again, "
            f"expected at least {at_least}: too few to prove anything"
        )


# === rules ===


def require_rules(tables: Tables, version: Version) -> str:
    """The kernel interface that holds exactly `CHAINS`; the other holds nothing.

    Raises `NotAsExpected` with the rules found when none or both have any.
    """
    kinds = [kind for kind, table in tables.items() if lines(table)]
    if len(kinds) != 1:
        raise NotAsExpected(
            f"{family(version)}: expected rules in one of {', '.join(tables)}, "
            f"found them in {' and '.join(kinds) or 'none'}"
        )
    found, wanted = lines(tables[kinds[0]]), _wanted_lines()
    if found != wanted:
        raise NotAsExpected(
            "\n".join([f"{family(version)}: expected these rules:", *wanted]),
            "\n".join(["found:", *found]),
        )
    return kinds[0]


def require_nothing(tables: Tables, version: Version) -> None:
    """Raises `NotAsExpected` when a rule or a chain of ours is left."""
    for kind, table in tables.items():
        left = [f"chain {name}" for name in OUR_CHAINS if table.chain(name)]
        left += lines(table)
        if left:
            raise NotAsExpected(
                f"{family(version)}: expected nothing in {kind} after the cleanup, "
                f"found {', '.join(left)}"
            )


def lines(table: Ruleset) -> list[str]:
    """Every rule of a table without its comment; those of our chains come last."""
    names = [chain.name for chain in table.chains if chain.name not in OUR_CHAINS]
    return [
        f"{name} {_without_comment(rule)}"
        for name in (*names, *OUR_CHAINS)
        for rule in table.rules(name)
    ]


def _without_comment(rule: Rule) -> str:
    matches = tuple(m for m in rule.matches if not isinstance(m, Comment))
    return render_rule(Rule(matches, rule.verdict))


def _wanted_lines() -> list[str]:
    jumps = [f"{wanted.builtin} -j {wanted.name}" for wanted in CHAINS]
    rules = [f"{wanted.name} {line.text}" for wanted in CHAINS for line in wanted.lines]
    return [*jumps, *rules]
