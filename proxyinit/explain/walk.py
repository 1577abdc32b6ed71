"""One packet's way through one nat table, rule by rule, as the kernel goes it. Pure.

The references are ipt_do_table (net/ipv4/netfilter/ip_tables.c) and nft_do_chain
(net/netfilter/nf_tables_core.c): a jump comes back behind its rule, a goto to where
the chain it left would have come back to, and from a builtin chain to its policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from proxyinit.explain.extension import extension
from proxyinit.explain.match import MODEL
from proxyinit.explain.packet import UNKNOWN_MARK
from proxyinit.explain.target import PASSING, ends_with, lets_pass, remark, unknown
from proxyinit.explain.trace import (
    HOLDS,
    End,
    Enter,
    Finding,
    Fork,
    Leave,
    Outcome,
    Step,
    Trace,
    Try,
)
from proxyinit.explain.view import View
from proxyinit.rules import Chain, Extension, Rule, Verdict

MAX_FORKS = 64
"""Forks in one table; a way that would need more ends undecided."""
MAX_TRIES = 200_000
"""Rules tried in one table: chains that lead to each other multiply."""

_NO_RULE = Outcome(kind="untouched", why="no rule takes it")


@dataclass(slots=True)
class Frame:
    """A chain that the packet is in, and how many of its rules it has passed.

    `left` are chains it came from by goto, which it does not return to.
    """

    chain: Chain
    passed: int = 0
    left: tuple[str, ...] = ()


@dataclass(slots=True)
class Way:
    """Where a packet is, what is known there, and the steps since the last fork.

    `frames` are the chains to return to, the present one last; `inside` the names of
    all that it is in, and `passing` what it comes to if no further rule takes it.
    """

    frames: list[Frame]
    view: View
    inside: set[str]
    passing: Outcome = _NO_RULE
    steps: list[Step] = field(default_factory=list)

    def split(self) -> Way:
        """A second way that starts here."""
        frames = [Frame(f.chain, f.passed, f.left) for f in self.frames]
        view = self.view.copy()
        return Way(frames, view, set(self.inside), self.passing)

    @property
    def here(self) -> Outcome:
        """An outcome that names the rule being tried."""
        frame = self.frames[-1]
        return Outcome(kind="untouched", chain=frame.chain.name, number=frame.passed)

    def ended(self, outcome: Outcome) -> Trace:
        """The way up to its end."""
        return Trace(tuple(self.steps), End(outcome, self.view.mark))

    def gave_up(self, why: str) -> Trace:
        """The way up to where it can't be followed."""
        return self.ended(unknown(self.here, why))


class Walk:
    """A walk through a table; counts what it takes, as tables may be hostile."""

    def __init__(self, chains: Mapping[str, Chain]) -> None:
        self._chains = chains
        self._forks = 0
        self._tries = 0

    def start(self, entry: Chain, view: View) -> Trace:
        """Walk from a builtin chain."""
        way = Way([Frame(entry)], view, {entry.name})
        way.steps.append(Enter(entry.name, 0, "hook"))
        return self._run(way)

    def _run(self, way: Way) -> Trace:
        """Walk on to an end, or to a fork and both its ways."""
        end: Trace | None = None
        while end is None:
            frame = way.frames[-1]
            if frame.passed == len(frame.chain.rules):
                end = self._leave(way, "end of the chain")
                continue
            rule = frame.chain.rules[frame.passed]
            frame.passed += 1
            self._tries += 1
            if self._tries > MAX_TRIES:
                return way.gave_up(f"more than {MAX_TRIES} rules would be tried")
            finding, doubts = examine(rule, way.view)
            way.steps.append(_tried(way, rule, finding))
            if finding.holds:
                end = self._take(way, rule)
            elif finding.holds is None and not is_idle(rule):
                end = self._fork(way, rule, doubts)
        return end

    def _fork(self, way: Way, rule: Rule, doubts: Sequence[Finding]) -> Trace:
        """Go both ways at a rule of which nobody knows if it matches."""
        why = "; ".join(dict.fromkeys(doubt.why for doubt in doubts))
        if not self._may_fork():
            return way.gave_up(f"there are more than {MAX_FORKS} forks: {why}")
        yes, no = way.split(), way.split()
        for doubt in doubts:
            if doubt.question:
                yes.view.suppose(doubt.question, answer=doubt.expected)
        if len(doubts) == 1 and doubts[0].question:
            no.view.suppose(doubts[0].question, answer=not doubts[0].expected)
        matched = self._take(yes, rule) or self._run(yes)
        return Trace(tuple(way.steps), Fork(why, matched, self._run(no)))

    def _may_fork(self) -> bool:
        self._forks += 1
        return self._forks <= MAX_FORKS

    def _take(self, way: Way, rule: Rule) -> Trace | None:
        """Do what a rule that matches says; None to walk on."""
        verdict, view = rule.verdict, way.view
        if _sets_marks(rule):
            view.mark = view.connmark = UNKNOWN_MARK
        if verdict is None:
            return None
        if verdict.target in self._chains:
            return self._go(way, verdict)
        if verdict.target == "RETURN":
            way.passing = _passed_by(way.here, rule)
            return self._leave(way, "RETURN")
        if lets_pass(verdict, view):
            remark(verdict, view)
            return None
        outcome = ends_with(rule, verdict, view, way.here)
        return way.ended(outcome) if outcome else self._unknown_target(way, verdict)

    def _unknown_target(self, way: Way, verdict: Verdict) -> Trace:
        """It may end the way, whatever it does, or let the packet go on."""
        shown = " ".join((verdict.target, *verdict.args))[:80]
        why = f"what '{shown}' does is not known"
        if not self._may_fork():
            return way.gave_up(why)
        on = way.split()
        on.view.mark = on.view.connmark = UNKNOWN_MARK
        stopped = way.split().gave_up(why)
        return Trace(tuple(way.steps), Fork(why, stopped, self._run(on)))

    def _go(self, way: Way, verdict: Verdict) -> Trace | None:
        """Come to another chain, by a jump or by a goto."""
        name = verdict.target
        if name in way.inside:
            return way.gave_up(f"chains lead in a circle at {name}: no kernel has this")
        way.inside.add(name)
        frame = Frame(self._chains[name])
        if verdict.goto and len(way.frames) > 1:
            gone = way.frames.pop()
            frame.left = (*gone.left, gone.chain.name)
        elif verdict.goto:  # it comes back to the policy of the builtin chain
            way.frames[-1].passed = len(way.frames[-1].chain.rules)
        how = Enter(name, len(way.frames), "goto" if verdict.goto else "jump")
        way.steps.append(how)
        way.frames.append(frame)
        return None

    def _leave(self, way: Way, why: str) -> Trace | None:
        """Go back to where the chain was jumped to from, or meet the policy."""
        frame = way.frames.pop()
        name, depth = frame.chain.name, len(way.frames)
        if way.frames:
            way.inside.difference_update((name, *frame.left))
            back = way.frames[-1].chain.name
            way.steps.append(Leave(name, depth, f"{why}, back to {back}"))
            return None
        policy = frame.chain.policy or "ACCEPT"
        way.steps.append(Leave(name, depth, f"{why}, policy {policy}"))
        if policy == "DROP":
            why = f"the policy of {name} is DROP"
            return way.ended(Outcome(kind="dropped", why=why))
        return way.ended(way.passing)


def examine(rule: Rule, view: View) -> tuple[Finding, Sequence[Finding]]:
    """Whether a rule matches, and every undecided finding when that is not known."""
    doubts: list[Finding] = []
    for match in rule.matches:
        try:
            if isinstance(match, Extension):
                finding = extension(match, view)
            else:
                finding = MODEL[type(match)](match, view)
        except ValueError as error:  # a damaged dump: no address, no prefix length
            finding = Finding(None, f"a match makes no sense: {error}")
        if finding.holds is False:
            return finding, ()
        if finding.holds is None:
            doubts.append(finding)
    return (doubts[0] if doubts else HOLDS), doubts


_REMEMBERED = ("MARK", "CONNMARK", "SET")
"""Passing targets whose doing later rules can see."""


def is_idle(rule: Rule) -> bool:
    """Whether it makes no difference to the packet's way if the rule matches."""
    verdict = rule.verdict
    if verdict is None:
        return not _sets_marks(rule)
    return verdict.target in PASSING and verdict.target not in _REMEMBERED


def _sets_marks(rule: Rule) -> bool:
    """Whether a rule of nf_tables holds a statement that could change marks."""
    return any(isinstance(m, Extension) and "set" in m.args for m in rule.matches)


def _tried(way: Way, rule: Rule, finding: Finding) -> Try:
    frame = way.frames[-1]
    depth = len(way.frames) - 1
    name = frame.chain.name
    return Try(name, depth, frame.passed, rule, finding.holds, finding.why)


def _passed_by(here: Outcome, rule: Rule) -> Outcome:
    """What a packet comes to that a rule sends back, if no other takes it."""
    return Outcome(
        kind="untouched",
        chain=here.chain,
        number=here.number,
        why=rule.reason or "RETURN",
    )
