"""Where a packet goes: followed through every nat table there is. Pure.

Where something decides that can't be known, the way forks and both ways are
walked, so no answer is a guess; ways that fare the same are one outcome in the end.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from proxyinit.explain.packet import Mark, Packet
from proxyinit.explain.trace import (
    End,
    Explanation,
    Outcome,
    Passage,
    Trace,
    distinct,
)
from proxyinit.explain.view import View
from proxyinit.explain.walk import Walk
from proxyinit.rules import INET, Chain, Ruleset


def explain(tables: Sequence[tuple[str, Ruleset]], packet: Packet) -> Explanation:
    """What the tables, each with its name, do to a packet.

    Of tables hooked in at one priority, such as those of both iptables, nothing tells
    which the kernel asks first; it is undecided where that makes a difference.
    """
    asked = [(n, t) for n, t in tables if t.version in (INET, packet.version)]
    premises: dict[str, None] = {}
    passages = tuple(
        Passage(name, table.version, follow(table, packet, premises), is_native(table))
        for name, table in asked
    )
    rulesets = [table for _, table in asked]
    orders = list(itertools.islice(_orders(rulesets, passages, packet), MAX_ORDERS + 1))
    ends = [_in_order(order, rulesets, passages, packet) for order in orders]
    doubts = [reason for p in passages for reason in p.trace.reasons()]
    if len({frozenset(some) for some in ends}) > 1 or len(orders) > MAX_ORDERS:
        names = " and ".join(asked[n][0] for n in sorted(orders[0]))
        doubts.append(f"nothing tells which of {names} the kernel asks first")
        if len(orders) > MAX_ORDERS:  # not all of them were tried
            ends.append((Outcome(kind="unknown", why=doubts[-1]),))
    outcomes = distinct(itertools.chain.from_iterable(ends))
    doubts += [o.why for o in outcomes if o.kind == "unknown"]
    return Explanation(
        packet=packet,
        passages=passages,
        outcomes=outcomes,
        premises=tuple(premises),
        doubts=tuple(dict.fromkeys(doubts)),
    )


# === several tables ===

MAX_ORDERS = 24
"""Orders of tables that are tried: those of four at one priority."""

IPTABLES_PRIORITY = -100
"""NF_IP_PRI_NAT_DST, at both hooks where destinations are rewritten."""


def _orders(
    tables: Sequence[Ruleset], passages: Sequence[Passage], packet: Packet
) -> Iterator[tuple[int, ...]]:
    """The orders in which the kernel may ask tables, given by their numbers.

    Lower priorities come first. Tables that do nothing to the packet are left out,
    unless a mark that another one sets could change that.
    """
    ends = [list(passage.trace.ends()) for passage in passages]
    marks = any(end.mark != packet.mark for some in ends for end in some)
    by_priority: dict[int, list[int]] = {}
    for number, (table, some) in enumerate(zip(tables, ends, strict=True)):
        if marks or any(end.outcome.kind != "untouched" for end in some):
            by_priority.setdefault(_priority(table, packet.hook), []).append(number)
    groups = [itertools.permutations(by_priority[p]) for p in sorted(by_priority)]
    for parts in itertools.product(*groups):
        yield tuple(itertools.chain.from_iterable(parts))


def _priority(table: Ruleset, hook: str) -> int:
    """At which priority the table is hooked in."""
    entry = _entry(table, hook)
    word = entry.hook.rpartition(" ")[2] if entry else ""
    return int(word) if word.removeprefix("-").isdecimal() else IPTABLES_PRIORITY


def _in_order(
    order: Sequence[int],
    tables: Sequence[Ruleset],
    passages: Sequence[Passage],
    packet: Packet,
) -> tuple[Outcome, ...]:
    """The outcomes when the kernel asks the tables in this order.

    The first that rewrites the destination is the last one asked.
    """
    if not order:
        nothing = f"there are no nat rules for IPv{packet.version}"
        ends = (end.outcome for p in passages for end in p.trace.ends())
        return distinct(ends) or (Outcome(kind="untouched", why=nothing),)
    outcomes: list[Outcome] = []
    arriving: list[Packet] = [packet]
    for number in order:
        leaving: dict[Mark, Packet] = {}
        for one in arriving:
            met = (
                passages[number].trace if one is packet else follow(tables[number], one)
            )
            for end in met.ends():
                if end.outcome.kind == "untouched" and number != order[-1]:
                    leaving[end.mark] = one.marked(end.mark)
                else:
                    outcomes.append(end.outcome)
        arriving = list(leaving.values())
    return distinct(iter(outcomes))


# === one table ===


def follow(
    table: Ruleset, packet: Packet, premises: dict[str, None] | None = None
) -> Trace:
    """The way of a packet through one nat table, of its version or of both.

    What is taken for granted on the way goes into `premises`.
    """
    taken = {} if premises is None else premises
    view = View(packet, is_native(table), packet.mark, premises=taken)
    entry = _entry(table, packet.hook)
    if entry is None or "flags dormant" in table.others:
        state = "is dormant" if entry else f"has no chain at {packet.hook}"
        outcome = Outcome(kind="untouched", why=f"the table {state}")
        return Trace((), End(outcome, view.mark))
    return Walk({chain.name: chain for chain in table.chains}).start(entry, view)


def is_native(table: Ruleset) -> bool:
    """Whether it is a table of nf_tables itself, not of iptables."""
    return table.version == INET or any(chain.hook for chain in table.chains)


def _entry(table: Ruleset, hook: str) -> Chain | None:
    """The chain where the kernel comes in: by its hook or, in iptables, its name."""
    for chain in table.chains:
        words = chain.hook.split()
        if words[:4] == ["type", "nat", "hook", hook.lower()]:
            return chain
        if chain.name == hook and not words and table.version != INET:
            return chain
    return None
