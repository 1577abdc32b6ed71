"""How damaged rules deviate from those wanted, in one sentence a damage."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit.plan import plan, plan_inet
from proxyinit.reconcile import differences
from proxyinit.rules import (
    INET,
    IPV4,
    OUR_CHAINS,
    OUTPUT_CHAIN,
    RETURN,
    Chain,
    Comment,
    Protocol,
    Rule,
    Ruleset,
    Verdict,
)
from proxyinit.verify.checks import DIFFERS, INTERCEPTED, OK
from proxyinit.verify.deviation import MAX_TOLD, jump_deviations, rule_deviations
from proxyinit.verify.facts import Survey
from proxyinit.verify.verdict import judge
from tests.namespace_facts import CONFIG, WANTED, facts

PROPERTY = settings(deadline=None, max_examples=150)
OURS_OUT = plan(CONFIG, IPV4).rules(OUTPUT_CHAIN)
STRAY = Rule((Protocol("tcp"),), Verdict("ACCEPT"))


@st.composite
def damaged(draw: st.DrawFn) -> tuple[Ruleset, Ruleset]:
    """A table as planned, and the same with rules lost, added, doubled and moved."""
    inet = draw(st.booleans())
    wanted = plan_inet(CONFIG, ipv6=True) if inet else plan(CONFIG, IPV4)
    chains = []
    for chain in wanted.chains:
        rules = list(chain.rules)
        for _ in range(draw(st.integers(0, 3))):
            at = draw(st.integers(0, len(rules)))
            what = draw(st.sampled_from(["lose", "add", "double", "move", "change"]))
            if what == "lose":
                del rules[at : at + 1]
            elif what == "move":
                rules = rules[at:] + rules[:at]
            elif what == "change":
                rules[at : at + 1] = [Rule((Comment("mine"),), RETURN)]
            else:
                rules.insert(at, STRAY if what == "add" or not rules else rules[0])
        chains.append(Chain(chain.name, tuple(rules), chain.policy, chain.hook))
    return wanted, Ruleset(wanted.version, tuple(chains), wanted.others)


@PROPERTY
@given(damaged())
def test_deviations_are_told_when_there_are_differences(
    pair: tuple[Ruleset, Ruleset],
) -> None:
    """What installing would write is what verify names: never one without the other."""
    wanted, live = pair

    said = [text for name in OUR_CHAINS for text in rule_deviations(name, wanted, live)]
    said += jump_deviations(wanted, live)
    ours_alone = Ruleset(
        live.version,
        tuple(
            Chain(
                c.name,
                c.rules
                if c.name in OUR_CHAINS
                else tuple(
                    r for r in c.rules if r.verdict and r.verdict.target in OUR_CHAINS
                ),
                c.policy,
                c.hook,
            )
            for c in live.chains
        ),
        live.others,
    )

    assert bool(said) == bool(differences(wanted, ours_alone))


@PROPERTY
@given(damaged())
def test_judging_ends_well(pair: tuple[Ruleset, Ruleset]) -> None:
    """Whatever state rules are in, there is an answer, and a next step with it."""
    _, live = pair
    place = ("nftables" if live.version == INET else "nft", live.version)

    for given_too in (None, WANTED):
        judgement = judge(facts(survey=Survey({place: live}, {})), given_too)

        assert judgement.exit_code in (INTERCEPTED, DIFFERS)
        for check in judgement.checks:
            assert bool(check.advice) == (check.state != OK), check


@pytest.mark.parametrize(
    ("rules", "sentences"),
    [
        pytest.param(OURS_OUT, [], id="as planned"),
        pytest.param(OURS_OUT[1:], ["rule 1, '-m owner", "is missing"], id="one lost"),
        pytest.param(
            (OURS_OUT[1], OURS_OUT[0], *OURS_OUT[2:]),
            ["stands there instead of at"],
            id="two swapped",
        ),
        pytest.param(
            (*OURS_OUT[:2], STRAY, *OURS_OUT[2:]),
            ["rule 3, '-p tcp -j ACCEPT', does not belong there"],
            id="one added",
        ),
        pytest.param(
            (OURS_OUT[0], Rule((), RETURN), *OURS_OUT[2:]),
            ["rule 2, '-j RETURN', is not '-o lo"],
            id="one changed",
        ),
    ],
)
def test_a_deviation_is_named_once(
    rules: tuple[Rule, ...], sentences: list[str]
) -> None:
    """One sentence for one damage, however many rules it moves."""
    live = Ruleset(IPV4, (Chain(OUTPUT_CHAIN, rules),))
    said = list(rule_deviations(OUTPUT_CHAIN, plan(CONFIG, IPV4), live))

    assert len(said) == bool(sentences)
    for sentence in sentences:
        assert sentence in said[0]


def test_many_deviations_are_counted() -> None:
    """A table that is entirely another does not fill the screen."""
    live = Ruleset(IPV4, (Chain(OUTPUT_CHAIN, (STRAY,) * 50),))
    said = list(rule_deviations(OUTPUT_CHAIN, Ruleset(IPV4), live))

    assert len(said) == MAX_TOLD + 1
    assert said[-1] == f"{OUTPUT_CHAIN}: and {50 - MAX_TOLD} more"
