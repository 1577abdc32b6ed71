"""Stand-ins that say who they are, and connections that hear who answers."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from proxyinit.lab.namespace import FAMILY, Namespace, version_of

_SO_ORIGINAL_DST = 80  # linux/netfilter_ipv4.h, and _ipv6.h for IPv6


@dataclass(frozen=True)
class Answer:
    """Who answered a connection.

    `who` is the stand-in's name and `port` where it listens. `original` is the
    destination before redirection, told by a stand-in that looks for it.
    """

    who: str
    port: int
    original: tuple[str, int] | None = None

    def __str__(self) -> str:
        return self.who if self.original is None else f"{self.who} ({self.port})"


class StandIn:
    """A server that answers every connection with who it is, then closes it.

    `ports` are listened on in both families, under `uid`. With `transparent` it
    asks the kernel for the original destination as a proxy does.
    """

    def __init__(
        self,
        namespace: Namespace,
        who: str,
        ports: Sequence[int],
        *,
        uid: int = 0,
        transparent: bool = False,
    ) -> None:
        self.who = who
        self.transparent = transparent
        self._listeners = namespace.run(_listen, tuple(ports), uid=uid)
        self._stop = os.eventfd(0)
        self._thread = threading.Thread(
            target=take_in_turn,
            args=(self._listeners, self._stop, self._answer),
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        os.close(self._stop)
        for listener in self._listeners:
            listener.close()

    def _answer(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            original = original_destination(connection) if self.transparent else None
            port = listener.getsockname()[1]
            fields = {"who": self.who, "port": port, "original": original}
            connection.sendall(json.dumps(fields).encode() + b"\n")


def take_in_turn(
    listeners: Sequence[socket.socket],
    stop: int,
    take: Callable[[socket.socket], object],
) -> None:
    """Give each listener that has something to `take`, until `stop` is written to.

    `stop` is an eventfd; a peer that goes away halfway is nobody's error.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(stop, selectors.EVENT_READ)
        for listener in listeners:
            selector.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if not isinstance(key.fileobj, socket.socket):
                    return
                with contextlib.suppress(OSError):
                    take(key.fileobj)


def _listen(ports: Sequence[int]) -> list[socket.socket]:
    listeners = []
    for port, family in itertools.product(ports, FAMILY.values()):
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(("", port))
        listener.listen(1024)
        listener.settimeout(0)
        listeners.append(listener)
    return listeners


def original_destination(connection: socket.socket) -> tuple[str, int] | None:
    """Where a redirected connection was going; None when conntrack knows nothing."""
    if connection.family == socket.AF_INET6:
        level, size, where = socket.IPPROTO_IPV6, 28, slice(8, 24)
    else:
        level, size, where = socket.IPPROTO_IP, 16, slice(4, 8)
    try:
        raw = connection.getsockopt(level, _SO_ORIGINAL_DST, size)
    except OSError:
        return None
    (port,) = struct.unpack_from("!H", raw, 2)
    return socket.inet_ntop(connection.family, raw[where]), port


def ask(address: str, port: int, *, source: str = "", timeout: float = 2) -> Answer:
    """Connect from the calling thread's namespace and hear who answers.

    Raises OSError (refused, timed out, reset) when nobody does.
    """
    with socket.socket(FAMILY[version_of(address)]) as connection:
        connection.settimeout(timeout)
        if source:
            connection.bind((source, 0))
        connection.connect((address, port))
        with connection.makefile("rb") as stream:
            line = stream.readline()
    if not line:
        raise ConnectionResetError(f"{address} port {port} closed without an answer")
    said = json.loads(line)
    original = said["original"]
    return Answer(said["who"], said["port"], tuple(original) if original else None)


@dataclass
class Load:
    """Connections opened without pause, and who answered how many of them."""

    answers: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """All connections tried."""
        return sum(self.answers.values()) + len(self.errors)


@contextlib.contextmanager
def load(
    namespace: Namespace, targets: Sequence[tuple[str, int]], *, threads: int = 4
) -> Iterator[Load]:
    """Open connections to the targets in turn from `threads` threads until left."""
    seen = Load()
    stop = threading.Event()
    lock = threading.Lock()

    def work() -> None:
        with namespace.inside():
            for address, port in itertools.cycle(targets):
                if stop.is_set():
                    return
                _count(seen, lock, address, port)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield seen
    finally:
        stop.set()
        for worker in workers:
            worker.join()


def _count(seen: Load, lock: threading.Lock, address: str, port: int) -> None:
    try:
        who = ask(address, port).who
    except OSError as error:
        with lock:
            seen.errors.append(f"{address} port {port}: {error}")
    else:
        with lock:
            seen.answers[who] = seen.answers.get(who, 0) + 1
