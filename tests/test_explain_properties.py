"""What holds for every table and packet: an answer, the same in every form, in time.

PROXYINIT_FUZZ_SECONDS makes each of these go on for so long, with new examples.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from proxyinit.errors import ProxyInitError
from proxyinit.explain.dump import read_dump
from proxyinit.explain.own import own_of_fib_trie, own_of_ipv6_route
from proxyinit.explain.packet import NO_MARK, UNKNOWN_MARK, Packet
from proxyinit.explain.show import as_json, lines, text
from proxyinit.explain.tables import explain, follow
from proxyinit.explain.trace import Fork, Leave, Trace, Try
from proxyinit.iptables_rule import DumpError
from proxyinit.iptables_save import parse
from proxyinit.nft_list import parse_tables
from proxyinit.printable import printable
from proxyinit.rules import IPV4, IPV6, Chain, Rule, Ruleset, Source, Subnet, Verdict
from tests.imports import effects

SECONDS = float(os.environ.get("PROXYINIT_FUZZ_SECONDS", "0"))
DUMPS = [p.read_text() for p in Path(__file__).with_name("dumps").glob("*.txt")]

pytestmark = pytest.mark.timeout(SECONDS + 300)

PROPERTY = settings(
    max_examples=500 if SECONDS else 200,
    deadline=None,
    database=None,
    derandomize=not SECONDS,
    suppress_health_check=[*HealthCheck],
    phases=[Phase.generate, Phase.shrink],
)


def prove(check: Callable[[], None]) -> None:
    """Run a property, and again with other examples until its time is over."""
    end = time.monotonic() + SECONDS
    check()
    while time.monotonic() < end:
        check()


# === texts ===

WORDS = (
    *("*nat", "COMMIT", ":PREROUTING", "ACCEPT", "[0:0]", "-A", "PREROUTING", "OUTPUT"),
    *("-A PREROUTING", "-j", "-g", "-m", "!", "-p", "tcp", "multiport", "--dports"),
    *("1:2,3", "owner", "--uid-owner", "5-6", "comment", "--comment", '"', "\\", "\n"),
    *("-s", "-d", "10.0.0.0/8", "1.2.3.4/255.0.0.255", "fd00::/8", "-i", "eth+", "-f"),
    *("REDIRECT", "--to-ports", "80", "DNAT", "--to-destination", "[::1]:80", "MARK"),
    *(
        "--set-xmark",
        "0x1/0x1",
        "addrtype",
        "--dst-type",
        "LOCAL",
        "conntrack",
        "--mark",
    ),
    *("--ctstate", "NEW", "set", "--match-set", "iprange", "--src-range", "1.1.1.1-"),
    *("table ip nat {", "table inet x {", "chain a {", "}", "type nat hook prerouting"),
    *("priority -100;", "policy accept;", "tcp dport", "{ 80, 90-99 }", "ip saddr"),
    *("!=", "meta skuid", "jump a", "goto a", "return", "redirect to :80", "counter"),
    *("packets 0 bytes 0", "vmap { 1 : accept }", "dnat to 1.2.3.4", "oifname", '"lo"'),
)
spelled = st.lists(st.sampled_from(WORDS) | st.text(max_size=5), max_size=60).map(
    " ".join
) | st.lists(st.sampled_from(WORDS), max_size=60).map("\n".join)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A dump cut, doubled or changed somewhere."""
    dump = draw(st.sampled_from(DUMPS))
    start, end = sorted(draw(st.tuples(*[st.integers(0, len(dump))] * 2)))
    middle = draw(
        st.sampled_from(WORDS) | st.text(max_size=5) | st.just(dump[start:end])
    )
    return dump[:start] + middle + dump[end:]


texts = (
    spelled
    | damaged()
    | st.binary().map(lambda b: b.decode("utf-8", "surrogateescape"))
)


def test_readers_take_any_text() -> None:
    """They read it, or say in a sentence what makes no sense in it."""

    @PROPERTY
    @given(text=texts)
    def check(text: str) -> None:
        for read in (lambda: parse(text, IPV4), lambda: parse_tables(text)):
            with contextlib.suppress(DumpError):
                read()

    prove(check)


def test_explaining_takes_any_dump() -> None:
    """Whatever can be read has an answer, in every form the same."""

    @PROPERTY
    @given(text=texts, packet=packets())
    def check(text: str, packet: Packet) -> None:
        try:
            tables = list(read_dump(text, packet.version).tables)
        except ProxyInitError:
            return
        judge(tables, packet)

    prove(check)


PROC_WORDS = (
    *("|--", "/32", "/x", "LOCAL", "10.0.0.1", "80000000", "f" * 32, "80", "\n", "lo"),
    "f" * 32 + " 80 0 0 0 0 0 0 80200001 lo\n",
)


def test_reading_addresses_takes_any_text() -> None:
    """/proc of other kernels may look otherwise."""

    @PROPERTY
    @given(text=st.lists(st.sampled_from(PROC_WORDS)).map(" ".join))
    def check(text: str) -> None:
        own_of_fib_trie(text)
        own_of_ipv6_route(text)

    prove(check)


# === tables and packets ===


ADDRESSES = {
    4: ("10.0.0.1", "127.0.0.1", "1.2.3.4"),
    6: ("fd00::1", "::1", "2001:db8::1"),
}


@st.composite
def packets(draw: st.DrawFn) -> Packet:
    """A packet of which much or little is known."""
    version = draw(st.sampled_from((IPV4, IPV6)))
    some = {
        4: ("10.0.0.1", "127.0.0.1", "1.2.3.4"),
        6: ("fd00::1", "::1", "2001:db8::1"),
    }
    ends = st.sampled_from(some[version])
    unknown = st.none()
    return Packet(
        version=version,
        source=draw(ends),
        source_port=draw(unknown | st.integers(1, 65535)),
        destination=draw(ends),
        destination_port=draw(st.integers(1, 65535)),
        outbound=draw(st.booleans()),
        protocol=draw(st.sampled_from(("tcp", "udp"))),
        interface=draw(unknown | st.sampled_from(("lo", "eth0"))),
        uid=draw(unknown | st.integers(0, 7)),
        gid=draw(unknown | st.integers(0, 7)),
        mark=draw(st.sampled_from((UNKNOWN_MARK, NO_MARK))),
        own=draw(unknown | st.just((Subnet(IPV4, "10.0.0.1", 32),))),
    )


MATCHES = (
    *("", "-p tcp", "! -p udp", "-m set --match-set a src", "-m limit --limit 1/sec"),
    *("-m owner --uid-owner 5", "-m owner ! --uid-owner 3-6", "-m mark --mark 0x1"),
    *("-m addrtype --dst-type LOCAL", "-i eth0", "-o lo", "-o eth+", "-m odd --odd"),
    *("-p tcp -m tcp --sport 1:9999", "-m conntrack --ctstate NEW"),
)
TARGETS = (
    *("", "-j RETURN", "-j ACCEPT", "-j REDIRECT", "-j MARK --set-xmark 0x1/0x1"),
    *("-j A", "-j B", "-g A", "-g B", "-j NOSUCH", "-j LOG"),
)


@st.composite
def tables(draw: st.DrawFn) -> Ruleset:
    """A table of chains that lead anywhere, in circles too."""
    rule = st.builds("{} {}".format, st.sampled_from(MATCHES), st.sampled_from(TARGETS))
    chains = ("PREROUTING", "OUTPUT", "A", "B")
    rows = [f"-A {n} {r}" for n in chains for r in draw(st.lists(rule, max_size=6))]
    return parse("\n".join(["*nat", ":A -", ":B -", *rows, "COMMIT"]), IPV4)


def test_every_table_has_an_answer() -> None:
    """Of one table and of two."""

    @PROPERTY
    @given(rules=st.lists(tables(), min_size=1, max_size=2), packet=packets())
    def check(rules: list[Ruleset], packet: Packet) -> None:
        named = [
            (str(n), Ruleset(packet.version, r.chains)) for n, r in enumerate(rules)
        ]
        judge(named, packet)

    prove(check)


def judge(named: list[tuple[str, Ruleset]], packet: Packet) -> None:
    """An answer says something, and every form of it says the same."""
    explanation = explain(named, packet)
    assert explanation.outcomes
    assert explanation.sentence
    if not explanation.decided:
        assert explanation.doubts
    shown = text(explanation)
    values = json.loads(json.dumps(as_json(explanation)))
    assert shown.count("\n") == len(list(lines(explanation)))
    assert all(line.isprintable() for line in shown.splitlines())
    assert values["answer"] == explanation.sentence
    for said in strings(values["tables"]):
        assert printable(said) in shown
    for passage, table in zip(explanation.passages, values["tables"], strict=True):
        assert count(passage.trace) == count_json(table["trace"])


SHOWN = ("enter", "text", "why", "undecided")


def strings(value: Any) -> Iterator[str]:
    """Every text in JSON that stands in a line."""
    if isinstance(value, list):
        yield from itertools.chain.from_iterable(map(strings, value))
    elif isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, list | dict):
                yield from strings(inner)
            elif key in SHOWN and isinstance(inner, str):
                yield inner


def count(trace: Trace) -> int:
    """How many steps a trace has, on all its ways."""
    if isinstance(trace.end, Fork):
        return len(trace.steps) + count(trace.end.yes) + count(trace.end.no)
    return len(trace.steps)


def count_json(trace: dict[str, Any]) -> int:
    """The same of its JSON."""
    ways = [trace[way] for way in ("if_so", "if_not") if way in trace]
    return len(trace["steps"]) + sum(map(count_json, ways))


# === bounds ===


def test_every_rule_is_tried_once() -> None:
    """Work grows with the table, not faster."""
    packet = Packet(
        version=IPV4, source="1.1.1.1", destination="2.2.2.2", outbound=False
    )
    for size in (1250, 5000):
        subnets = (Subnet(IPV4, f"10.{n >> 8}.{n & 255}.0", 24) for n in range(size))
        rules = tuple(Rule((Source(s),), Verdict("RETURN")) for s in subnets)
        trace = follow(Ruleset(IPV4, (Chain("PREROUTING", rules),)), packet)

        assert sum(isinstance(step, Try) for step in trace.steps) == size
        assert isinstance(trace.steps[-1], Leave)


# === layers ===

PURE = (
    *("packet", "trace", "tables", "walk", "match", "target", "extension", "show"),
    *("dump", "own", "flags", "mistakes", "view", "option", "address", "nft"),
)


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_touches_nothing(module: str) -> None:
    """It imports no door to the machine; of sockets, addresses' spelling alone."""
    assert effects(f"proxyinit.explain.{module}") == set()
