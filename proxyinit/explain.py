"""Where a packet goes: followed through every nat table there is. Pure.

Where something decides that can't be known, the way forks and both ways are
walked, so no answer is a guess; ways that fare the same are one outcome in the end.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from proxyinit.explain_view import View
from proxyinit.explain_walk import Walk
from proxyinit.packet import Mark, Packet
from proxyinit.rules import INET, Chain, Ruleset
from proxyinit.trace import (
    End,
    Explanation,
    Outcome,
    Passage,
    Trace,
    distinct,
)


def explain(tables: Sequence[tuple[str, Ruleset]], packet: Packet) -> Explanation:
    """What the tables, each with its name, do to a packet.

    Nothing tells in which order the kernel asks tables of different backends; it is
    undecided where that makes a difference.
    """
    asked = [(n, t) for n, t in tables if t.version in (INET, packet.version)]
    premises: dict[str, None] = {}
    passages = tuple(
        Passage(name, table.version, follow(table, packet, premises), is_native(table))
        for name, table in asked
    )
    doubts = [reason for p in passages for reason in p.trace.reasons()]
    if len(asked) > 1:
        orders = [_in_order(o, packet) for o in itertools.permutations(asked)]
    else:
        orders = [_outcomes_of(passages, packet)]
    outcomes = distinct(itertools.chain.from_iterable(orders))
    if len({frozenset(order) for order in orders}) > 1:
        names = " and ".join(name for name, _ in asked)
        doubts.append(f"nothing tells which of {names} the kernel asks first")
    doubts += [o.why for o in outcomes if o.kind == "unknown"]
    return Explanation(
        packet=packet,
        passages=passages,
        outcomes=outcomes,
        premises=tuple(premises),
        doubts=tuple(dict.fromkeys(doubts)),
    )


def _outcomes_of(passages: tuple[Passage, ...], packet: Packet) -> tuple[Outcome, ...]:
    """The outcomes when there is one table, or none."""
    nothing = f"there are no nat rules for IPv{packet.version}"
    ends = (end.outcome for p in passages for end in p.trace.ends())
    return distinct(ends) or (Outcome(kind="untouched", why=nothing),)


def _in_order(
    tables: Sequence[tuple[str, Ruleset]], packet: Packet
) -> tuple[Outcome, ...]:
    """The outcomes when the kernel asks the tables in this order.

    The first that rewrites the destination is the last one asked.
    """
    outcomes: list[Outcome] = []
    arriving: list[Packet] = [packet]
    for number, (_, table) in enumerate(tables, start=1):
        leaving: dict[Mark, Packet] = {}
        for one in arriving:
            for end in follow(table, one).ends():
                if end.outcome.kind == "untouched" and number < len(tables):
                    leaving[end.mark] = one.marked(end.mark)
                else:
                    outcomes.append(end.outcome)
        arriving = list(leaving.values())
    return distinct(iter(outcomes))


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
