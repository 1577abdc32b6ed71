"""Listeners on many ports at once that say where a packet came out."""

from __future__ import annotations

import itertools
import json
import os
import queue
import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from proxyinit.lab.namespace import FAMILY, Namespace, version_of
from proxyinit.lab.traffic import original_destination, take_in_turn

_IP_PKTINFO = 8  # linux/in.h
_IPV6_RECVPKTINFO, _IPV6_PKTINFO = 49, 50  # linux/in6.h


@dataclass(frozen=True)
class Heard:
    """Where a packet came out: whose listener, at which address and port.

    `original` is the destination before translation, if the kernel tells: of TCP,
    in namespaces where connections are tracked.
    """

    who: str
    address: str
    port: int
    original: tuple[str, int] | None = None


class Ears:
    """Listens on TCP and UDP ports of every address, in both families.

    A TCP connection is answered with what was heard, as a line of JSON; a datagram
    is told to whoever waits for what it says.
    """

    def __init__(self, namespace: Namespace, who: str, ports: Sequence[int]) -> None:
        self.who = who
        self._waiting: dict[bytes, queue.Queue[Heard]] = {}
        self._sockets = namespace.run(_open, tuple(ports))
        self._stop = os.eventfd(0)
        self._thread = threading.Thread(
            target=take_in_turn,
            args=(self._sockets, self._stop, self._hear),
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        os.close(self._stop)
        for listener in self._sockets:
            listener.close()

    def await_datagram(self, token: bytes, heard: queue.Queue[Heard]) -> None:
        """Put into the queue where a datagram with these bytes comes out."""
        self._waiting[token] = heard

    def forget(self, token: bytes) -> None:
        """Wait no longer for a datagram."""
        self._waiting.pop(token, None)

    def _hear(self, listener: socket.socket) -> None:
        if listener.type == socket.SOCK_DGRAM:
            self._hear_datagram(listener)
            return
        connection, _ = listener.accept()
        with connection:
            address, port = connection.getsockname()[:2]
            original = original_destination(connection)
            heard = [self.who, address, port, original]
            connection.sendall(json.dumps(heard).encode() + b"\n")

    def _hear_datagram(self, listener: socket.socket) -> None:
        data, ancillary, _, _ = listener.recvmsg(64, 64)
        waiting = self._waiting.pop(data, None)
        if waiting is None:
            return
        (_, _, packed) = ancillary[0]
        packed = packed[:16] if listener.family == socket.AF_INET6 else packed[8:12]
        address = socket.inet_ntop(listener.family, packed)
        waiting.put(Heard(self.who, address, listener.getsockname()[1]))


def _open(ports: Sequence[int]) -> list[socket.socket]:
    kinds = (socket.SOCK_STREAM, socket.SOCK_DGRAM)
    opened = []
    for port, family, kind in itertools.product(ports, FAMILY.values(), kinds):
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVPKTINFO, 1)
        else:
            listener.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
        listener.bind(("", port))
        if kind == socket.SOCK_STREAM:
            listener.listen(64)
        listener.settimeout(0)
        opened.append(listener)
    return opened


# === speaking ===

_SO_MARK = 36  # asm-generic/socket.h
_FREEBIND = {4: (socket.IPPROTO_IP, 15), 6: (socket.IPPROTO_IPV6, 78)}
"""Options that let a socket take an address that a route alone makes local."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def speak(  # noqa: PLR0913  (a packet is what it is)
    kind: socket.SocketKind,
    source: tuple[str, int],
    destination: tuple[str, int],
    *,
    mark: int,
    timeout: float,
    token: bytes = b"",
) -> Heard | None:
    """Open a connection and hear where it came out, or send a datagram.

    Raises OSError when nobody answers, when the way is closed, or in time. The
    connection is reset in the end, so that its ports are free at once.
    """
    version = version_of(destination[0])
    with socket.socket(FAMILY[version], kind) as connection:
        connection.settimeout(timeout)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        connection.setsockopt(*_FREEBIND[version], 1)
        if mark:
            connection.setsockopt(socket.SOL_SOCKET, _SO_MARK, mark)
        connection.bind(source)
        if kind == socket.SOCK_DGRAM:
            connection.sendto(token, destination)
            return None
        linger = (socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        connection.setsockopt(*linger)
        connection.connect(destination)
        with connection.makefile("rb") as stream:
            line = stream.readline()
    if not line:
        raise ConnectionResetError(f"{destination} closed without an answer")
    who, address, port, original = json.loads(line)
    return Heard(who, address, port, tuple(original) if original else None)
