"""What became of a packet: every rule tried, and how it ended, as values. Pure.

A trace is the way of one packet through one nat table. Where something decides
that can't be known, it forks, and both ways are in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from proxyinit.explain.packet import Mark, Packet, endpoint
from proxyinit.rules import OUR_CHAINS, Rule

if TYPE_CHECKING:
    from proxyinit.rules import Version

Question: TypeAlias = tuple[str, ...]
"""What a match asks, as a key: the same question has the same answer later on."""


class Finding(NamedTuple):
    """Whether a match holds for a packet, and why; None when it can't be known.

    `question` is what would have to be known. A tuple, as each match of each rule
    makes one, and a dataclass that is frozen takes three times as long to make.
    """

    holds: bool | None
    why: str = ""
    question: Question = ()
    expected: bool = True


HOLDS = Finding(holds=True)


# === steps ===


@dataclass(frozen=True, slots=True)
class Enter:
    """The packet comes to a chain: a builtin one, or one that a rule leads to."""

    chain: str
    depth: int
    how: Literal["hook", "jump", "goto"]


class Try(NamedTuple):
    """A rule is tried: number from 1, whether it matched, and why not."""

    chain: str
    depth: int
    number: int
    rule: Rule
    matched: bool | None
    why: str = ""

    @property
    def then(self) -> str:
        """What the rule does, or would do; empty when it does not match."""
        verdict = self.rule.verdict
        if self.matched is False or verdict is None:
            return ""
        return " ".join((*(("goto",) if verdict.goto else ()), verdict.target))


@dataclass(frozen=True, slots=True)
class Leave:
    """The packet has come to the end of a chain, or was sent back by RETURN."""

    chain: str
    depth: int
    then: str


Step: TypeAlias = Enter | Try | Leave


# === ends ===


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a way through a table, or through all tables, ends.

    Two are equal when the packet fares the same, whatever rule was responsible.
    `address` is where it goes to, empty for the interface's own address; `ports` are
    the lowest and highest that may become its destination port, None for the same
    as before. `chain`, `number` and `why` name the rule that decided, if one did.
    """

    kind: Literal["redirected", "translated", "untouched", "dropped", "unknown"]
    address: str = ""
    ports: tuple[int, int] | None = None
    chain: str = field(default="", compare=False)
    number: int = field(default=0, compare=False)
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class End:
    """The end of a way: the outcome, and the mark that the packet bears then."""

    outcome: Outcome
    mark: Mark


@dataclass(frozen=True, slots=True)
class Fork:
    """Two ways: if the undecided rule before it matches, and if it does not."""

    why: str
    yes: Trace
    no: Trace


@dataclass(frozen=True, slots=True)
class Trace:
    """A way of a packet through a table, up to its end or to a fork."""

    steps: tuple[Step, ...]
    end: End | Fork

    def ends(self) -> Iterator[End]:
        """Every end there is, in the order in which the ways are shown."""
        waiting = [self]
        while waiting:
            end = waiting.pop().end
            if isinstance(end, End):
                yield end
            else:
                waiting += [end.no, end.yes]

    def reasons(self) -> Iterator[str]:
        """Why it forks, wherever it does."""
        waiting = [self]
        while waiting:
            end = waiting.pop().end
            if isinstance(end, Fork):
                yield end.why
                waiting += [end.no, end.yes]


@dataclass(frozen=True, slots=True)
class Passage:
    """The way through one table; `name` says which, such as ``iptables-nft``.

    Rules of `native` tables are spelled in nft's words.
    """

    name: str
    version: Version
    trace: Trace
    native: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The whole answer: the ways through all tables and every possible outcome.

    `premises` are what was taken for granted, `doubts` why it is undecided.
    """

    packet: Packet
    passages: tuple[Passage, ...]
    outcomes: tuple[Outcome, ...]
    premises: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def decided(self) -> bool:
        """Whether there is one outcome, and it is known."""
        return len(self.outcomes) == 1 and self.outcomes[0].kind != "unknown"

    def but_for(self, unread: Sequence[str]) -> Explanation:
        """The same in the face of tables that exist and could not be read."""
        if not unread:
            return self
        missing = Outcome(kind="unknown", why="; ".join(unread))
        return replace(
            self,
            outcomes=(*self.outcomes, missing),
            doubts=(*self.doubts, *unread),
        )

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        if len(self.outcomes) == 1:
            return sentence(self.packet, self.outcomes[0])
        ways = [
            f"it can't be told: {o.why}"
            if o.kind == "unknown"
            else brief(self.packet, o)
            for o in self.outcomes
        ]
        return f"undecided: {'; or '.join(dict.fromkeys(ways))}"


def distinct(outcomes: Iterator[Outcome]) -> tuple[Outcome, ...]:
    """Each outcome once, in order of appearance."""
    return tuple(dict.fromkeys(outcomes))


# === sentences ===


def brief(packet: Packet, outcome: Outcome) -> str:
    """What happens, without the rule that is the reason."""
    original = endpoint(packet.destination, packet.destination_port)
    kept = f"original destination {original} preserved"
    if outcome.kind == "redirected":
        to = _ports(outcome, packet)
        whom = f"the proxy at {to}" if outcome.chain in OUR_CHAINS else f"port {to}"
        return f"redirected to {whom}, {kept}"
    if outcome.kind == "translated":
        return f"sent to {_target(outcome, packet)} instead of {original}"
    if outcome.kind == "dropped":
        return "dropped"
    if outcome.kind == "untouched":
        return f"not redirected, goes to {original} as it is"
    return f"undecided here because {outcome.why}"


def sentence(packet: Packet, outcome: Outcome) -> str:
    """What happens, and which rule is the reason."""
    told = brief(packet, outcome)
    if outcome.kind == "unknown" or not outcome.chain:
        return told if outcome.kind == "unknown" else f"{told}: {outcome.why}"
    where = f"rule {outcome.number} of {outcome.chain}"
    reason = f" ({outcome.why})" if outcome.why else ""
    return f"{told}, by {where}{reason}"


def _ports(outcome: Outcome, packet: Packet) -> str:
    if outcome.ports is None:
        return str(packet.destination_port or "the same port")
    low, high = outcome.ports
    return str(low) if low == high else f"one of {low}-{high}"


def _target(outcome: Outcome, packet: Packet) -> str:
    address = outcome.address or packet.destination
    if outcome.ports and outcome.ports[0] != outcome.ports[1]:
        return f"{address}, port {_ports(outcome, packet)}"
    port = outcome.ports[0] if outcome.ports else packet.destination_port
    return endpoint(address, port)
