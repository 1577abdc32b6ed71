"""`explain` predicts, the kernel decides: what flags ask for, packet by packet.

A disagreement is made as small as it can be by hypothesis: one rule or two, one
packet. With PROXYINIT_FUZZ set there are 25 times as many, and others each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import model_packets as model
import pytest
from hypothesis import given

from proxyinit.backend import ALL_VERSIONS, Tables, locate
from proxyinit.config import RedirectConfig
from proxyinit.explain.packet import Packet
from proxyinit.explain.tables import explain
from proxyinit.host import Host
from proxyinit.install import install
from proxyinit.journal import Journal
from proxyinit.lab.crossroads import Crossroads
from proxyinit.logs import Log
from proxyinit.options import Options
from proxyinit.rules import OUR_TABLE
from proxyinit.runner import SystemRunner
from proxyinit.session import Session

if TYPE_CHECKING:
    from proxyinit.backend import Backend
    from proxyinit.runner import Runner

pytestmark = pytest.mark.timeout(3600 if model.FUZZ else 300)


@pytest.fixture
def crossroads() -> Iterator[Crossroads]:
    """One pod for all configurations; installing replaces what was there."""
    with Crossroads() as made:
        yield made


def session(mode: str) -> Session:
    """What an install works with; it says only what goes wrong."""
    log, runner = Log("error"), SystemRunner()
    tables = Tables(runner, log, 5)
    return Session(Options(mode), log, Host(), runner, tables, Journal(), print)


def test_explain_agrees_with_the_kernel(crossroads: Crossroads, mode: str) -> None:
    """Who answers, and which rules have counted, is what was predicted."""
    at_work = session(mode)
    seen = Counter[str]()

    @model.MANY
    @given(question=model.questions())
    def check(question: tuple[RedirectConfig, list[Packet]]) -> None:
        if seen["pairs"] >= model.PAIRS:
            return
        config, packets = question
        crossroads.pod.run(install, at_work, config)
        seen["pairs"] += judge(crossroads, at_work, packets)

    check()

    assert seen["pairs"] >= model.PAIRS


def judge(crossroads: Crossroads, at_work: Session, packets: list[Packet]) -> int:
    """Send packets through what is installed; how many came out as predicted."""
    backend = locate(at_work.runner, at_work.options.mode, ALL_VERSIONS)
    versions = tuple(backend.programs)
    tables = crossroads.pod.run(at_work.tables.read, backend, versions)
    named = [(str(version), table) for version, table in tables.items()]
    expected = crossroads.pod.run(counters, at_work.runner, backend)
    for packet in packets:
        explanation = explain(named, packet)
        matched = model.matched_rules(explanation)
        assert explanation.decided, explanation.sentence
        assert matched is not None, explanation.sentence
        found = model.disagreement(explanation, crossroads.send(packet))
        assert not found, found
        expected.update(matched)
    assert crossroads.pod.run(counters, at_work.runner, backend) == expected
    return len(packets)


def counters(runner: Runner, backend: Backend) -> Counter[model.Where]:
    """How many packets every rule has matched, as the kernel counts."""
    found: Counter[model.Where] = Counter()
    for version, programs in backend.programs.items():
        options = ["-ct", "nat"]
        if backend.kind == "nftables":
            options = ["list", "table", "inet", OUR_TABLE]
        output = runner.run([programs.save, *options])
        found.update(model.counted(str(version), output.stdout))
    return found
