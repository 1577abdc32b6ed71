"""Tables that others wrote: what is read, written and foretold of them is right.

Random valid nat tables are loaded by the real tools. Dumped, parsed, rendered and
loaded again they are the same; and where `explain` has an answer, the kernel's is
the same.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given

sys.path.insert(0, str(Path(__file__).parent))

import model_packets as model
import model_tables

from proxyinit.backend import program_name
from proxyinit.explain import explain
from proxyinit.iptables_save import parse, render
from proxyinit.lab.crossroads import Crossroads
from proxyinit.packet import is_loopback
from proxyinit.rules import Ruleset
from proxyinit.runner import SystemRunner
from proxyinit.trace import Explanation

if TYPE_CHECKING:
    from proxyinit.packet import Packet
    from proxyinit.rules import Version

pytestmark = pytest.mark.timeout(3600 if model.FUZZ else 300)

TABLES = 2_000 if model.FUZZ else 60
RUNNER = SystemRunner()


@pytest.fixture
def crossroads() -> Iterator[Crossroads]:
    """One pod for all tables; loading one replaces the last."""
    with Crossroads() as made:
        yield made


def load(mode: str, version: Version, text: str) -> None:
    """Replace a whole table, in the namespace of the calling thread."""
    RUNNER.run([RUNNER.find(program_name(mode, version, "-restore")) or ""], text)


def dump(mode: str, version: Version, *options: str) -> str:
    """The table as the tool prints it."""
    program = RUNNER.find(program_name(mode, version, "-save")) or ""
    return RUNNER.run([program, *options, "-t", "nat"]).stdout


def rules_of(text: str) -> list[str]:
    """A dump without what differs each time: comments and counters of policies."""
    lines = (line.partition(" [")[0] for line in text.splitlines())
    return [line for line in lines if not line.startswith("#")]


def test_tables_survive_reading_and_writing(
    crossroads: Crossroads, iptables_mode: str
) -> None:
    """Dump, parse, render and load again: the kernel holds the same."""
    seen = Counter[str]()

    def again(version: Version, text: str) -> tuple[list[str], list[str]]:
        load(iptables_mode, version, text)
        first = dump(iptables_mode, version)
        load(iptables_mode, version, render(parse(first, version)))
        return rules_of(first), rules_of(dump(iptables_mode, version))

    @model.MANY
    @given(table=model_tables.versioned())
    def check(table: tuple[Version, str]) -> None:
        if seen["tables"] >= TABLES:
            return
        version, text = table
        first, second = crossroads.pod.run(again, version, text)
        assert first == second
        seen["tables"] += 1

    check()

    assert seen["tables"] >= TABLES


def test_explain_agrees_about_foreign_rules(
    crossroads: Crossroads, iptables_mode: str
) -> None:
    """Who answers is one of the ways foretold, and the rules of the one way count."""
    seen = Counter[str]()

    @model.MANY
    @given(question=model_tables.questions())
    def check(question: tuple[Version, str, list[Packet]]) -> None:
        if seen["decided"] >= model.PAIRS // 2:
            return
        version, text, packets = question
        table = crossroads.pod.run(_loaded, iptables_mode, version, text)
        name = str(version)
        asked = [explain([(name, table)], packet) for packet in packets]
        asked = [one for one in asked if can_be_sent(one)]
        certain = [(one, model.matched_rules(one)) for one in asked]
        expected: Counter[model.Where] = Counter()
        for one, matched in certain:
            if matched is not None:
                judge(crossroads, one)
                expected.update(matched)
                seen["decided"] += one.decided
        counted = crossroads.pod.run(dump, iptables_mode, version, "-c")
        assert model.counted(name, counted) == expected
        for one, matched in certain:
            if matched is None:
                judge(crossroads, one)
                seen["undecided"] += 1

    check()

    assert seen["decided"] >= model.PAIRS // 2
    assert seen["undecided"]


def _loaded(mode: str, version: Version, text: str) -> Ruleset:
    load(mode, version, text)
    return parse(dump(mode, version), version)


def judge(crossroads: Crossroads, explanation: Explanation) -> None:
    """Send the packet; it must come out on one of the ways foretold."""
    found = model.disagreement(explanation, crossroads.send(explanation.packet))
    assert not found, found


def can_be_sent(explanation: Explanation) -> bool:
    """Whether the packet gets anywhere: loopback's sources don't leave the host."""
    packet = explanation.packet
    return not is_loopback(packet.source) or not any(
        outcome.kind == "translated" for outcome in explanation.outcomes
    )
