"""Whether connections get to our jumps, judged on the text of a table."""

from __future__ import annotations

import pytest

from proxyinit.iptables_save import parse
from proxyinit.reach import Shadow, rivals, shadows
from proxyinit.rules import IPV4, Protocol, Rule, Verdict

JUMP = "-A PREROUTING -j PROXY_INIT_REDIRECT"
CHAINS = ("PREROUTING", "OUTPUT", "A", "B", "PROXY_INIT_REDIRECT", "PROXY_INIT_OUTPUT")


def found(*lines: str) -> list[Shadow]:
    heads = [f":{name} - [0:0]" for name in CHAINS]
    return list(shadows(parse("\n".join(["*nat", *heads, *lines, "COMMIT", ""]), IPV4)))


@pytest.mark.parametrize(
    "rule",
    [
        *("-j ACCEPT", "-p tcp -j ACCEPT", "-p 6 -j DROP", "-p all -j RETURN"),
        *("-p tcp -m tcp --dport 80 -j ACCEPT", "-s 10.0.0.0/8 -j RETURN"),
        *("! -p udp -j ACCEPT", "! -i lo -j ACCEPT", "-i eth0 -j ACCEPT"),
        *("! -d 127.0.0.0/8 -j ACCEPT", "-d 126.0.0.0/7 -j ACCEPT", "-d ::2 -j DROP"),
        *("-d 127.0.0.0/7 -j ACCEPT", "-p tcp -j REDIRECT --to-ports 1", "-j NOVEL"),
        *("-m set --match-set x src -j ACCEPT", "-d 0.0.0.0/0 -j DNAT --to x"),
    ],
)
def test_a_rule_that_takes_connections(rule: str) -> None:
    """A terminal rule in the builtin chain is an obstacle, however narrow."""
    (shadow,) = found(f"-A PREROUTING {rule}", JUMP)

    assert shadow.certain
    assert (shadow.chain, shadow.number, shadow.within) == ("PREROUTING", 1, "")


@pytest.mark.parametrize(
    "rule",
    [
        *(
            "-p udp -j ACCEPT",
            "! -p tcp -j ACCEPT",
            "-p icmp -j DROP",
            "-i lo -j ACCEPT",
        ),
        *("-o lo -j ACCEPT", "-d 127.0.0.11/32 -j ACCEPT", "-d ::1/128 -j RETURN"),
        *(
            "-p tcp",
            "-j LOG --log-prefix x",
            "-j MARK --set-xmark 0x1",
            "-j CT",
            "-j A",
        ),
        '-m comment --comment "-j ACCEPT"',
    ],
)
def test_a_rule_that_takes_none(rule: str) -> None:
    """Other protocols, loopback, and targets after which a packet goes on."""
    assert found(f"-A PREROUTING {rule}", JUMP) == []


def test_only_what_stands_in_front_counts() -> None:
    """The number is that of the rule; behind the jump all is allowed."""
    shadow, another = found(
        *("-A OUTPUT -p udp -j DROP", "-A OUTPUT -j DROP", "-A OUTPUT -p tcp -j DROP"),
        *("-A OUTPUT -g PROXY_INIT_OUTPUT", "-A OUTPUT -j ACCEPT"),
        *(JUMP, "-A PREROUTING -j DROP"),
    )

    assert (shadow.chain, shadow.number) == ("OUTPUT", 2)
    assert another.rule == Rule((Protocol("tcp"),), Verdict("DROP"))


def test_without_a_jump_everything_stands_in_front() -> None:
    """A table that holds no jump of ours has nothing that could be reached."""
    assert len(found("-A OUTPUT -j DROP", "-A PREROUTING -j DROP")) == 2


@pytest.mark.parametrize(
    ("lines", "certain"),
    [
        pytest.param(["-A A -j ACCEPT"], True, id="takes all"),
        pytest.param(["-A A -p tcp -j ACCEPT"], True, id="takes all of TCP"),
        pytest.param(["-A A -j B", "-A B -j DROP"], True, id="through another chain"),
        pytest.param(["-A A -g B", "-A B -j DROP"], True, id="by goto"),
        pytest.param(["-A A -s 10.0.0.0/8 -j ACCEPT"], False, id="takes some"),
        pytest.param(
            ["-A A -s 10.0.0.0/8 -j RETURN", "-A A -j DROP"], False, id="lets some go"
        ),
        pytest.param(
            ["-A A -s 10.0.0.0/8 -g B", "-A A -j DROP"], False, id="some go by goto"
        ),
        pytest.param(
            ["-A A -j B", "-A B -s 10.0.0.0/8 -j DROP"], False, id="some, deeper"
        ),
        pytest.param(
            ["-A A -s 10.0.0.0/8 -j B", "-A B -j DROP"], False, id="all of some"
        ),
        pytest.param(
            ["-A A -s 10.0.0.0/8 -j DROP", "-A A -j RETURN", "-A A -j DROP"],
            False,
            id="some, before all return",
        ),
        pytest.param(
            ["-A A -s 10.0.0.0/8 -j DROP", "-A A -g B", "-A A -j DROP"],
            False,
            id="some, before all go by goto",
        ),
        pytest.param([], None, id="an empty chain"),
        pytest.param(["-A A -j RETURN", "-A A -j DROP"], None, id="all return"),
        pytest.param(["-A A -g B", "-A A -j DROP"], None, id="all go by goto"),
        pytest.param(["-A A -j LOG", "-A A -p tcp"], None, id="only logs and counts"),
        pytest.param(["-A A -p udp -j DROP"], None, id="another protocol"),
        pytest.param(
            ["-A A -j B", "-A B -j A"], None, id="a circle, which no kernel has"
        ),
    ],
)
def test_a_chain_of_others(lines: list[str], certain: bool | None) -> None:  # noqa: FBT001
    """Certain when every TCP connection ends there, doubtful when some may."""
    shadows_found = found("-A PREROUTING -j A", JUMP, *lines)

    assert [shadow.certain for shadow in shadows_found] == (
        [] if certain is None else [certain]
    )
    assert all(shadow.within == "A" for shadow in shadows_found)


def test_a_condition_makes_a_chain_doubtful() -> None:
    """A chain that takes all of some connections takes not all."""
    (shadow,) = found("-A PREROUTING -s 10.0.0.0/8 -j A", JUMP, "-A A -j DROP")

    assert not shadow.certain


def test_goto_never_comes_back() -> None:
    """From a builtin chain it leads to the policy, even through an empty chain."""
    (shadow,) = found("-A PREROUTING -g A", JUMP)

    assert shadow.certain


def test_text() -> None:
    """The rule is shown as it can be deleted, with the chain it leads through."""
    direct, through = found(
        *("-A OUTPUT -p tcp -j ACCEPT", "-A PREROUTING -j A", "-A A -j DROP")
    )[::-1]

    assert str(direct) == (
        "rule 1 of OUTPUT, '-p tcp -j ACCEPT', stands in front of the jump to "
        "proxy-init's chain"
    )
    assert str(through) == (
        "rule 1 of PREROUTING, '-j A', stands in front of the jump to "
        "proxy-init's chain (through chain A)"
    )


def test_rivals() -> None:
    """Other redirections that the hooks lead to, once each, however deep."""
    heads = [f":{name} - [0:0]" for name in CHAINS]
    lines = (
        *("-A PREROUTING -p tcp -j REDIRECT --to-ports 1", "-A PREROUTING -j A"),
        *(
            "-A OUTPUT -p udp -j REDIRECT --to-ports 2",
            "-A OUTPUT -j A",
            "-A OUTPUT -j B",
        ),
        *("-A OUTPUT -j PROXY_INIT_OUTPUT", "-A OUTPUT -p tcp -j ACCEPT", "-A OUTPUT"),
        *("-A A -p tcp -j DNAT --to-destination 10.0.0.1", "-A A -j B", "-A B -j A"),
        "-A PROXY_INIT_OUTPUT -p tcp -j REDIRECT --to-ports 3",
    )
    table = parse("\n".join(["*nat", *heads, *lines, "COMMIT", ""]), IPV4)

    assert [(chain, rule.verdict) for chain, rule in rivals(table)] == [
        ("PREROUTING", Verdict("REDIRECT", ("--to-ports", "1"))),
        ("A", Verdict("DNAT", ("--to-destination", "10.0.0.1"))),
    ]
