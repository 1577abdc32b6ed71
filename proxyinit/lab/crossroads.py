"""A pod from and to which any packet can be sent, and that says what became of it.

Where the laboratory plays a story, this is a bench: every address of many networks,
a choice of ports that somebody listens on at both ends, sockets of any user. A
packet is the value that `proxyinit.explain.tables` is asked about.
"""

from __future__ import annotations

import ctypes
import itertools
import queue
import socket
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

from proxyinit.explain.packet import Packet
from proxyinit.lab.ears import Ears, Heard, speak
from proxyinit.lab.namespace import Namespace, version_of
from proxyinit.lab.topology import POD, Lab, answer_for

T = TypeVar("T")

WORLDS = (
    *("203.0.113.0/24", "198.51.100.0/24", "172.16.0.0/12", "192.168.0.0/16"),
    *("100.64.0.0/10", "10.64.0.0/10", "2001:db8::/64", "2001:db8:1::/48"),
    *("fd00:aaaa::/32",),
)
"""Networks beyond the pod; each address of them answers and can be a source."""

OWN = {
    4: (POD[4], "10.1.0.77", "10.1.0.200"),
    6: (POD[6], "fd00:1::77", "fd00:1::c8"),
}
"""Addresses of the pod's interface, the one that counts first."""

PORTS = (
    *(1, 2, 22, 53, 79, 80, 81, 443, 1023, 1024, 3306, 4139, 4140, 4142, 4143),
    *(4190, 4191, 4567, 4568, 6379, 8080, 8443, 9090, 9999, 15001, 15006, 16383),
    *(32767, 32768, 49151, 49152, 60000, 65534, 65535),
)
"""Ports that are listened on, at both ends."""

ANSWER_LIMIT_S = 2.0


class Resident:
    """A thread that lives in a namespace, for more calls than one would move in for."""

    def __init__(self, namespace: Namespace) -> None:
        self._libc = ctypes.CDLL(None)
        self._thread = ThreadPoolExecutor(1, initializer=namespace.enter)

    def run(
        self, function: Callable[..., T], *args: Any, uid: int = 0, gid: int = 0
    ) -> T:
        """Call a function there; sockets it opens belong to the user and group."""

        def act() -> T:
            self._libc.setfsgid(ctypes.c_uint(gid))
            self._libc.setfsuid(ctypes.c_uint(uid))
            try:
                return function(*args)
            finally:
                self._libc.setfsuid(0)
                self._libc.setfsgid(0)

        return self._thread.submit(act).result()

    def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown()


class Crossroads:
    """The pod and the world, everybody listening; a context manager."""

    def __init__(self) -> None:
        self._lab = Lab()
        try:
            self._lab.client.run(answer_for, WORLDS)
            for addresses in OWN.values():
                for address in addresses[1:]:
                    prefix = 24 if version_of(address) == 4 else 64
                    self._lab.pod.add_address("eth0", address, prefix)
            self._ears = [
                Ears(self._lab.pod, "pod", PORTS),
                Ears(self._lab.client, "world", PORTS),
            ]
            self.pod = Resident(self._lab.pod)
            self._world = Resident(self._lab.client)
            self._lab.pod.exec(["nft", "-f", "-"], text=_TRACKING).check_returncode()
            self._conntrack = self.pod.run(_open_conntrack)
        except BaseException:
            self._lab.__exit__()
            raise
        self._tokens = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._conntrack.close()
        self.pod.close()
        self._world.close()
        for ears in self._ears:
            ears.close()
        self._lab.__exit__()

    def send(self, packet: Packet) -> Heard | str:
        """Where a packet comes out, or in a word why nowhere.

        Connections that the kernel remembers are forgotten before, so that the
        packet is the first of its own.
        """
        _forget_connections(self._conntrack)
        speaker = self.pod if packet.outbound else self._world
        owner = {"uid": packet.uid or 0, "gid": packet.gid or 0}
        try:
            if packet.protocol == "udp":
                return self._send_datagram(packet, speaker, owner)
            heard = speaker.run(_connect, packet, **owner)
        except ConnectionRefusedError:
            return "refused"
        except OSError as error:
            return type(error).__name__
        return heard

    def _send_datagram(
        self, packet: Packet, speaker: Resident, owner: dict[str, int]
    ) -> Heard | str:
        token = str(next(self._tokens)).encode()
        heard: queue.Queue[Heard] = queue.Queue()
        for ears in self._ears:
            ears.await_datagram(token, heard)
        speaker.run(_throw, packet, token, **owner)
        try:
            return heard.get(timeout=ANSWER_LIMIT_S)
        except queue.Empty:
            return "lost"
        finally:
            for ears in self._ears:
                ears.forget(token)


def _connect(packet: Packet) -> Heard | str:
    heard = _speak(packet, socket.SOCK_STREAM)
    return heard or "silence"


def _throw(packet: Packet, token: bytes) -> None:
    _speak(packet, socket.SOCK_DGRAM, token)


def _speak(packet: Packet, kind: socket.SocketKind, token: bytes = b"") -> Heard | None:
    return speak(
        kind,
        (packet.source, packet.source_port or 0),
        (packet.destination, packet.destination_port or 0),
        mark=packet.mark.value if packet.outbound else 0,
        timeout=ANSWER_LIMIT_S,
        token=token,
    )


# === the kernel's memory of connections ===

_TRACKING = """
table inet tracking {
    chain output { type filter hook output priority 0; ct state new; }
}
"""
"""Nat chains see packets of tracked connections alone, and the kernel tracks them
only where a rule needs it: so a table without REDIRECT or its like is not asked."""

_NETLINK_NETFILTER = 12
_CT_DELETE = 0x0102
_REQUEST_ACK = 0x5


def _open_conntrack() -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)


def _forget_connections(link: socket.socket) -> None:
    """Delete every entry of the connection table (nf_conntrack_netlink.c)."""
    link.send(struct.pack("=IHHIIBBH", 20, _CT_DELETE, _REQUEST_ACK, 1, 0, 0, 0, 0))
    reply = link.recv(4096)
    (error,) = struct.unpack_from("=i", reply, 16)
    if error:
        raise OSError(-error, "the connection table can't be emptied")
