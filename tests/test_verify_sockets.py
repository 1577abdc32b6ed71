"""What sock_diag tells of sockets on loopback: who listens, and who accepted whom."""

from __future__ import annotations

import os
import socket

import pytest

from proxyinit.verify import sockets
from proxyinit.verify.facts import Listener

LOOPBACK = {4: "127.0.0.1", 6: "::1"}
FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}


@pytest.mark.parametrize("version", [4, 6])
def test_a_listener_is_told(version: int) -> None:
    """With its address, its port and its user; not heard by the other version."""
    with socket.create_server((LOOPBACK[version], 0), family=FAMILY[version]) as server:
        port = server.getsockname()[1]
        (found,) = [one for one in sockets.listeners() if one.port == port]

    assert found == Listener(version, LOOPBACK[version], port, os.getuid(), found.dual)
    assert found.hears(version)
    assert found.on_loopback


@pytest.mark.parametrize("dual", [True, False], ids=["both", "IPv6 alone"])
def test_a_listener_for_both_versions(*, dual: bool) -> None:
    """Only a socket that is not for IPv6 alone hears IPv4."""
    server = socket.create_server(
        ("::", 0), family=socket.AF_INET6, dualstack_ipv6=dual
    )
    with server:
        port = server.getsockname()[1]
        (found,) = [one for one in sockets.listeners() if one.port == port]

    assert (found.hears(6), found.hears(4)) == (True, dual)
    assert not found.on_loopback


@pytest.mark.parametrize(
    ("listening", "calling"),
    [
        pytest.param(4, 4, id="IPv4"),
        pytest.param(6, 6, id="IPv6"),
        pytest.param(6, 4, id="IPv4 to a socket for both"),
    ],
)
def test_who_accepted(listening: int, calling: int) -> None:
    """The kernel's handshake counts, for the peer's very address and port."""
    address = LOOPBACK[4] if listening == 4 else "::"
    server = socket.create_server(
        (address, 0), family=FAMILY[listening], dualstack_ipv6=listening == 6
    )
    with server:
        port = server.getsockname()[1]
        with socket.create_connection((LOOPBACK[calling], port)) as client:
            here = client.getsockname()[:2]
            there = (LOOPBACK[calling], port)

            assert sockets.accepted(port, here)
            assert not sockets.accepted(port, (here[0], here[1] ^ 1))
            assert not sockets.accepted(port, ("192.0.2.1", here[1]))
            assert not sockets.accepted(port ^ 1, here)
            assert sockets.accepted(here[1], there)  # each end has its own socket


def test_who_accepted_and_closed_at_once() -> None:
    """A proxy that hangs up before anybody looks has accepted all the same."""
    with socket.create_server((LOOPBACK[4], 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection((LOOPBACK[4], port)) as client:
            server.accept()[0].close()

            assert sockets.accepted(port, client.getsockname())
