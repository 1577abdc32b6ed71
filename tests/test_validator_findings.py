"""From what was seen to a cause and a next step; and reading what /proc/net shows."""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit.validator.addresses import Address
from proxyinit.validator.findings import Finding, explain, explain_listen
from proxyinit.validator.neighbours import (
    LISTEN,
    TcpSocket,
    parse_fib_trie,
    parse_if_inet6,
    parse_tcp,
)
from proxyinit.validator.outcome import Outcome, Surroundings

TARGET = Address("192.0.2.2", 1404)
OURS = Address("::", 4140)
LOCAL = Address("10.1.0.2", 40000)
POD = Surroundings(addresses=("10.1.0.2", "fd00:1::2"))
MESH = Surroundings(POD.addresses, Address("127.0.0.1", 15001), "user 1337")


def why(outcome: Outcome, seen: Surroundings = POD) -> Finding:
    return explain(outcome, seen, (OURS,), uid=65534)


def failed(code: int, *, at_once: bool = False) -> Outcome:
    return Outcome(TARGET, code=code, reason="the reason", at_once=at_once)


def answered(
    received: bytes = b"",
    *,
    closed: bool = False,
    accepted: bool = False,
    direct: bool = False,
) -> Outcome:
    return Outcome(
        TARGET,
        connected=True,
        local=LOCAL,
        received=received,
        closed=closed,
        accepted=accepted,
        direct=direct,
    )


CASES = [
    pytest.param(
        failed(errno.ETIMEDOUT), POD, "redirect missing", "nobody answers", id="silence"
    ),
    pytest.param(
        failed(errno.ECONNREFUSED), POD, "redirect missing", "refuses", id="refused"
    ),
    pytest.param(
        failed(errno.EHOSTUNREACH),
        POD,
        "redirect missing",
        "can't be reached",
        id="a router says no",
    ),
    pytest.param(
        answered(),
        POD,
        "redirect missing",
        "outside of this pod, and said nothing",
        id="a silent server outside",
    ),
    pytest.param(
        answered(closed=True),
        POD,
        "redirect missing",
        "closed it without a word",
        id="a server outside that closes",
    ),
    pytest.param(
        answered(b"SSH-2.0\r\n"),
        POD,
        "redirect missing",
        r"said 'SSH-2.0\r\n'",
        id="a server outside that speaks",
    ),
    pytest.param(
        answered(accepted=True, direct=True),
        Surroundings(),
        "redirect missing",
        "is this pod itself",
        id="our own address",
    ),
    pytest.param(
        failed(errno.ENETUNREACH, at_once=True),
        POD,
        "egress blocked",
        "an address that this pod has a route to",
        id="no route",
    ),
    pytest.param(
        failed(errno.EPERM, at_once=True), POD, "egress blocked", "eBPF", id="EPERM"
    ),
    pytest.param(
        failed(errno.ENETUNREACH, at_once=True),
        Surroundings(("fd00:1::2",)),
        "egress blocked",
        "no IPv4 address",
        id="no address",
    ),
    pytest.param(
        answered(),
        MESH,
        "another program answered",
        "redirected to 127.0.0.1:15001, where user 1337 answers",
        id="another mesh",
    ),
    pytest.param(
        answered(b"x" * 64, accepted=True),
        POD,
        "another program answered",
        "came to us, but the answer said 'xxx",
        id="changed on the way",
    ),
]


@pytest.mark.parametrize(("outcome", "seen", "cause", "text"), CASES)
def test_causes(outcome: Outcome, seen: Surroundings, cause: str, text: str) -> None:
    """Each has a cause for programs, a sentence and a next step for people."""
    found = why(outcome, seen)
    assert found.cause == cause
    assert text in str(found)
    assert found.reason == outcome.reason
    assert found.advice


def test_only_a_missing_address_can_be_skipped() -> None:
    """A version without a route, but with an address, may carry traffic tomorrow."""
    no_route = failed(errno.ENETUNREACH, at_once=True)
    assert not why(no_route).lacks_address
    assert why(no_route, Surroundings(("fd00:1::2",))).lacks_address
    assert why(failed(errno.EAFNOSUPPORT, at_once=True)).lacks_address
    assert not why(failed(errno.ENETUNREACH), Surroundings()).lacks_address


def test_the_next_step_names_the_pod() -> None:
    """The command for the node holds the pod's address of that version, if known."""
    assert "verify --pod-ip 10.1.0.2 " in why(failed(errno.ETIMEDOUT)).advice
    unknown = why(failed(errno.ETIMEDOUT), Surroundings())
    assert "verify --pod-ip ADDRESS " in unknown.advice
    assert "for user 65534;" in unknown.advice


@pytest.mark.parametrize(
    ("code", "cause", "text"),
    [
        (errno.EADDRINUSE, "listen address taken", "is taken by user 2102"),
        (errno.EADDRNOTAVAIL, "can't listen", "an address of this pod"),
        (errno.EACCES, "can't listen", "NET_BIND_SERVICE"),
        (errno.EAFNOSUPPORT, "can't listen", "no IPv6"),
        (errno.ENOMEM, "can't listen", "can't listen at [::]:4140"),
    ],
    ids=errno.errorcode.get,
)
def test_no_listener(code: int, cause: str, text: str) -> None:
    """Why the program could not even begin."""
    holder = "user 2102" if code == errno.EADDRINUSE else ""
    found = explain_listen(OURS, code, "the reason", holder)
    assert found.cause == cause
    assert text in str(found)
    assert found.reason == "the reason"


def test_an_unknown_holder() -> None:
    """Where /proc tells nothing, nothing is made up."""
    found = explain_listen(OURS, errno.EADDRINUSE, "", "")
    assert found.text == "[::]:4140 is taken by another program"


# === /proc/net ===

FIB_TRIE = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.1.0.0/24 2 0 1
        |-- 10.1.0.0
           /24 link UNICAST
        |-- 10.1.0.2
           /32 host LOCAL
        |-- 10.1.0.255
           /32 link BROADCAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.0
           /8 host LOCAL
        |-- 127.0.0.1
           /32 host LOCAL
"""
IF_INET6 = """\
00000000000000000000000000000001 01 80 10 80       lo
fe800000000000001cd4a0fffe8d6c6d 02 40 20 80     eth0
fd000001000000000000000000000002 02 40 00 82     eth0
"""


def test_addresses_of_the_pod() -> None:
    """Those that others reach: not loopback's, not the link's, no broadcast."""
    assert list(parse_fib_trie(FIB_TRIE)) == ["10.1.0.2"]
    assert list(parse_if_inet6(IF_INET6)) == ["fd00:1::2"]


IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


def hexed(address: str) -> str:
    """As the kernel prints an address on this machine."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    packed = socket.inet_pton(family, address)
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


@settings(deadline=None)
@given(st.ip_addresses(), st.ip_addresses(), st.integers(0, 65535), st.integers(1, 12))
def test_sockets(local: IpAddress, peer: IpAddress, port: int, state: int) -> None:
    """Addresses, ports, state, user and inode of a line."""
    ends = f"{hexed(str(local))}:{port:04X} {hexed(str(peer))}:0050"
    line = f"   0: {ends} {state:02X} 00000000:00000000 00:00000000 00000000"
    text = f"  sl  local_address ...\n{line}  2102        0 12345 1 0 100 0 0 10 0\n"
    (found,) = parse_tcp(text)
    assert (found.state, found.uid, found.inode) == (state, 2102, 12345)
    assert (found.local.port, found.peer.port) == (port, 80)
    for end, address in ((found.local, local), (found.peer, peer)):
        mapped = getattr(address, "ipv4_mapped", None)
        assert ipaddress.ip_address(end.host) == (mapped or address)


def test_ipv4_at_a_socket_of_both_is_ipv4() -> None:
    """As the other end of our own connection is compared with it."""
    ends = f"{hexed('::ffff:127.0.0.1')}:102C {hexed('::ffff:10.1.0.2')}:9C40"
    line = f"0: {ends} 01 0:0 0:0 0 0 0 9"
    assert list(parse_tcp(f"head\n{line}\n")) == [
        TcpSocket(Address("127.0.0.1", 4140), LOCAL, 1, 0, 9)
    ]


def test_sockets_of_this_machine() -> None:
    """A listener of this very test is found in what the kernel says now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = list(parse_tcp(Path("/proc/net/tcp").read_text(encoding="ascii")))
    (mine,) = (s for s in found if s.state == LISTEN and s.local.port == port)
    assert mine.local.host == "127.0.0.1"


@settings(deadline=None)
@given(st.text() | st.from_regex(r"(head\n)?( *[0-9A-F:|/-]{0,40}\n?){0,4}"))
def test_any_text_is_read(text: str) -> None:
    """What is not understood is left out."""
    for parser in (parse_tcp, parse_if_inet6, parse_fib_trie):
        list(parser(text))
