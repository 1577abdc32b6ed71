"""Which tables are asked, and in which order where there are several."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxyinit.config import RedirectConfig
from proxyinit.explain.tables import explain
from proxyinit.plan import plan, plan_inet
from proxyinit.rules import IPV4, IPV6, Chain, Rule, Ruleset, Verdict
from tests.one_table import IN, OUT, table, told

CONFIG = RedirectConfig(4143, 4140)


def test_a_table_without_the_hook_is_not_asked() -> None:
    """A native table may have one chain alone."""
    hook = "type nat hook output priority -100"
    one = Ruleset(IPV4, (Chain("x", (), "ACCEPT", hook),))

    assert told(one).sentence.endswith("the table has no chain at PREROUTING")
    assert told(one, OUT).decided


def test_a_dormant_table_is_not_asked() -> None:
    """Its chains are there, and not hooked in."""
    planned = plan_inet(CONFIG, ipv6=True)
    asleep = Ruleset(planned.version, planned.chains, ("flags dormant",))

    assert told(asleep).sentence.endswith("the table is dormant")


def test_tables_of_the_other_version_are_not_asked() -> None:
    """IPv4 rules say nothing of IPv6 packets."""
    packet = replace(IN, version=IPV6, source="fd00::1", destination="fd00::2")

    assert told(plan(CONFIG, IPV4), packet).sentence.endswith("no nat rules for IPv6")


# === several tables ===


REDIRECTS = table("-A PREROUTING -j REDIRECT --to-ports 1")


MARKS = table("-A PREROUTING -j MARK --set-xmark 0x1/0x1")


WAITS = table("-A PREROUTING -m mark --mark 0x1/0x1 -j REDIRECT --to-ports 2")


def test_the_one_table_that_redirects_decides() -> None:
    """Whether others let the packet pass before or after."""
    passing = table("-A PREROUTING -j ACCEPT")
    explanation = explain([("a", passing), ("b", REDIRECTS), ("c", passing)], IN)

    assert explanation.decided
    assert explanation.outcomes[0].kind == "redirected"
    assert [passage.name for passage in explanation.passages] == ["a", "b", "c"]


def test_two_tables_that_redirect_are_undecided() -> None:
    """Nothing tells which the kernel asks first."""
    other = table("-A PREROUTING -j REDIRECT --to-ports 2")
    explanation = explain([("legacy", REDIRECTS), ("nft", other)], IN)

    assert not explanation.decided
    assert "which of legacy and nft the kernel asks first" in explanation.doubts[0]


def native(port: int, priority: str) -> Ruleset:
    """A table of nf_tables that redirects to a port."""
    hook = f"type nat hook prerouting priority {priority}"
    rule = Rule((), Verdict("REDIRECT", ("--to-ports", str(port))))
    return Ruleset(IPV4, (Chain("pre", (rule,), "ACCEPT", hook),))


@pytest.mark.parametrize(
    ("priority", "ports"),
    [
        pytest.param("-101", [7], id="first of all"),
        pytest.param("-99", [1], id="after iptables"),
        pytest.param("-100", [1, 7], id="nobody knows"),
        pytest.param("odd", [1, 7], id="no number"),
    ],
)
def test_lower_priorities_are_asked_first(priority: str, ports: list[int]) -> None:
    """iptables is hooked in at -100."""
    explanation = explain([("a", REDIRECTS), ("b", native(7, priority))], IN)

    assert [o.ports for o in explanation.outcomes] == [(p, p) for p in ports]
    assert explanation.decided is (len(ports) == 1)


def test_too_many_tables_are_undecided() -> None:
    """Not every order can be tried; those that do nothing don't count."""
    passing = table("-A PREROUTING -j ACCEPT")
    many = [(f"t{n}", native(n, "-100")) for n in range(1, 9)]
    few = [*many[:4], *((f"p{n}", passing) for n in range(9))]

    assert "which of t1 and t2" in explain(many, IN).outcomes[-1].why
    assert len(explain(few, IN).outcomes) == 4


def test_marks_go_from_table_to_table() -> None:
    """In one order the mark is there in time."""
    explanation = explain([("marks", MARKS), ("waits", WAITS)], IN)

    assert {o.kind for o in explanation.outcomes} == {"redirected", "untouched"}
