"""What is known when a rule is tried, and findings put together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from proxyinit.explain.packet import UNKNOWN_MARK, Mark, Packet
from proxyinit.explain.trace import HOLDS, Finding, Question

PROTOCOLS = {
    name: number
    for number, names in (
        (1, "icmp"),
        (2, "igmp"),
        (4, "ipencap"),
        (6, "tcp"),
        (17, "udp"),
        (33, "dccp"),
        (41, "ipv6"),
        (47, "gre"),
        (50, "esp"),
        (51, "ah"),
        (58, "ipv6-icmp icmpv6"),
        (132, "sctp"),
        (135, "mobility-header mh"),
        (136, "udplite"),
    )
    for name in names.split()
}
"""Protocol numbers by the names that iptables and nft give them."""
WITH_PORTS = frozenset((6, 17, 33, 132, 136))


@lru_cache(maxsize=1024)
def protocol_number(name: str) -> int:
    """The number of a protocol, 0 for all of them, -1 for one nobody knows."""
    if name.isascii() and name.isdigit():
        return int(name[:4])
    return 0 if name == "all" else PROTOCOLS.get(name.lower(), -1)


@dataclass(slots=True)
class View:
    """What is known when a rule is tried: the packet, marks, what was supposed.

    `native` tables are nf_tables' own. `premises` collects what is taken for granted.
    """

    packet: Packet
    native: bool = False
    mark: Mark = UNKNOWN_MARK
    connmark: Mark = UNKNOWN_MARK
    supposed: Mapping[Question, bool] = field(default_factory=dict)
    premises: dict[str, None] = field(default_factory=dict)

    def suppose(self, question: Question, *, answer: bool) -> None:
        """Go on with an answer that nobody knows."""
        self.supposed = {**self.supposed, question: answer}

    def copy(self) -> View:
        """A view that can suppose other things; premises are shared."""
        return replace(self)


def undecided(
    view: View, question: Question, why: str, *, negated: bool = False
) -> Finding:
    """The finding for a question that the packet does not answer.

    An answer that was supposed earlier on this way counts.
    """
    answer = view.supposed.get(question)
    if answer is not None:
        says = "yes" if answer else "no"
        return Finding(answer != negated, f"as supposed above: {says}")
    return Finding(None, why, question, not negated)


def found(
    holds: bool,  # noqa: FBT001  (told by each caller's own words, with its reason)
    negated: bool,  # noqa: FBT001
    fact: str,
) -> Finding:
    """The finding for a fact about the packet, which is also the reason."""
    return HOLDS if holds != negated else Finding(holds=False, why=fact)


def either(*parts: Finding) -> Finding:
    """Holds when one of the parts holds."""
    return _first(parts, holds=True)


def every(*parts: Finding) -> Finding:
    """Holds when all parts hold.

    Where several are undecided, none of them is the one to blame if it does not.
    """
    finding = _first(parts, holds=False)
    if finding.holds is None:
        reasons = [part.why for part in parts if part.holds is None]
        if len(reasons) > 1:
            return Finding(None, "; ".join(dict.fromkeys(reasons)))
    return finding


def any_of(answers: Iterable[bool | None]) -> bool | None:
    """Whether one of the answers is yes; None when that hangs on an unknown one."""
    seen = set(answers)
    return True if True in seen else None if None in seen else False


def _first(parts: tuple[Finding, ...], *, holds: bool) -> Finding:
    """The part that decides, else the first that is undecided, else any."""
    for part in parts:
        if part.holds is holds:
            return part
    for part in parts:
        if part.holds is None:
            return part
    return parts[0] if parts else HOLDS


def is_own(address: str, view: View) -> bool | None:
    """Whether an address is the namespace's own, as far as known or supposed."""
    own = view.packet.is_own(address)
    return view.supposed.get(("own", address)) if own is None else own
