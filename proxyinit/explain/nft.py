"""Words of nft that a rule keeps as they are: decided where a packet's facts decide.

A rule keeps them from the first one on that the model has no value for, so several
matches may stand in a row. What is not listed here can't be judged, and with it all
that follows. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from proxyinit.explain.match import in_ranges, leaves_by_lo, named, owner, ports
from proxyinit.explain.packet import Mark
from proxyinit.explain.trace import HOLDS, Finding
from proxyinit.explain.view import (
    PROTOCOLS,
    WITH_PORTS,
    View,
    any_of,
    every,
    found,
    is_own,
    protocol_number,
    undecided,
)
from proxyinit.rules import Extension, PortRange

WORDS = "nft"
"""Name of the extension that holds them."""


class _Test(NamedTuple):
    """One match: what is looked at, the operand after it, whether it must differ."""

    key: str
    operand: str
    negated: bool


def nft_words(match: Extension, view: View) -> Finding:
    """Whether all matches in a row hold."""
    parts: list[Finding] = []
    at = 0
    while at < len(match.args):
        size, part = _next(match.args[at:], view)
        parts.append(part)
        at += size
    return every(*parts)


def _next(words: Sequence[str], view: View) -> tuple[int, Finding]:
    """How many words the first match takes, and whether it holds."""
    if words[:2] == ("log", "prefix"):
        return 3, HOLDS
    if words[1:3] == ("mark", "set"):
        return len(words), HOLDS  # what it does is the walk's business
    if words[:3] == ("meta", "mark", "&") and words[4:5] == ("==",) and len(words) > 5:
        masked = _Test("meta mark", f"{words[5]}/{words[3]}", negated=False)
        return 6, _decide(_mark, masked, view, words)
    for length in (3, 2, 1):
        key = " ".join(words[:length])
        decide = _DECIDE.get(key)
        if decide is None:
            continue
        negated = words[length : length + 1] == ("!=",)
        operand = words[length + negated : length + negated + 1]
        following = words[length + negated + 1 : length + negated + 2]
        if not operand or following in _OPERATORS:
            break
        test = _Test(key, operand[0], negated)
        return length + negated + 1, _decide(decide, test, view, words)
    return len(words), _unknown(words, view)


_OPERATORS = tuple((word,) for word in ("map", "vmap", ".", "&", "|", "^", "/", "=="))


def _unknown(words: Sequence[str], view: View) -> Finding:
    shown = " ".join(words)[:80]
    why = f"the words '{shown}' can't be judged"
    if words[0] in ("limit", "numgen", "quota"):
        return Finding(None, why)
    return undecided(view, (WORDS, *words), why)


def _decide(
    decide: Callable[[_Test, View], Finding],
    test: _Test,
    view: View,
    words: Sequence[str],
) -> Finding:
    try:
        return decide(test, view)
    except ValueError:
        return _unknown(words, view)


# === operands ===


def _elements(text: str) -> list[str]:
    inside = text.strip("{} ")
    return [element.strip().strip('"') for element in inside.split(",")]


def _spans(text: str) -> list[tuple[int, int]]:
    """Numbers and ranges; `ValueError` for names and sets that are kept elsewhere."""
    spans = []
    for element in _elements(text):
        low, dash, high = element.partition("-")
        first = int(low, 0)
        spans.append((first, int(high, 0) if dash else first))
    return spans


# === matches ===


def _ports(test: _Test, view: View) -> Finding:
    protocol, side = test.key.split()
    packet = view.packet
    mine = protocol_number(packet.protocol)
    if mine not in WITH_PORTS or (protocol != "th" and mine != PROTOCOLS[protocol]):
        return Finding(holds=False, why=f"the protocol is {packet.protocol}")
    ranges = [PortRange(low, high) for low, high in _spans(test.operand)]
    if side == "sport":
        finding = in_ranges(packet.source_port, ranges, "source")
    else:
        finding = in_ranges(packet.destination_port, ranges, "destination")
    return ports(view, finding, (f"--{side}", ranges), negated=test.negated)


def _protocol(test: _Test, view: View) -> Finding:
    mine = protocol_number(view.packet.protocol)
    wanted = {protocol_number(element) for element in _elements(test.operand)}
    if -1 in wanted:
        raise ValueError(test.operand)
    return found(
        mine in wanted, test.negated, f"the protocol is {view.packet.protocol}"
    )


_STATES = {"invalid": 1, "established": 2, "related": 4, "new": 8, "untracked": 64}


def _state(test: _Test, view: View) -> Finding:  # noqa: ARG001  (as its likes)
    """Bits in a row are asked for together, members of a set one by one."""
    bits = {_STATES[e] if e in _STATES else int(e, 0) for e in _elements(test.operand)}
    fact = "it is the first of its connection: new"
    return found(_STATES["new"] in bits, test.negated, fact)


def _mark(test: _Test, view: View) -> Finding:
    mark: Mark = view.mark if test.key == "meta mark" else view.connmark
    value, slash, mask_text = test.operand.partition("/")
    mask = int(mask_text, 0) if slash else 0xFFFFFFFF
    holds = any_of(mark.equals(int(v, 0), mask) for v in _elements(value))
    if holds is None:
        question = (test.key, hex(mark.value), hex(mark.known), test.operand)
        why = f"what {test.key} is, is not known: say --mark"
        return undecided(view, question, why, negated=test.negated)
    return found(holds, test.negated, f"{test.key} is {mark.value:#x}")


def _owner(test: _Test, view: View) -> Finding:
    """Whether one of the ids is the socket's; several unknown ones stay so."""
    kind = "uid" if test.key.endswith("skuid") else "gid"
    spans = _spans(test.operand)
    if len(spans) == 1 or not view.packet.outbound:
        low, high = spans[0]
        return owner(view, kind, low, high, negated=test.negated)
    parts = [owner(view, kind, low, high, negated=False) for low, high in spans]
    holds = any_of(part.holds for part in parts)
    if holds is None:
        question = (test.key, test.operand)
        why = next(part.why for part in parts if part.holds is None)
        return undecided(view, question, why, negated=test.negated)
    mine = view.packet.uid if kind == "uid" else view.packet.gid
    return found(holds, test.negated, f"the socket's {kind} is {mine}")


_LOCAL = ("local", "2")


def _fib(test: _Test, view: View) -> Finding:
    """Whether an address is the namespace's own; other types are not known."""
    packet = view.packet
    address = packet.source if "saddr" in test.key else packet.destination
    if test.operand not in _LOCAL:
        raise ValueError(test.operand)
    own = is_own(address, view)
    if own is None:
        why = f"whether {address} is local is not known: say --own"
        return undecided(view, ("own", address), why, negated=test.negated)
    word = "is" if own else "is not"
    return found(own, test.negated, f"{address} {word} local")


def _interface(test: _Test, view: View) -> Finding:
    packet = view.packet
    inward = test.key.startswith("i")
    interface = packet.in_interface if inward else packet.out_interface
    if interface is None and not inward and leaves_by_lo(view):
        interface = "lo"
    names = [f"{n[:-1]}+" if n.endswith("*") else n for n in _elements(test.operand)]
    if interface is None:
        if names == ["lo"]:
            return found(holds=False, negated=test.negated, fact="it does not take lo")
        why = f"the interface is not known: say --{'in' if inward else 'out'}"
        return undecided(view, (test.key, *names), why, negated=test.negated)
    holds = any(named(name, interface) for name in names)
    return found(holds, test.negated, f"the interface is {interface or 'none'}")


_DECIDE: dict[str, Callable[[_Test, View], Finding]] = {
    **{f"{p} {s}": _ports for p in ("tcp", "udp", "th") for s in ("sport", "dport")},
    "meta l4proto": _protocol,
    "ct state": _state,
    "meta mark": _mark,
    "ct mark": _mark,
    "meta skuid": _owner,
    "meta skgid": _owner,
    "fib daddr type": _fib,
    "fib saddr type": _fib,
    **dict.fromkeys(("iifname", "oifname", "iif", "oif"), _interface),
}
