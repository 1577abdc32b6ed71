"""What targets do to a packet, and the marks that they set."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxyinit.explain.packet import Mark
from proxyinit.explain.trace import Outcome
from proxyinit.rules import IPV6, Chain, Extension, Rule, Ruleset, Verdict
from tests.one_table import IN, OUT, ends, table, told


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


def test_nft_may_set_the_mark() -> None:
    """To what, is not looked at."""
    hook = "type nat hook prerouting priority -100"
    unknown = Rule((Extension("nft", ("meta", "mark", "set", "0x1")),), None)
    asks = Rule((Extension("mark", ("--mark", "0x1")),), Verdict("ACCEPT"))
    rules = Ruleset(1, (Chain("x", (unknown, asks), "ACCEPT", hook),))

    kinds = {outcome.kind for outcome in told(rules).outcomes}

    assert kinds == {"untouched"}
    assert "mark is not known" in told(rules).doubts[0]
