"""What is no TCP passes as if proxy-init had never run."""

from __future__ import annotations

import os
import socket
import struct

import pytest
from installed import PROGRAM

from proxyinit.lab import CLIENT, POD, WORLD, Lab, Namespace

LINKERD = ("-p", "4143", "-o", "4140", "-u", "2102")
FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}
TIMEOUT_S = 5


@pytest.fixture
def meshed(lab: Lab, mode: str) -> Lab:
    """A lab whose pod is redirected."""
    done = lab.pod.exec([PROGRAM, *LINKERD, "--iptables-mode", mode])
    assert done.returncode == 0, done.stderr
    return lab


def udp_socket(namespace: Namespace, version: int, port: int = 0) -> socket.socket:
    """A UDP socket of the namespace, under the application's user."""

    def opened() -> socket.socket:
        made = socket.socket(FAMILY[version], socket.SOCK_DGRAM)
        made.settimeout(TIMEOUT_S)
        made.bind(("", port))
        return made

    return namespace.run(opened, uid=1000, gid=1000)


@pytest.mark.parametrize(
    "port",
    [
        pytest.param(5353, id="any port"),
        pytest.param(4143, id="the number of the proxy's inbound port"),
    ],
)
def test_udp_reaches_the_pod_and_the_answer_comes_back(
    meshed: Lab, version: int, port: int
) -> None:
    """The pod sees the client's address, the client an answer from where it asked."""
    with (
        udp_socket(meshed.pod, version, port) as server,
        udp_socket(meshed.client, version) as client,
    ):
        client.sendto(b"question", (POD[version], port))
        text, sender = server.recvfrom(100)
        assert (text, sender[0]) == (b"question", CLIENT[version])
        assert sender[1] == client.getsockname()[1]
        server.sendto(b"answer", sender)
        text, answerer = client.recvfrom(100)
        assert (text, answerer[:2]) == (b"answer", (POD[version], port))


def test_udp_of_the_pod_reaches_the_world(meshed: Lab, version: int) -> None:
    """An application asks a name server without passing the proxy."""
    with (
        udp_socket(meshed.client, version, 53) as server,
        udp_socket(meshed.pod, version) as client,
    ):
        client.sendto(b"question", (WORLD[version], 53))
        text, sender = server.recvfrom(100)
        assert (text, sender[0]) == (b"question", POD[version])


def ping(address: str, version: int) -> bytes:
    """The type of the first ICMP message that answers an echo request."""
    kind, protocol = {
        4: (8, socket.IPPROTO_ICMP),
        6: (128, socket.IPPROTO_ICMPV6),
    }[version]
    marker = os.urandom(16)
    with socket.socket(FAMILY[version], socket.SOCK_RAW, protocol) as raw:
        raw.settimeout(TIMEOUT_S)
        body = struct.pack("!BBHHH", kind, 0, 0, 7, 1) + marker
        checksum = internet_checksum(body) if version == 4 else 0  # kernel fills 6
        raw.sendto(body[:2] + struct.pack("!H", checksum) + body[4:], (address, 0))
        while True:
            packet, sender = raw.recvfrom(1000)
            message = packet[20:] if version == 4 else packet  # header comes with 4
            if message.endswith(marker) and message[0] != kind:
                assert sender[0] == address
                return message[:1]


def internet_checksum(data: bytes) -> int:
    """RFC 1071, of an even number of bytes."""
    pairs = zip(data[::2], data[1::2], strict=True)
    total = sum(high << 8 | low for high, low in pairs)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


ECHO_REPLY = {4: b"\0", 6: b"\x81"}


def test_ping_passes_in_both_directions(meshed: Lab, version: int) -> None:
    """Echo requests to the pod, and from it, are answered by whom they were sent to."""
    for caller, address in ((meshed.client, POD), (meshed.pod, WORLD)):
        assert caller.run(ping, address[version], version) == ECHO_REPLY[version]
