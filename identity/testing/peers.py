"""Two workloads that speak mTLS with what lies in their identity directories.

TLS is the standard library's, used as any program would: a renewal counts from the
next connection on, since key, certificate and anchors are read anew for each.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from identity.credentials import load_certificate
from identity.store import CURRENT
from identity.trust import sans
from proxyinit.lab import PROXY_UID, Namespace, original_destination

LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Party:
    """One side, as its certificate shows it to the other: a name and a serial."""

    name: str
    serial: str


@dataclass(frozen=True, slots=True)
class Meeting:
    """A connection on which both sides are convinced of each other.

    `server` is what the client verified, `client` what the server says it verified.
    `original` is where the connection was going before it was redirected, if it was.
    """

    server: Party
    client: Party
    original: tuple[str, int] | None


def context(directory: Path, side: int) -> ssl.SSLContext:
    """TLS 1.3 for one connection, with the files of one generation."""
    files = (directory / CURRENT).resolve(strict=True)
    made = ssl.SSLContext(side)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(files / "ca.crt")
    made.load_cert_chain(files / "tls.crt", files / "tls.key")
    return made


def meet(directory: Path, address: str, port: int, expected: str) -> Meeting:
    """Connect from the calling thread's namespace to the workload of that name.

    Raises OSError unless each side proves to be who the other expects.
    """
    tls = context(directory, ssl.PROTOCOL_TLS_CLIENT)
    with (
        socket.create_connection((address, port), timeout=LIMIT_S) as plain,
        tls.wrap_socket(plain, server_hostname=expected) as connection,
    ):
        server = party(connection)
        with connection.makefile("rb") as stream:
            line = stream.readline()
    if not line:
        raise ConnectionResetError(f"{expected} hung up without an answer")
    said = json.loads(line)
    original = said["original"]
    return Meeting(
        server, Party(**said["client"]), tuple(original) if original else None
    )


def party(connection: ssl.SSLSocket) -> Party:
    """The other side of a connection, once its chain has been verified."""
    der = connection.getpeercert(binary_form=True)
    if der is None:
        raise PermissionError("the peer has shown no certificate")
    leaf = load_certificate(der)
    return Party(" ".join(sans(leaf)), f"{leaf.serial_number:x}")


class Peer:
    """A workload that answers one caller, in a thread, until its context is left.

    Whoever has no certificate, or one of another name, gets no answer. `failures`
    tells of those.
    """

    def __init__(
        self, namespace: Namespace, directory: Path, port: int, *, caller: str
    ) -> None:
        self.failures: list[str] = []
        self._directory = directory
        self._caller = caller
        self._listener = namespace.run(
            lambda: socket.create_server(("", port), backlog=1024), uid=PROXY_UID
        )
        self._listener.settimeout(0)
        self._gone, self._stop = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.close()
        self._thread.join()
        self._gone.close()
        self._listener.close()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._gone, selectors.EVENT_READ)
            selector.register(self._listener, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if self._gone in ready:
                    return
                try:
                    self._answer()
                except OSError as error:
                    self.failures.append(str(error))

    def _answer(self) -> None:
        plain, _ = self._listener.accept()
        with plain:
            plain.settimeout(LIMIT_S)
            original = original_destination(plain)
            tls = context(self._directory, ssl.PROTOCOL_TLS_SERVER)
            with tls.wrap_socket(plain, server_side=True) as connection:
                client = party(connection)
                if client.name != self._caller:
                    raise PermissionError(f"{client.name} is not {self._caller}")
                told = {"name": client.name, "serial": client.serial}
                answer = json.dumps({"client": told, "original": original})
                connection.sendall(answer.encode() + b"\n")


@dataclass
class Talk:
    """Connections made one after the other, and how they went."""

    count: int = 0
    servers: set[str] = field(default_factory=set)
    clients: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)


@contextlib.contextmanager
def talking(
    namespace: Namespace,
    directory: Path,
    to: tuple[str, int],
    expected: str,
    *,
    pause_s: float = 0.02,
) -> Iterator[Talk]:
    """Meet a workload again and again, with short pauses, until left.

    The serials of all certificates that were shown are collected by side.
    """
    talk = Talk()
    stop = threading.Event()

    def work() -> None:
        with namespace.inside(uid=PROXY_UID, gid=PROXY_UID):
            while not stop.wait(pause_s):
                talk.count += 1
                try:
                    met = meet(directory, *to, expected)
                except OSError as error:
                    talk.failures.append(str(error))
                else:
                    talk.servers.add(met.server.serial)
                    talk.clients.add(met.client.serial)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield talk
    finally:
        stop.set()
        thread.join()
