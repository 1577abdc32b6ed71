"""The native table: what differs is named, and one script mends whatever is live."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit.config import RedirectConfig
from proxyinit.nft_list import parse
from proxyinit.nft_script import render
from proxyinit.plan import plan_inet
from proxyinit.reconcile import (
    differences,
    install_script,
    ours,
    removal_script,
    restore_script,
    result,
)
from proxyinit.rules import (
    INET,
    RETURN,
    Chain,
    Comment,
    PortRange,
    Rule,
    Ruleset,
    Verdict,
)
from proxyinit.testing.native import FakeNative

CONFIG = RedirectConfig(4143, 4140, (2102,), (), (), (PortRange(4190, 4191),))
OTHER = RedirectConfig(1, 2, (3, 0), (7,), (80, 81))
WANTED = plan_inet(CONFIG, ipv6=True)
ABSENT = Ruleset(INET)
TABLE = "inet proxy_init"


def changed(name: str, change: Callable[[Chain], Chain]) -> Ruleset:
    """The table wanted, with one chain of it changed."""
    chains = (change(c) if c.name == name else c for c in WANTED.chains)
    return Ruleset(INET, tuple(chains))


def with_rules(name: str, change: Callable[[list[Rule]], list[Rule]]) -> Ruleset:
    def rebuilt(chain: Chain) -> Chain:
        rules = tuple(change(list(chain.rules)))
        return Chain(chain.name, rules, chain.policy, chain.hook)

    return changed(name, rebuilt)


EXTRA = Rule((Comment("foreign"),), RETURN)
HOOK = "type nat hook prerouting priority -90"
DAMAGES = [
    pytest.param(ABSENT, "chain PREROUTING is missing", id="no table"),
    pytest.param(
        with_rules("OUTPUT", lambda _: []),
        "rule 1 of OUTPUT: expected 'counter jump PROXY_INIT_OUTPUT comment "
        '"proxy-init/install-proxy-init-output"\', found none',
        id="no jump",
    ),
    pytest.param(
        with_rules("PREROUTING", lambda rules: rules * 2),
        "rule 2 of PREROUTING: expected none, found 'counter jump",
        id="a doubled jump",
    ),
    pytest.param(
        with_rules("PREROUTING", lambda rules: [EXTRA, *rules]),
        "rule 1 of PREROUTING: expected 'counter jump PROXY_INIT_REDIRECT",
        id="a foreign rule in front",
    ),
    pytest.param(
        with_rules("PROXY_INIT_OUTPUT", lambda rules: rules[::-1]),
        "rule 1 of PROXY_INIT_OUTPUT",
        id="another order",
    ),
    pytest.param(
        with_rules("PROXY_INIT_REDIRECT", lambda rules: rules[:-1]),
        "found none",
        id="a rule is missing",
    ),
    pytest.param(
        changed("PREROUTING", lambda c: Chain(c.name, c.rules, "DROP", c.hook)),
        "policy accept;', found 'type nat hook prerouting priority -100; policy drop;'",
        id="another policy",
    ),
    pytest.param(
        changed("PREROUTING", lambda c: Chain(c.name, c.rules, "ACCEPT", HOOK)),
        "priority -100; policy accept;', found 'type nat hook prerouting priority -90;",
        id="another priority",
    ),
    pytest.param(
        changed("PREROUTING", lambda c: Chain(c.name, c.rules)),
        "found 'no hook'",
        id="not hooked in",
    ),
    pytest.param(
        Ruleset(INET, (*WANTED.chains, Chain("MINE"))),
        "chain MINE is not wanted in our table",
        id="a foreign chain",
    ),
    pytest.param(
        Ruleset(INET, WANTED.chains, ("flags dormant",)),
        "'flags dormant' is not wanted in our table",
        id="a table put to sleep",
    ),
    pytest.param(
        Ruleset(INET, WANTED.chains, ("set s {\n\t\ttype ipv4_addr\n\t}",)),
        "'set s { type ipv4_addr }' is not wanted in our table",
        id="a foreign set",
    ),
    pytest.param(
        plan_inet(CONFIG, ipv6=False),
        "rule 1 of PREROUTING",
        id="IPv4 alone",
    ),
    pytest.param(
        plan_inet(OTHER, ipv6=True), "rule 1 of PROXY_INIT", id="other arguments"
    ),
]


@pytest.mark.parametrize(("live", "said"), DAMAGES)
def test_every_damage_is_named_and_mended(live: Ruleset, said: str) -> None:
    """One sentence each; the script makes of it what is wanted, and puts it back."""
    assert any(said in sentence for sentence in differences(WANTED, live))

    tables = FakeNative()
    if live != ABSENT:
        tables.feed(render(live))
    tables.feed(install_script(WANTED, live))
    after = parse(tables.dump())

    assert differences(WANTED, after) == []
    assert after == WANTED
    tables.feed(restore_script(live, after))
    assert parse(tables.dump()) == live


def test_nothing_to_do() -> None:
    """What is right is not written again."""
    assert (differences(WANTED, WANTED), install_script(WANTED, WANTED)) == ([], "")


@pytest.mark.parametrize(
    ("live", "deleted"),
    [
        pytest.param(ABSENT, False, id="fresh: no grace period to wait for"),
        pytest.param(plan_inet(OTHER, ipv6=True), False, id="chains can stay"),
        pytest.param(DAMAGES[6].values[0], False, id="a policy can be changed"),
        pytest.param(DAMAGES[7].values[0], True, id="a hook can not"),
        pytest.param(DAMAGES[9].values[0], True, id="a foreign chain goes"),
        pytest.param(DAMAGES[10].values[0], True, id="flags go"),
    ],
)
def test_base_chains_stay_hooked_in_if_they_can(
    live: Ruleset, *, deleted: bool
) -> None:
    """Only what can't be changed in place is deleted and made again."""
    assert ("delete table inet proxy_init" in install_script(WANTED, live)) == deleted


def test_a_table_made_in_the_meantime_is_emptied() -> None:
    """The script for an absent table, fed to a full one, leaves no rule twice."""
    tables = FakeNative()
    tables.feed(render(plan_inet(OTHER, ipv6=True)))

    tables.feed(install_script(WANTED, ABSENT))

    assert parse(tables.dump()) == WANTED


def test_removal() -> None:
    """The whole table goes; a script for nothing is empty."""
    tables = FakeNative()
    tables.feed(render(WANTED))

    tables.feed(removal_script(WANTED))

    assert tables.tables == {}
    assert removal_script(ABSENT) == ""


def test_removal_of_a_table_that_is_gone_already() -> None:
    """Another cleanup was faster: no error."""
    tables = FakeNative()

    tables.feed(removal_script(WANTED))

    assert tables.tables == {}


def test_everything_in_the_table_is_ours() -> None:
    """Nothing of others is kept in it, so the result is what is wanted."""
    live = Ruleset(INET, (*WANTED.chains, Chain("MINE", (EXTRA,))))

    assert ours(live) == live
    assert result(WANTED, live) == WANTED


rules = st.lists(
    st.sampled_from([EXTRA, Rule((), Verdict("X")), *WANTED.chains[3].rules]),
    max_size=4,
).map(tuple)
chains = st.builds(
    Chain,
    st.sampled_from(["PREROUTING", "OUTPUT", "PROXY_INIT_REDIRECT", "MINE"]),
    rules,
    st.just("ACCEPT"),
    st.sampled_from([HOOK, WANTED.chains[0].hook, WANTED.chains[1].hook]),
)
tables_of = st.lists(chains, max_size=4, unique_by=lambda chain: chain.name).map(
    lambda found: Ruleset(INET, (*found, Chain("X")))
)


@settings(deadline=None, max_examples=100)
@given(tables_of, tables_of)
def test_whatever_is_live(live: Ruleset, before: Ruleset) -> None:
    """From any table to the one wanted, and from any to any other on a roll-back."""
    tables = FakeNative()
    tables.feed(render(live))

    tables.feed(install_script(WANTED, live) or "add table inet proxy_init")
    assert differences(WANTED, parse(tables.dump())) == []

    tables.feed(restore_script(before, WANTED))
    assert parse(tables.dump()) == before
