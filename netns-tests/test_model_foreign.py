"""Tables that others wrote: what is read, written and foretold of them is right.

Random valid nat tables are loaded by the real tools. Dumped, parsed, rendered and
loaded again they are the same; and where `explain` has an answer, the kernel's is
the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import model_packets as model
import model_tables
import pytest
from hypothesis import given

from proxyinit.backend import program_name
from proxyinit.iptables_save import parse, render
from proxyinit.lab.crossroads import Crossroads
from proxyinit.rules import Ruleset
from proxyinit.runner import SystemRunner

if TYPE_CHECKING:
    from proxyinit.explain.packet import Packet
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
        if seen["decided"] >= model.PAIRS // 2 and seen["undecided"]:
            return
        version, text, packets = question
        table = crossroads.pod.run(_loaded, iptables_mode, version, text)
        counters = partial(dump, iptables_mode, version, "-c")
        seen.update(model.judged(crossroads, str(version), table, packets, counters))

    check()

    assert seen["decided"] >= model.PAIRS // 2
    assert seen["undecided"]


def _loaded(mode: str, version: Version, text: str) -> Ruleset:
    load(mode, version, text)
    return parse(dump(mode, version), version)
