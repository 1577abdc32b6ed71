"""Which backend is in charge, what else redirects, and what can't be told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proxyinit.plan import plan
from proxyinit.rules import (
    IPV4,
    OUR_CHAINS,
    Chain,
    Protocol,
    Rule,
    Ruleset,
    redirect_to,
)
from proxyinit.verify.checks import (
    COULD_NOT_TELL,
    DIFFERS,
    FAIL,
    INTERCEPTED,
    OK,
    UNKNOWN,
    WARN,
    Check,
    exit_code,
)
from proxyinit.verify.facts import NatHook, Survey
from proxyinit.verify.verdict import judge
from tests.namespace_facts import CONFIG, facts, told


def test_nothing_of_ours() -> None:
    """No rules where all could be read: not intercepted, for certain."""
    judgement = judge(facts(survey=Survey({}, {})))

    assert (judgement.exit_code, judgement.backend) == (DIFFERS, "")
    assert "nothing is redirected" in judgement.checks[0].found


def test_nothing_of_ours_where_one_can_look() -> None:
    """No rules, and tables that could not be read: nobody knows."""
    text = "iptables-save v1.8.9 (legacy): Cannot initialize: Permission denied"
    judgement = judge(facts(survey=Survey({}, {("legacy", IPV4): text})))

    assert judgement.exit_code == COULD_NOT_TELL
    assert any(text in check.found for check in judgement.checks)


def test_an_unreadable_table_beside_a_whole_redirect() -> None:
    """A second backend might be in charge: intercepted can't be said."""
    survey = Survey(facts().survey.tables, {("legacy", IPV4): "iptables who?"})

    assert judge(facts(survey=survey)).exit_code == COULD_NOT_TELL


def test_a_failure_is_certain_whatever_else_is_unknown() -> None:
    """Exit code 3 before 1."""
    bad, unsure = Check("a", FAIL, ""), Check("b", UNKNOWN, "")

    assert exit_code([unsure, bad]) == DIFFERS
    assert exit_code([unsure, Check("c", WARN, "")]) == COULD_NOT_TELL
    assert exit_code([Check("c", WARN, ""), Check("d", OK, "")]) == INTERCEPTED


def test_two_backends_the_hooked_one_is_in_charge() -> None:
    """Chains without a jump are leftovers; with jumps, nobody is in charge alone."""
    own = facts().survey.tables
    chains = tuple(c for c in plan(CONFIG, IPV4).chains if c.name in OUR_CHAINS)
    leftover = facts(
        survey=Survey({("legacy", IPV4): Ruleset(IPV4, chains), **own}, {})
    )
    both = facts(survey=Survey({("legacy", IPV4): plan(CONFIG, IPV4), **own}, {}))

    assert judge(leftover).backend == judge(both).backend == "nft"
    (left,) = [t for t in told(leftover) if t[1] == "backend"]
    (second,) = [t for t in told(both) if t[1] == "backend"]
    assert left == (
        WARN,
        "backend",
        "iptables-legacy (IPv4) holds chains of an earlier run, to which nothing leads",
    )
    assert second[0] == FAIL


def test_rivals_elsewhere() -> None:
    """Another backend's redirect, and another's native table, may come first."""
    foreign = Ruleset(
        IPV4, (Chain("OUTPUT", (Rule((Protocol("tcp"),), redirect_to(9)),)),)
    )
    early = NatHook("ip", "early", "out", "output", -150)
    late = NatHook("ip", "late", "out", "output", -50)
    found = facts(
        survey=Survey({**facts().survey.tables, ("legacy", IPV4): foreign}, {}),
        nat_hooks=(early, late),
        rivals=(
            ("nftables: table ip early", "out: redirect to :9"),
            ("nftables: table ip late", "out: redirect to :9"),
        ),
    )

    assert [(state, name) for state, name, _ in told(found)] == [(WARN, "hooks")] * 2
    texts = [text for *_, text in told(found)]
    assert texts[0].startswith("iptables-legacy, IPv4: OUTPUT: '-p tcp -j REDIRECT")
    assert texts[1].startswith("nftables: table ip early: ")


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        pytest.param({"priority": -50}, "has priority -50, not -100", id="priority"),
        pytest.param({"dormant": True}, "is dormant: nothing asks it", id="dormant"),
    ],
)
def test_own_hooks(hook: dict[str, Any], said: str) -> None:
    """A table of iptables-nft that is asked too late, or never, is told."""
    own = NatHook("ip", "nat", "OUTPUT", "output", -100)
    found = facts(nat_hooks=(replace(own, **hook),))

    ((state, name, text),) = told(found)
    assert (state, name) == (FAIL, "hooks")
    assert said in text
