"""The way through chains: jumps, gotos, policies, targets, forks and their bounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from proxyinit.config import RedirectConfig, parse_ports
from proxyinit.explain.packet import NO_MARK, Mark, Packet
from proxyinit.explain.tables import explain, follow
from proxyinit.explain.trace import Enter, Explanation, Leave, Outcome, Try
from proxyinit.explain.walk import MAX_FORKS
from proxyinit.iptables_save import parse
from proxyinit.plan import plan, plan_inet
from proxyinit.rules import IPV4, IPV6, Chain, Extension, Rule, Ruleset, Verdict

DUMPS = Path(__file__).with_name("dumps")
IN = Packet(
    version=IPV4,
    source="10.9.0.1",
    source_port=40000,
    destination="10.1.0.2",
    destination_port=8080,
    outbound=False,
    interface="eth0",
    mark=NO_MARK,
    own=(),
)
OUT = replace(IN, outbound=True, uid=1000, gid=1000)
CONFIG = RedirectConfig(
    4143,
    4140,
    proxy_uids=(2102,),
    inbound_ports_to_ignore=(parse_ports("4190-4191"),),
)


def table(*rules: str, heads: str = "") -> Ruleset:
    """A table whose rules are spelled as in a dump, chains declared by use."""
    return parse("\n".join(["*nat", *heads.split("|"), *rules, "COMMIT", ""]), IPV4)


def told(rules: Ruleset, packet: Packet = IN) -> Explanation:
    """What is told of a packet and one table."""
    return explain([("iptables", rules)], packet)


def ends(rules: Ruleset, packet: Packet = IN) -> tuple[tuple[str, str, int], ...]:
    """Kind, chain and rule of every outcome."""
    return tuple((o.kind, o.chain, o.number) for o in told(rules, packet).outcomes)


@pytest.mark.parametrize(
    ("packet", "sentence"),
    [
        pytest.param(
            IN,
            "redirected to the proxy at 4143, original destination 10.1.0.2:8080 "
            "preserved, by rule 2 of PROXY_INIT_REDIRECT "
            "(proxy-init/redirect-all-incoming-to-proxy-port)",
            id="inbound",
        ),
        pytest.param(
            replace(IN, destination_port=4191),
            "not redirected, goes to 10.1.0.2:4191 as it is, by rule 1 of "
            "PROXY_INIT_REDIRECT (proxy-init/ignore-port-4190:4191)",
            id="ignored port",
        ),
        pytest.param(
            OUT,
            "redirected to the proxy at 4140, original destination 10.1.0.2:8080 "
            "preserved, by rule 3 of PROXY_INIT_OUTPUT "
            "(proxy-init/redirect-all-outgoing-to-proxy-port)",
            id="outbound",
        ),
        pytest.param(
            replace(OUT, uid=2102),
            "not redirected, goes to 10.1.0.2:8080 as it is, by rule 1 of "
            "PROXY_INIT_OUTPUT (proxy-init/ignore-proxy-user-id)",
            id="the proxy's own",
        ),
        pytest.param(
            replace(IN, protocol="udp"),
            "not redirected, goes to 10.1.0.2:8080 as it is: no rule takes it",
            id="UDP",
        ),
    ],
)
def test_our_rules_in_one_sentence(packet: Packet, sentence: str) -> None:
    """Planned for iptables or for nftables, the answer is the same but for numbers."""
    assert told(plan(CONFIG, IPV4), packet).sentence == sentence
    native = explain([("nftables", plan_inet(CONFIG, ipv6=True))], packet)
    assert (
        native.sentence.partition(", by rule")[0] == sentence.partition(", by rule")[0]
    )


def test_every_step_is_told() -> None:
    """Chains entered, rules tried, why one did not match, and the end."""
    trace = follow(plan(CONFIG, IPV4), IN)

    assert [(type(step), step.chain, step.depth) for step in trace.steps] == [
        (Enter, "PREROUTING", 0),
        (Try, "PREROUTING", 0),
        (Enter, "PROXY_INIT_REDIRECT", 1),
        (Try, "PROXY_INIT_REDIRECT", 1),
        (Try, "PROXY_INIT_REDIRECT", 1),
    ]
    tried = [step for step in trace.steps if isinstance(step, Try)]
    assert [(step.number, step.matched, step.why) for step in tried] == [
        (1, True, ""),
        (1, False, "the destination port is 8080"),
        (2, True, ""),
    ]


# === chains ===


def test_a_jump_comes_back_behind_its_rule() -> None:
    """At the end of the chain, and by RETURN."""
    rules = table(
        "-A PREROUTING -j A",
        "-A PREROUTING -j REDIRECT --to-ports 1",
        "-A A -j B",
        "-A A -j RETURN",
        "-A A -j ACCEPT",
        heads=":A - [0:0]|:B - [0:0]",
    )

    assert ends(rules) == (("redirected", "PREROUTING", 2),)
    left = [s.then for s in follow(rules, IN).steps if isinstance(s, Leave)]
    assert left == ["end of the chain, back to A", "RETURN, back to PREROUTING"]


def test_a_goto_comes_back_to_where_its_chain_would() -> None:
    """The rules behind the goto are passed over, those of the caller are not."""
    rules = table(
        "-A PREROUTING -j A",
        "-A PREROUTING -j REDIRECT --to-ports 1",
        "-A A -g B",
        "-A A -j ACCEPT",
        "-A B -p udp -j ACCEPT",
        heads=":A - [0:0]|:B - [0:0]",
    )

    assert ends(rules) == (("redirected", "PREROUTING", 2),)


def test_a_goto_of_a_builtin_chain_comes_back_to_its_policy() -> None:
    """There is nothing to return to."""
    rules = table(
        "-A PREROUTING -g A",
        "-A PREROUTING -j REDIRECT --to-ports 1",
        "-A A -j RETURN",
        heads=":PREROUTING DROP [0:0]|:A - [0:0]",
    )

    assert ends(rules) == (("dropped", "", 0),)


@pytest.mark.parametrize(
    ("policy", "kind"), [("ACCEPT", "untouched"), ("DROP", "dropped")]
)
def test_what_no_rule_takes_meets_the_policy(policy: str, kind: str) -> None:
    """RETURN of a builtin chain leads there as well."""
    head = f":PREROUTING {policy} [0:0]"

    assert told(table(heads=head)).outcomes[0].kind == kind
    returned = table("-A PREROUTING -j RETURN", heads=head)
    assert told(returned).outcomes[0].kind == kind


def test_chains_in_a_circle_end_undecided() -> None:
    """No kernel holds such a table, but a dump may."""
    rules = table(
        "-A PREROUTING -j A", "-A A -j B", "-A B -g A", heads=":A - [0:0]|:B - [0:0]"
    )

    explanation = told(rules)

    assert not explanation.decided
    assert "in a circle at A" in explanation.sentence


def test_a_chain_may_be_entered_again() -> None:
    """Twice in a row is no circle."""
    rules = table(
        "-A PREROUTING -j A",
        "-A PREROUTING -j A",
        "-A PREROUTING -j REDIRECT --to-ports 1",
        "-A A -g B",
        heads=":A - [0:0]|:B - [0:0]",
    )

    assert ends(rules) == (("redirected", "PREROUTING", 3),)


def test_chains_that_multiply_end_undecided() -> None:
    """Thirty chains that jump twice to the next would be 2^30 rules."""
    rules = [f"-A C{n} -j C{n + 1}" for n in range(30) for _ in range(2)]
    heads = "|".join(f":C{n} - [0:0]" for n in range(31))

    explanation = told(table("-A PREROUTING -j C0", *rules, heads=heads))

    assert "more than 200000 rules" in explanation.sentence


def test_chains_as_deep_as_there_are_names() -> None:
    """Depth costs no recursion."""
    rules = [f"-A C{n} -j C{n + 1}" for n in range(3000)]
    heads = "|".join(f":C{n} - [0:0]" for n in range(3001))
    last = "-A C3000 -j REDIRECT --to-ports 1"

    assert told(table("-A PREROUTING -j C0", *rules, last, heads=heads)).decided


def test_a_table_without_the_hook_is_not_asked() -> None:
    """A native table may have one chain alone."""
    hook = "type nat hook output priority -100"
    native = Ruleset(IPV4, (Chain("x", (), "ACCEPT", hook),))

    assert told(native).sentence.endswith("the table has no chain at PREROUTING")
    assert told(native, OUT).decided


def test_a_dormant_table_is_not_asked() -> None:
    """Its chains are there, and not hooked in."""
    planned = plan_inet(CONFIG, ipv6=True)
    asleep = Ruleset(planned.version, planned.chains, ("flags dormant",))

    assert told(asleep).sentence.endswith("the table is dormant")


def test_tables_of_the_other_version_are_not_asked() -> None:
    """IPv4 rules say nothing of IPv6 packets."""
    packet = replace(IN, version=IPV6, source="fd00::1", destination="fd00::2")

    assert told(plan(CONFIG, IPV4), packet).sentence.endswith("no nat rules for IPv6")


# === targets ===


@pytest.mark.parametrize(
    ("target", "outcome"),
    [
        pytest.param("REDIRECT", Outcome(kind="redirected"), id="the same port"),
        pytest.param(
            "REDIRECT --to-ports 80-90",
            Outcome(kind="redirected", ports=(80, 90)),
            id="one of many ports",
        ),
        pytest.param(
            "DNAT --to-destination 1.2.3.4",
            Outcome(kind="translated", address="1.2.3.4"),
            id="another address",
        ),
        pytest.param(
            "DNAT --to-destination 1.2.3.4:80",
            Outcome(kind="translated", address="1.2.3.4", ports=(80, 80)),
            id="address and port",
        ),
        pytest.param(
            "DNAT --to-destination :80-81 --random",
            Outcome(kind="translated", ports=(80, 81)),
            id="ports alone",
        ),
        pytest.param(
            "DNAT --to-destination [fd00::1]:80",
            Outcome(kind="translated", address="fd00::1", ports=(80, 80)),
            id="IPv6 in brackets",
        ),
        pytest.param(
            "DNAT --to-destination fd00::1",
            Outcome(kind="translated", address="fd00::1"),
            id="IPv6 bare",
        ),
        pytest.param(
            "NETMAP --to 192.168.7.0/24",
            Outcome(kind="translated", address="192.168.7.2"),
            id="another network, the same host",
        ),
        pytest.param("ACCEPT", Outcome(kind="untouched"), id="accepted"),
        pytest.param("DROP", Outcome(kind="dropped"), id="dropped"),
        *(
            pytest.param(target, Outcome(kind="unknown"), id=f"nobody knows {target}")
            for target in (
                "DNAT --to-destination 1.2.3.4:80-90/70",
                "DNAT --to-destination 1.2.3.4-1.2.3.9",
                "DNAT --to-destination nonsense",
                "DNAT",
                "REDIRECT --to-ports",
                "NETMAP --to 1.2.3.4",
                "NFQUEUE --queue-num 1",
                "MASQUERADE",
                "TPROXY --on-port 1",
            )
        ),
    ],
)
def test_targets_that_end_the_way(target: str, outcome: Outcome) -> None:
    """Where the packet goes to, as far as the rule says it."""
    assert told(table(f"-A PREROUTING -p tcp -j {target}")).outcomes == (outcome,)


@pytest.mark.parametrize(
    "target",
    ["LOG --log-prefix x", "NFLOG", "TRACE", "CLASSIFY --set-class 1:1", "AUDIT"],
)
def test_targets_that_let_the_packet_go_on(target: str) -> None:
    """They make no difference, even where it is not known whether they match."""
    rules = table(
        f"-A PREROUTING -m set --match-set a src -j {target}",
        "-A PREROUTING -m set --match-set a src",
        "-A PREROUTING -j REDIRECT",
    )

    assert ends(rules) == (("redirected", "PREROUTING", 3),)
    assert told(rules).doubts == ()


def test_an_unknown_target_may_do_anything() -> None:
    """It may end the way, or not; and its marks are nobody's business."""
    rules = table(
        "-A PREROUTING -j NOSUCH --thing",
        "-A PREROUTING -m mark --mark 0x1 -j ACCEPT",
        "-A PREROUTING -j REDIRECT",
    )

    assert ends(rules) == (
        ("unknown", "PREROUTING", 1),
        ("untouched", "PREROUTING", 2),
        ("redirected", "PREROUTING", 3),
    )


def test_redirects_of_what_is_sent_here_go_to_loopback() -> None:
    """Those of what comes in go to the interface's own address."""
    rules = table("-A PREROUTING -j REDIRECT", "-A OUTPUT -j REDIRECT")

    assert told(rules, OUT).outcomes[0].address == "127.0.0.1"
    assert told(rules, IN).outcomes[0].address == ""


# === marks ===


@pytest.mark.parametrize(
    ("target", "mark"),
    [
        pytest.param("MARK --set-xmark 0x4000/0x4000", 0x4001, id="bits"),
        pytest.param("MARK --set-xmark 0x2/0xffffffff", 2, id="the whole"),
        pytest.param("MARK --set-mark 0x6/0x3", 6, id="set-mark"),
        pytest.param("MARK --and-mark 0x0", 0, id="and"),
        pytest.param("MARK --or-mark 0x10", 0x11, id="or"),
        pytest.param("MARK --xor-mark 0x1", 0, id="xor"),
    ],
)
def test_marks_are_seen_by_later_rules(target: str, mark: int) -> None:
    """What MARK sets decides a later match."""
    packet = replace(IN, mark=Mark(1, 0xFFFFFFFF))
    rules = table(
        f"-A PREROUTING -j {target}",
        f"-A PREROUTING -m mark --mark {mark:#x} -j REDIRECT",
    )

    assert ends(rules, packet) == (("redirected", "PREROUTING", 2),)


@pytest.mark.parametrize(
    "target",
    ["MARK --odd 5", "MARK", "CONNMARK --restore-mark --nfmask 0x1 --ctmask 0x3"],
)
def test_marks_set_in_odd_ways_are_not_known(target: str) -> None:
    """What can't be read may have set any mark."""
    rules = table(
        f"-A PREROUTING -j {target}", "-A PREROUTING -m mark --mark 0x0 -j REDIRECT"
    )

    assert [kind for kind, _, _ in ends(rules)] == ["redirected", "untouched"]


def test_another_network_of_ipv6() -> None:
    """The host's bits are kept."""
    rules = Ruleset(IPV6, table("-A PREROUTING -j NETMAP --to fd00:7::/64").chains)
    packet = replace(IN, version=IPV6, source="fd00::1", destination="fd00::2")

    (outcome,) = told(rules, packet).outcomes

    assert (outcome.kind, outcome.address) == ("translated", "fd00:7::2")


def test_dnat_to_the_other_version_does_nothing() -> None:
    """In a table of both, a packet goes on behind it."""
    hook = "type nat hook prerouting priority -100"
    to_six = Rule((), Verdict("DNAT", ("--to-destination", "[fd00::1]:5")))
    to_four = Rule((), Verdict("DNAT", ("--to-destination", "1.2.3.4:5")))
    rules = Ruleset(1, (Chain("x", (to_six, to_four), "ACCEPT", hook),))

    assert ends(rules) == (("translated", "x", 2),)


def test_unknown_targets_are_bounded_as_well() -> None:
    """Each may let the packet go on."""
    rules = table(*["-A PREROUTING -j NOSUCH"] * 1000)

    assert not told(rules).decided


def test_sentences_name_rules_and_reasons() -> None:
    """Of what is dropped, and sent elsewhere."""
    drops = told(table("-A PREROUTING -m comment --comment why -j DROP"))
    sends = told(table("-A PREROUTING -p tcp -j DNAT --to-destination 1.2.3.4:5-6"))
    empty = told(table("-A PREROUTING -j REDIRECT"))

    assert drops.sentence == "dropped, by rule 1 of PREROUTING (why)"
    assert sends.sentence.startswith("sent to 1.2.3.4, port one of 5-6 instead of")
    assert empty.sentence.startswith("redirected to port 8080, original")


def test_marks_of_connections_are_seen_by_later_rules() -> None:
    """Saved, changed and restored."""
    masks = "--nfmask 0xff --ctmask 0xff"
    rules = table(
        "-A PREROUTING -j MARK --set-xmark 0x5/0xffffffff",
        f"-A PREROUTING -j CONNMARK --save-mark {masks}",
        "-A PREROUTING -m connmark ! --mark 0x5/0xff -j ACCEPT",
        "-A PREROUTING -j CONNMARK --set-xmark 0x7/0xff",
        f"-A PREROUTING -j CONNMARK --restore-mark {masks}",
        "-A PREROUTING -m mark --mark 0x7 -j REDIRECT",
    )

    assert ends(rules) == (("redirected", "PREROUTING", 6),)


def test_a_mark_that_may_be_set_is_not_known() -> None:
    """A MARK behind an undecided match leads to two ways."""
    rules = table(
        "-A PREROUTING -m set --match-set a src -j MARK --set-xmark 0x1/0x1",
        "-A PREROUTING -m mark --mark 0x1/0x1 -j REDIRECT",
    )

    assert [kind for kind, _, _ in ends(rules)] == ["redirected", "untouched"]


# === forks ===


def test_both_ways_are_shown_where_it_can_not_be_known() -> None:
    """Each with the rules that it alone tries."""
    rules = table(
        "-A PREROUTING -m set --match-set a src -j ACCEPT",
        "-A PREROUTING -j REDIRECT --to-ports 5",
    )
    explanation = told(rules)

    assert not explanation.decided
    assert explanation.doubts == ("what the set a holds is not known",)
    assert explanation.sentence == (
        "undecided: not redirected, goes to 10.1.0.2:8080 as it is; or redirected to "
        "port 5, original destination 10.1.0.2:8080 preserved"
    )


def test_ways_that_fare_the_same_are_one_answer() -> None:
    """What is not known makes no difference then."""
    rules = table(
        "-A PREROUTING -m set --match-set a src -j REDIRECT --to-ports 5",
        "-A PREROUTING -j REDIRECT --to-ports 5",
    )
    explanation = told(rules)

    assert explanation.decided
    assert explanation.doubts


def test_a_question_has_one_answer_on_a_way() -> None:
    """Istio asks for its proxy's user again and again."""
    rules = parse((DUMPS / "istio.txt").read_text(encoding="utf-8"), IPV4)
    packet = replace(OUT, uid=None, gid=5, destination="127.0.0.1", interface=None)

    explanation = told(rules, packet)

    assert explanation.decided
    assert len(list(explanation.passages[0].trace.reasons())) == 1


@pytest.mark.parametrize("uid", [1337, 1338])
def test_an_owner_that_was_supposed_is_no_other(uid: int) -> None:
    """Who is user 5 is neither another nor outside 4 to 6."""
    rules = table(
        "-A OUTPUT -m owner --uid-owner 5 -j A",
        "-A OUTPUT -j REDIRECT --to-ports 1",
        f"-A A -m owner --uid-owner {uid} -j ACCEPT",
        "-A A -m owner ! --uid-owner 4-6 -j ACCEPT",
        "-A A -j REDIRECT --to-ports 2",
        heads=":A - [0:0]",
    )

    assert ends(rules, replace(OUT, uid=None)) == (
        ("redirected", "A", 3),
        ("redirected", "OUTPUT", 2),
    )


def test_an_owner_that_was_ruled_out_stays_so() -> None:
    """Who is none of 4 to 6 is not user 5."""
    rules = table(
        "-A OUTPUT -m owner --uid-owner 4-6 -j ACCEPT",
        "-A OUTPUT -m owner --uid-owner 5 -j DROP",
        "-A OUTPUT -j REDIRECT",
    )

    kinds = [kind for kind, _, _ in ends(rules, replace(OUT, uid=None))]
    assert kinds == ["untouched", "redirected"]


def test_whether_an_address_is_own_is_one_question() -> None:
    """If it is, packets to it leave by lo."""
    rules = table(
        "-A OUTPUT -m addrtype --dst-type LOCAL -j A",
        "-A OUTPUT -j REDIRECT --to-ports 1",
        "-A A -o lo -j ACCEPT",
        "-A A -j DROP",
        heads=":A - [0:0]",
    )
    packet = replace(OUT, interface=None, own=None, destination="10.3.3.3")

    assert [kind for kind, _, _ in ends(rules, packet)] == ["untouched", "redirected"]


def test_a_negated_option_of_several_is_no_negated_match() -> None:
    """If not both hold, it may be for the other one."""
    rules = table(
        "-A PREROUTING -m odd ! --one x --two y -j ACCEPT",
        "-A PREROUTING -m odd --one x --two y -j DROP",
        "-A PREROUTING -j REDIRECT",
    )

    assert [kind for kind, _, _ in ends(rules)] == [
        *("untouched", "dropped", "redirected"),
    ]


@pytest.mark.parametrize(
    ("between", "kinds"),
    [
        pytest.param("-j LOG", ["untouched"], id="it was not in the set"),
        pytest.param(
            "-j SET --add-set a src", ["untouched", "redirected"], id="it may be now"
        ),
        pytest.param(
            "-m limit --limit 1/sec -j SET --add-set a src",
            ["untouched", "redirected"],
            id="it may be by chance",
        ),
    ],
)
def test_a_set_is_asked_again_when_it_was_changed(
    between: str, kinds: list[str]
) -> None:
    """What was supposed of it holds until then."""
    rules = table(
        "-A PREROUTING -m set --match-set a src -j ACCEPT",
        f"-A PREROUTING {between}",
        "-A PREROUTING -m set --match-set a src -j REDIRECT",
    )

    assert sorted({kind for kind, _, _ in ends(rules)}) == sorted(kinds)


def test_what_is_random_is_asked_each_time() -> None:
    """Two coins, three outcomes."""
    coin = "-m statistic --mode random --probability 0.5"
    rules = table(*(f"-A PREROUTING {coin} -j REDIRECT --to-ports {n}" for n in (1, 2)))

    assert [kind for kind, _, _ in ends(rules)] == [
        *("redirected", "redirected", "untouched"),
    ]


def test_forks_are_bounded() -> None:
    """A thousand unknown sets are told as too many."""
    rules = [f"-A PREROUTING -m set --match-set s{n} src -j A" for n in range(1000)]

    explanation = told(table(*rules, "-A A -p udp", heads=":A - [0:0]"))

    assert not explanation.decided
    assert f"more than {MAX_FORKS} forks" in " ".join(explanation.doubts)


def test_what_is_taken_for_granted_is_said() -> None:
    """Without the namespace's addresses another host's is supposed, and told."""
    packet = replace(OUT, interface=None, own=None, source="10.3.3.3")
    explanation = told(plan(CONFIG, IPV4), packet)

    assert explanation.decided
    assert explanation.premises[0].startswith("10.1.0.2 belongs to another host")
    assert told(plan(CONFIG, IPV4), IN).premises == ()


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


def test_nft_may_set_the_mark() -> None:
    """To what, is not looked at."""
    hook = "type nat hook prerouting priority -100"
    unknown = Rule((Extension("nft", ("meta", "mark", "set", "0x1")),), None)
    asks = Rule((Extension("mark", ("--mark", "0x1")),), Verdict("ACCEPT"))
    rules = Ruleset(1, (Chain("x", (unknown, asks), "ACCEPT", hook),))

    kinds = {outcome.kind for outcome in told(rules).outcomes}

    assert kinds == {"untouched"}
    assert "mark is not known" in told(rules).doubts[0]
