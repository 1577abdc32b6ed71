"""The way through chains: jumps, gotos, policies, and where it ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxyinit.config import RedirectConfig, parse_ports
from proxyinit.explain.packet import Packet
from proxyinit.explain.tables import explain, follow
from proxyinit.explain.trace import Enter, Leave, Try
from proxyinit.plan import plan, plan_inet
from proxyinit.rules import IPV4
from tests.one_table import IN, OUT, ends, table, told

CONFIG = RedirectConfig(
    4143,
    4140,
    proxy_uids=(2102,),
    inbound_ports_to_ignore=(parse_ports("4190-4191"),),
)


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


def test_sentences_name_rules_and_reasons() -> None:
    """Of what is dropped, and sent elsewhere."""
    drops = told(table("-A PREROUTING -m comment --comment why -j DROP"))
    sends = told(table("-A PREROUTING -p tcp -j DNAT --to-destination 1.2.3.4:5-6"))
    empty = told(table("-A PREROUTING -j REDIRECT"))

    assert drops.sentence == "dropped, by rule 1 of PREROUTING (why)"
    assert sends.sentence.startswith("sent to 1.2.3.4, port one of 5-6 instead of")
    assert empty.sentence.startswith("redirected to port 8080, original")


def test_what_is_taken_for_granted_is_said() -> None:
    """Without the namespace's addresses another host's is supposed, and told."""
    packet = replace(OUT, interface=None, own=None, source="10.3.3.3")
    explanation = told(plan(CONFIG, IPV4), packet)

    assert explanation.decided
    assert explanation.premises[0].startswith("10.1.0.2 belongs to another host")
    assert told(plan(CONFIG, IPV4), IN).premises == ()


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
