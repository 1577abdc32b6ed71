"""What verify says of the rules of a namespace, from facts alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from proxyinit.config import RedirectConfig, parse_subnet
from proxyinit.iptables_save import parse
from proxyinit.plan import plan
from proxyinit.rules import (
    IPV4,
    IPV6,
    OUTPUT_CHAIN,
    REDIRECT_CHAIN,
    Chain,
    PortRange,
    Rule,
    Ruleset,
)
from proxyinit.verify.checks import DIFFERS, FAIL, INTERCEPTED, OK
from proxyinit.verify.facts import Facts, Survey
from proxyinit.verify.readback import Wanted
from proxyinit.verify.verdict import judge
from tests.namespace_facts import CONFIG, PROXY, WANTED, facts, told


@pytest.mark.parametrize("kind", ["legacy", "nft", "nftables"])
@pytest.mark.parametrize("wanted", [None, WANTED], ids=["unasked", "as asked"])
def test_all_is_well(kind: str, wanted: Wanted | None) -> None:
    """A redirect as installed, with its proxy, leaves nothing to say."""
    judgement = judge(facts(kind), wanted)

    assert [check for check in judgement.checks if check.state != OK] == []
    assert (judgement.exit_code, judgement.backend) == (INTERCEPTED, kind)
    assert judgement.live == WANTED


def test_every_problem_has_a_next_step() -> None:
    """Whatever is not well comes with an advice, and what is well with none."""
    found = facts(
        survey=Survey({("nft", IPV4): Ruleset(IPV4, (Chain(OUTPUT_CHAIN),))}, {}),
        conntrack=(1000, 1000),
    )
    checks = judge(found, WANTED).checks
    assert {check.state for check in checks} >= {OK, FAIL}
    for check in checks:
        assert bool(check.advice) == (check.state != OK), check


def changed(chain: str, rules: tuple[Rule, ...], version: int = 4) -> Facts:
    """Facts in which a chain of one family has these rules."""
    tables = dict(facts().survey.tables)
    place = ("nft", IPV4 if version == 4 else IPV6)
    chains = [
        Chain(c.name, rules) if c.name == chain else c for c in tables[place].chains
    ]
    tables[place] = Ruleset(place[1], tuple(chains))
    return facts(survey=Survey(tables, {}))


OURS_OUT = plan(CONFIG, IPV4).rules(OUTPUT_CHAIN)
OURS_IN = plan(CONFIG, IPV4).rules(REDIRECT_CHAIN)
TESTS = Path(__file__).parent


def test_rules_of_upstreams_own_program() -> None:
    """What linkerd2-proxy-init leaves is a redirect like ours, and read back as one."""
    dump = (TESTS / "golden" / "seed-dump.txt").read_text(encoding="utf-8")
    found = Facts(survey=Survey({("legacy", IPV4): parse(dump, IPV4)}, {}))
    judgement = judge(found)

    assert judgement.live is not None
    assert judgement.live.config.inbound_port == 4143
    rules = [
        c for c in judgement.checks if c.name in ("rules", "jumps", "owner bypass")
    ]
    assert [check.state for check in rules] == [OK] * 3


@pytest.mark.parametrize(
    "dump",
    [pytest.param(p, id=p.stem) for p in sorted((TESTS / "dumps").glob("*.txt"))],
)
def test_rules_of_others_alone(dump: Path) -> None:
    """What CNI plugins, Docker, Istio and kube-proxy write is not taken for ours."""
    table = parse(dump.read_text(encoding="utf-8"), IPV4)
    judgement = judge(facts(survey=Survey({("nft", IPV4): table}, {})))

    assert (judgement.backend, judgement.live) == ("", None)
    assert judgement.exit_code == DIFFERS


def test_a_loop_is_told() -> None:
    """Without the owner's rule the proxy's own connections come back to it."""
    (found,) = [t for t in told(changed(OUTPUT_CHAIN, OURS_OUT[1:])) if "loop" in t[2]]

    assert found[:2] == (FAIL, "owner bypass")
    assert found[2].startswith("IPv4: ")


def test_a_late_owner_is_a_loop() -> None:
    """Behind the redirect the owner's rule is never reached."""
    late = (*OURS_OUT[1:], OURS_OUT[0])
    (found,) = [t for t in told(changed(OUTPUT_CHAIN, late)) if "loop" in t[2]]

    assert found[:2] == (FAIL, "owner bypass")
    assert f"rule {len(late)} of {OUTPUT_CHAIN}" in found[2]


def test_families_that_differ_are_told_by_their_flags() -> None:
    """Each family may make sense alone; what differs is named as a flag's value."""
    ignoring = replace(
        facts(),
        survey=Survey(
            {
                ("nft", IPV4): plan(CONFIG, IPV4),
                ("nft", IPV6): plan(RedirectConfig(4143, 4140, (2102,)), IPV6),
            },
            {},
        ),
    )

    said = [text for state, name, text in told(ignoring) if name == "families"]
    assert "inbound ports to ignore: IPv4 has 4190:4191, IPv6 none" in said


def test_without_a_redirect_nothing_is_read_back() -> None:
    """A chain that redirects nothing is named, and no flags are made up."""
    judgement = judge(changed(REDIRECT_CHAIN, OURS_IN[:1], 4))
    assert judgement.live == WANTED  # IPv6 says it

    both = changed(REDIRECT_CHAIN, OURS_IN[:1], 4)
    tables = {**both.survey.tables, ("nft", IPV6): Ruleset(IPV6)}
    judgement = judge(facts(survey=Survey(tables, {})))
    assert judgement.live is None
    assert any(
        check.found == f"IPv4: {REDIRECT_CHAIN}: none of its rules redirects"
        for check in judgement.checks
    )
    assert judgement.exit_code == DIFFERS


@pytest.mark.parametrize(
    ("config", "said"),
    [
        pytest.param(
            RedirectConfig(4143, 4143, (2102,)),
            "both directions lead to port 4143",
            id="one port for both directions",
        ),
        pytest.param(
            RedirectConfig(
                4143, 4140, (2102,), outbound_ports_to_ignore=(PortRange(1, 65535),)
            ),
            "outbound connections are all ignored: every port",
            id="every port ignored",
        ),
        pytest.param(
            RedirectConfig(
                4143,
                4140,
                (2102,),
                inbound_subnets_to_ignore=(parse_subnet("0.0.0.0/0"),),
            ),
            "inbound connections are all ignored: 0.0.0.0/0",
            id="every source ignored",
        ),
    ],
)
def test_senseless_configurations(config: RedirectConfig, said: str) -> None:
    """Rules may be exactly as asked for and still intercept nothing."""
    tables = {("nft", v): plan(config, v) for v in (IPV4, IPV6)}
    found = facts(survey=Survey(tables, {}), listeners=PROXY)

    assert said in [text for _, name, text in told(found) if name == "configuration"]
