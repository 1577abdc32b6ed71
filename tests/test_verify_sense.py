"""What verify says of a namespace, from facts alone: no kernel, no root."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit.config import RedirectConfig, parse_subnet
from proxyinit.iptables_save import parse
from proxyinit.plan import plan, plan_inet
from proxyinit.reconcile import differences
from proxyinit.rules import (
    INET,
    IPV4,
    IPV6,
    OUR_CHAINS,
    OUTPUT_CHAIN,
    REDIRECT_CHAIN,
    RETURN,
    Chain,
    Comment,
    PortRange,
    Protocol,
    Rule,
    Ruleset,
    Verdict,
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
from proxyinit.verify.deviation import MAX_TOLD, jump_deviations, rule_deviations
from proxyinit.verify.facts import Facts, Listener, NatHook, Survey
from proxyinit.verify.readback import Wanted
from proxyinit.verify.verdict import judge

PROPERTY = settings(deadline=None, max_examples=150)
CONFIG = RedirectConfig(
    4143,
    4140,
    (2102,),
    inbound_ports_to_ignore=(PortRange(4190, 4191),),
    outbound_ports_to_ignore=(PortRange(25, 25), PortRange(4567, 4568)),
)
WANTED = Wanted(CONFIG, ipv6=True)
POD = ("10.1.0.2", "fd00:1::2")
PROXY = tuple(
    Listener(version, address, port, 2102)
    for version, address in ((4, "0.0.0.0"), (6, "::"))  # noqa: S104  (a value)
    for port in (4143, 4140)
)


def facts(kind: str = "nft", **changes: Any) -> Facts:
    """A namespace in which all is well, but for the changes."""
    tables = {(kind, v): plan(CONFIG, v) for v in (IPV4, IPV6)}
    if kind == "nftables":
        tables = {(kind, INET): plan_inet(CONFIG, ipv6=True)}
    well = Facts(
        survey=Survey(tables, {}),
        addresses=POD,
        listeners=PROXY,
        conntrack=(10, 1000),
    )
    return replace(well, **changes)


def told(found: Facts, given: Wanted | None = None) -> list[tuple[str, str, str]]:
    """(state, name, sentence) of every check that is not well."""
    checks = judge(found, given).checks
    return [(c.state, c.name, c.found) for c in checks if c.state != OK]


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
    for check in judge(found, WANTED).checks:
        assert bool(check.advice) == (check.state != OK), check


# === rules ===


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


# === backends ===


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


# === IPv6, listeners, conntrack ===


def only_ipv4(**changes: Any) -> Facts:
    tables = {("nft", IPV4): plan(CONFIG, IPV4)}
    return facts(survey=Survey(tables, {}), **changes)


@pytest.mark.parametrize(
    ("found", "given", "state"),
    [
        pytest.param(only_ipv4(), None, FAIL, id="in use and not redirected"),
        pytest.param(
            only_ipv4(), Wanted(CONFIG, ipv6=False), WARN, id="as --ipv6=false asks"
        ),
        pytest.param(only_ipv4(addresses=POD[:1]), None, OK, id="not in use"),
        pytest.param(only_ipv4(ipv6=False), None, OK, id="a kernel without IPv6"),
        pytest.param(only_ipv4(ipv6=False), WANTED, OK, id="asked of such a kernel"),
        pytest.param(facts(), None, OK, id="redirected"),
    ],
)
def test_ipv6(found: Facts, given: Wanted | None, state: str) -> None:
    """IPv6 that is in use passes by the proxy unless it is redirected as well."""
    (check,) = [c for c in judge(found, given).checks if c.name == "IPv6"]

    assert check.state == state


def listening(*changes: Listener) -> Facts:
    return facts(listeners=changes)


IN4, OUT4, IN6, OUT6 = (PROXY[n] for n in (0, 1, 2, 3))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        pytest.param(listening(*PROXY), [], id="a socket for each version"),
        pytest.param(
            listening(replace(IN6, dual=True), replace(OUT6, dual=True)),
            [],
            id="one socket for both versions",
        ),
        pytest.param(
            listening(
                IN4,
                IN6,
                replace(OUT4, address="127.0.0.1"),
                replace(OUT6, address="::1"),
            ),
            [],
            id="outbound on loopback is enough",
        ),
        pytest.param(
            listening(),
            [(WARN, "inbound proxy"), (WARN, "outbound proxy")],
            id="no proxy yet",
        ),
        pytest.param(
            listening(Listener(4, "0.0.0.0", 8080, 1000)),  # noqa: S104
            [(WARN, "inbound proxy"), (WARN, "outbound proxy")],
            id="the application alone",
        ),
        pytest.param(
            listening(IN4, IN6), [(FAIL, "outbound proxy")], id="half of a proxy"
        ),
        pytest.param(
            listening(IN4, OUT4),
            [(FAIL, "inbound proxy"), (FAIL, "outbound proxy")],
            id="a proxy that does not hear IPv6",
        ),
        pytest.param(
            listening(replace(IN4, port=4144), replace(OUT4, port=4141)),
            [(FAIL, "inbound proxy"), (FAIL, "outbound proxy")],
            id="a proxy on other ports",
        ),
        pytest.param(
            listening(
                replace(IN4, address="127.0.0.1"),
                replace(IN6, address="::1"),
                OUT4,
                OUT6,
            ),
            [(FAIL, "inbound proxy"), (FAIL, "inbound proxy")],
            id="inbound on loopback hears nobody",
        ),
        pytest.param(
            listening(*(replace(one, uid=0) for one in PROXY)),
            [(FAIL, "inbound proxy"), (FAIL, "outbound proxy")],
            id="another user's program",
        ),
        pytest.param(
            facts(listeners=None),
            [(UNKNOWN, "inbound proxy"), (UNKNOWN, "outbound proxy")],
            id="sockets that can't be seen",
        ),
    ],
)
def test_who_listens(found: Facts, said: list[tuple[str, str]]) -> None:
    """The proxy has to hear what is sent to it, as the user whose traffic passes."""
    assert [(state, name) for state, name, _ in told(found)] == said


def test_another_user_of_a_group_that_may_pass() -> None:
    """The kernel tells no socket's group, so with --proxy-gid it is a warning."""
    config = RedirectConfig(4143, 4140, (2102,), (2102,))
    found = facts(
        survey=Survey({("nft", v): plan(config, v) for v in (IPV4, IPV6)}, {}),
        listeners=tuple(replace(one, uid=0) for one in PROXY),
    )

    assert {state for state, *_ in told(found)} == {WARN}


@pytest.mark.parametrize(
    ("count", "states"),
    [
        pytest.param((899, 1000), [], id="room enough"),
        pytest.param((900, 1000), [WARN], id="nearly full"),
        pytest.param((1000, 1000), [FAIL], id="full"),
        pytest.param(None, [], id="not told by the kernel"),
        pytest.param((10, 0), [], id="no limit"),
    ],
)
def test_conntrack(count: tuple[int, int] | None, states: list[str]) -> None:
    """A connection that can't be tracked is dropped, redirect or not."""
    assert [state for state, *_ in told(facts(conntrack=count))] == states


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
