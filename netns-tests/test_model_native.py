"""Native tables that others wrote: what is read, written and foretold is right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import model_native
import model_packets as model
import pytest
from hypothesis import given

from proxyinit.explain.packet import Packet
from proxyinit.lab.crossroads import Crossroads
from proxyinit.nft_list import parse
from proxyinit.nft_script import render
from proxyinit.runner import SystemRunner

pytestmark = pytest.mark.timeout(3600 if model.FUZZ else 300)

TABLES = 2_000 if model.FUZZ else 60
RUNNER = SystemRunner()
NFT = RUNNER.find("nft") or ""
FRESH = "add table inet proxy_init\ndelete table inet proxy_init\n"


@pytest.fixture
def crossroads() -> Iterator[Crossroads]:
    """One pod for all tables; loading one replaces the last."""
    with Crossroads() as made:
        yield made


def listing(text: str = "") -> str:
    """The table as nft prints it, after the text was loaded."""
    if text:
        RUNNER.run([NFT, "-f", "-"], text)
    return RUNNER.run([NFT, "-nnn", "list", "table", "inet", "proxy_init"]).stdout


def test_native_tables_survive_reading_and_writing(crossroads: Crossroads) -> None:
    """List, parse, render and load again: the kernel holds the same values."""
    seen = Counter[str]()

    @model.MANY
    @given(text=model_native.tables())
    def check(text: str) -> None:
        if seen["tables"] >= TABLES:
            return
        first = crossroads.pod.run(listing, text)
        again = crossroads.pod.run(listing, FRESH + render(parse(first)))
        assert parse(again) == parse(first)
        assert again == crossroads.pod.run(listing, FRESH + render(parse(again)))
        seen["tables"] += 1

    check()

    assert seen["tables"] >= TABLES


def test_explain_agrees_about_native_tables(crossroads: Crossroads) -> None:
    """Who answers is one of the ways foretold, and the rules of the one way count."""
    seen = Counter[str]()

    @model.MANY
    @given(question=model_native.questions())
    def check(question: tuple[str, list[Packet]]) -> None:
        if seen["decided"] >= model.PAIRS // 2 and seen["undecided"]:
            return
        text, packets = question
        table = parse(crossroads.pod.run(listing, text))
        seen.update(model.judged(crossroads, "inet", table, packets, listing))

    check()

    assert seen["decided"] >= model.PAIRS // 2
    assert seen["undecided"]
