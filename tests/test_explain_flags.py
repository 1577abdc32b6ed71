"""What the words of a command line mean to explain, and what is wrong with them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxyinit.explain.flags import (
    EXPLAIN_FLAGS,
    Endpoint,
    Undirected,
    parse_endpoint,
    parse_interface,
    parse_mark,
    parse_own,
    parse_target,
)
from proxyinit.explain.mistakes import problems
from proxyinit.explain.own import own_of_fib_trie, own_of_ipv6_route
from proxyinit.explain.packet import Mark, Packet
from proxyinit.pflag import Arguments, parse
from proxyinit.rules import IPV4, IPV6, Subnet


@pytest.mark.parametrize(
    ("text", "address", "port"),
    [
        ("10.0.0.7", "10.0.0.7", None),
        ("10.0.0.7:80", "10.0.0.7", 80),
        ("fd00::7", "fd00::7", None),
        ("FD00:0::7", "fd00::7", None),
        ("[fd00::7]", "fd00::7", None),
        ("[fd00::7]:80", "fd00::7", 80),
    ],
)
def test_endpoints(text: str, address: str, port: int | None) -> None:
    """Brackets are for IPv6 with a port, and do no harm without."""
    assert parse_endpoint(text) == Endpoint(address, port)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "x",
            "10.0.0",
            "10.0.0.7:x",
            "10.0.0.7:",
            ":80",
            "[fd00::7",
            "[fd00::7]x",
        ),
        *("[fd00::7]:", "fd00::7::8", "10.0.0.7:80:90", "::ffff:1.2.3.4", "1.2.3.4/8"),
    ],
)
def test_what_is_no_endpoint(text: str) -> None:
    """Refused with a sentence."""
    with pytest.raises(ValueError, match="expected"):
        parse_endpoint(text)


def test_targets_need_a_port() -> None:
    """And the message shows how it is written."""
    with pytest.raises(ValueError, match=r"such as \[fd00::7\]:80"):
        parse_target("fd00::7")


def test_other_words() -> None:
    """Marks in both spellings, addresses as networks, names of interfaces."""
    assert parse_mark("0x4000") == Mark(0x4000, 0xFFFFFFFF)
    assert parse_mark("5") == Mark(5, 0xFFFFFFFF)
    assert parse_own("10.0.0.7") == Subnet(IPV4, "10.0.0.7", 32)
    assert parse_own("fd00::7") == Subnet(IPV6, "fd00::7", 128)
    assert parse_own("10.0.0.7/8") == Subnet(IPV4, "10.0.0.0", 8)
    assert parse_interface("eth0@if5") == "eth0@if5"


def arguments(*argv: str) -> Arguments:
    """A command line as read."""
    return parse(["--from=10.0.0.5", "--to=10.0.0.7:80", *argv], EXPLAIN_FLAGS)


def test_a_packet_has_what_was_said_of_it() -> None:
    """And nothing else is known."""
    least = Packet(
        version=IPV4,
        source="10.0.0.5",
        destination="10.0.0.7",
        destination_port=80,
        outbound=True,
    )
    own = (Subnet(IPV4, "10.0.0.5", 32),)

    assert Undirected(arguments("--outbound")).packet(None) == least
    assert Undirected(arguments()).packet(own) == replace(least, own=own)
    assert Undirected(arguments()).packet(None) is None
    assert Undirected(arguments()).packet(()) is None
    more = ("--uid=5", "--gid=6", "--out=eth0", "--mark=1", "--proto=UDP")
    said = Undirected(arguments(*more, "--own=10.0.0.5", "--from=10.0.0.5:9")).packet(
        ()
    )
    assert said == replace(
        least,
        source_port=9,
        uid=5,
        gid=6,
        interface="eth0",
        mark=Mark(1, 0xFFFFFFFF),
        protocol="udp",
        own=own,
    )
    inbound = Undirected(arguments("--in=eth0")).packet(None)
    assert inbound == replace(least, outbound=False, interface="eth0")


PLANNED = ("--incoming-proxy-port=1", "--outgoing-proxy-port=2")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        pytest.param((), [], id="live rules: addresses may tell the direction"),
        pytest.param(("--outbound=false", *PLANNED), ["it can't"], id="not outbound"),
        pytest.param(("--inbound", "--uid=1"), ["--uid and --inbound"], id="both ways"),
        pytest.param(("--in=lo",), ["--in 'lo'"], id="loopback comes from here"),
        pytest.param(("--in=lo", "--out=lo"), ["--out and --in"], id="in and out"),
        pytest.param(
            ("--dump=x", "--inbound", "--pid=1"), ["--dump and --pid"], id="2"
        ),
        pytest.param(("--pid=1", "--netns=x"), ["--netns and --pid"], id="two places"),
        pytest.param(("-p", "1", "--uid=1"), ["--outgoing-proxy-port is"], id="half"),
        pytest.param(("--to=[::1]:1",), ["--from '10.0.0.5' and"], id="two families"),
        pytest.param((*PLANNED, "--outbound"), [], id="planned rules"),
    ],
)
def test_mistakes_of_flags_together(argv: tuple[str, ...], expected: list[str]) -> None:
    """Each is told, and only those."""
    told = list(problems(arguments(*argv)))

    assert len(told) == len(expected)
    assert all(map(str.startswith, told, expected))


def test_missing_ends() -> None:
    """Both are told."""
    told = list(problems(parse([], EXPLAIN_FLAGS)))

    assert [line.partition(":")[0] for line in told] == [
        "--from is missing",
        "--to is missing",
    ]


# === a namespace's own addresses ===

FIB_TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.1.0.0/24 2 0 2
        |-- 10.1.0.0
           /24 link UNICAST
        |-- 10.1.0.2
           /32 host LOCAL
        |-- 10.1.0.255
           /32 link BROADCAST
     |-- 127.0.0.0
        /8 host LOCAL
"""
LOOP, FD = "0" * 31 + "1", "fd000001" + "0" * 23 + "2"
NONE = "0" * 32
IPV6_ROUTE = f"""\
{FD[:8]}{NONE[:24]} 40 {NONE} 00 {NONE} 00000100 00000001 00000000 00000001 eth0
{LOOP} 80 {NONE} 00 {NONE} 00000000 00000002 00000000 80200001 lo
{FD} 80 {NONE} 00 {NONE} 00000000 00000002 00000000 80200001 eth0
"""


def test_own_addresses_are_read_from_the_routing_tables() -> None:
    """Every network that ends here, whatever the interface."""
    assert own_of_fib_trie(FIB_TRIE) == {
        Subnet(IPV4, "10.1.0.2", 32),
        Subnet(IPV4, "127.0.0.0", 8),
    }
    assert own_of_ipv6_route(IPV6_ROUTE) == {
        Subnet(IPV6, "::1", 128),
        Subnet(IPV6, "fd00:1::2", 128),
    }
