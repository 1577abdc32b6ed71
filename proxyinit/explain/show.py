"""An explanation as lines for people, and as JSON with the same in it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from proxyinit.explain.packet import Packet, endpoint
from proxyinit.explain.trace import (
    End,
    Enter,
    Explanation,
    Fork,
    Leave,
    Outcome,
    Passage,
    Step,
    Trace,
    brief,
)
from proxyinit.iptables_rule import render_rule as render_iptables
from proxyinit.nft_script import render_rule as render_nft
from proxyinit.printable import printable
from proxyinit.rules import Comment, Rule

Kind: TypeAlias = Literal[
    "title", "chain", "yes", "no", "open", "end", "fork", "note", "answer"
]


@dataclass(frozen=True, slots=True)
class Line:
    """One line: `kind` decides its mark and colour, `why` stands behind the text."""

    depth: int
    kind: Kind
    text: str
    why: str = ""

    def __str__(self) -> str:
        behind = f"  [{self.why}]" if self.why else ""
        return f"{'  ' * self.depth}{_WORDS.get(self.kind, '')}{self.text}{behind}"

    @property
    def printable(self) -> Line:
        """The line without what could steer a terminal: comments are anybody's."""
        return replace(self, text=printable(self.text), why=printable(self.why))


_WORDS = {"yes": "yes  ", "no": "no   ", "open": "?    "}


def lines(explanation: Explanation) -> Iterator[Line]:
    """The whole answer, the sentence last, fit for a terminal."""
    return (line.printable for line in _lines(explanation))


def _lines(explanation: Explanation) -> Iterator[Line]:
    yield Line(0, "title", _title(explanation.packet))
    for passage in explanation.passages:
        yield Line(0, "title", _heading(passage))
        yield from _trace_lines(passage, passage.trace, 1, explanation.packet)
    for premise in explanation.premises:
        yield Line(0, "note", f"taken for granted: {premise}")
    for doubt in explanation.doubts:
        if explanation.decided:
            yield Line(0, "note", f"{doubt}; it makes no difference here")
        else:
            yield Line(0, "note", f"undecided here because {doubt}")
    yield Line(0, "answer", explanation.sentence)


def text(explanation: Explanation) -> str:
    """The lines without colours, each ended."""
    return "".join(f"{line}\n" for line in lines(explanation))


def _title(packet: Packet) -> str:
    facts = ["outbound" if packet.outbound else "inbound"]
    if packet.interface:
        facts.append(f"{'out' if packet.outbound else 'in'} {packet.interface}")
    if packet.outbound:
        facts += [
            f"{kind} {value}"
            for kind, value in (("uid", packet.uid), ("gid", packet.gid))
            if value is not None
        ]
    return f"{packet}, {', '.join(facts)}"


def _heading(passage: Passage) -> str:
    family = {4: "IPv4", 6: "IPv6"}.get(passage.version, "IPv4 and IPv6")
    return f"{passage.name}, {family}"


def _trace_lines(
    passage: Passage, trace: Trace, depth: int, packet: Packet
) -> Iterator[Line]:
    for step in trace.steps:
        yield _step_line(step, depth, native=passage.native)
    if isinstance(trace.end, End):
        yield Line(depth, "end", brief(packet, trace.end.outcome))
        return
    yield Line(depth, "fork", f"undecided here because {trace.end.why}")
    for title, way in (("if so:", trace.end.yes), ("if not:", trace.end.no)):
        yield Line(depth, "fork", title)
        yield from _trace_lines(passage, way, depth + 1, packet)


def _step_line(step: Step, depth: int, *, native: bool) -> Line:
    depth += step.depth
    if isinstance(step, Enter):
        how = "" if step.how == "hook" else f" ({step.how})"
        return Line(depth, "chain", f"{step.chain}{how}")
    if isinstance(step, Leave):
        return Line(depth + 1, "end", step.then)
    kind: Kind = "yes" if step.matched else "open" if step.matched is None else "no"
    spelled = rule_text(step.rule, native=native)
    return Line(depth + 1, kind, f"{step.number} {spelled}", step.why)


def rule_text(rule: Rule, *, native: bool) -> str:
    """The rule in the words of its backend, its comment behind a #."""
    rest = tuple(m for m in rule.matches if not isinstance(m, Comment))
    bare = Rule(rest, rule.verdict)
    try:
        spelled = render_nft(bare) if native else render_iptables(bare)
    except (KeyError, ValueError):  # values that no tool of that backend prints
        spelled = repr(bare)
    reason = " ".join(rule.reason.split())
    return f"{spelled}  # {reason}" if reason else spelled


# === JSON ===


def as_json(explanation: Explanation) -> dict[str, Any]:
    """The same as values that JSON has."""
    packet = explanation.packet
    return {
        "packet": _packet_json(packet),
        "decided": explanation.decided,
        "answer": explanation.sentence,
        "outcomes": [_outcome_json(packet, o) for o in explanation.outcomes],
        "premises": list(explanation.premises),
        "undecided": list(explanation.doubts),
        "tables": [
            {
                "name": passage.name,
                "family": _heading(passage).removeprefix(f"{passage.name}, "),
                "trace": _trace_json(passage, passage.trace, packet),
            }
            for passage in explanation.passages
        ],
    }


def _packet_json(packet: Packet) -> dict[str, Any]:
    known = packet.mark.known == 0xFFFFFFFF
    return {
        "protocol": packet.protocol,
        "from": endpoint(packet.source, packet.source_port),
        "to": endpoint(packet.destination, packet.destination_port),
        "direction": "outbound" if packet.outbound else "inbound",
        "interface": packet.interface,
        "uid": packet.uid,
        "gid": packet.gid,
        "mark": packet.mark.value if known else None,
    }


def _outcome_json(packet: Packet, outcome: Outcome) -> dict[str, Any]:
    return {
        "kind": outcome.kind,
        "address": outcome.address or None,
        "ports": list(outcome.ports) if outcome.ports else None,
        "chain": outcome.chain or None,
        "rule": outcome.number or None,
        "reason": outcome.why,
        "text": brief(packet, outcome),
    }


def _trace_json(passage: Passage, trace: Trace, packet: Packet) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "steps": [_step_json(step, native=passage.native) for step in trace.steps]
    }
    end = trace.end
    if isinstance(end, Fork):
        shown["undecided"] = end.why
        shown["if_so"] = _trace_json(passage, end.yes, packet)
        shown["if_not"] = _trace_json(passage, end.no, packet)
    else:
        shown["outcome"] = _outcome_json(packet, end.outcome)
    return shown


def _step_json(step: Step, *, native: bool) -> dict[str, Any]:
    if isinstance(step, Enter):
        return {"enter": step.chain, "how": step.how}
    if isinstance(step, Leave):
        return {"leave": step.chain, "then": step.then}
    return {
        "chain": step.chain,
        "rule": step.number,
        "text": rule_text(step.rule, native=native),
        "reason": step.rule.reason,
        "matched": step.matched,
        "why": step.why,
        "does": step.then,
    }
