"""TLS 1.3 in front of a gRPC server that can't speak to clients without ALPN.

One event loop moves the bytes of every connection between its TLS side and a Unix
socket; no TLS object is ever touched by two threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from identity.issuer.errors import IssuerError
from identity.issuer.sockets import listen

HANDSHAKE_TIMEOUT_S = 10
_RETRY_ACCEPT_S = 0.1
_log = logging.getLogger(__name__)


class TlsFiles:
    """A server's certificate and key; a context for each content of the files."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._paths = certificate, key
        self._in_use = b""
        self._seen = b""
        self.context = self._load()

    def poll(self) -> None:
        """Use new files for new connections, once two polls in a row agree on them."""
        try:
            content = self._read()
            settled, self._seen = content == self._seen, content
            if content == self._in_use or not settled:
                return
            self.context = self._load()
            _log.info("TLS certificate of the service was renewed")
        except IssuerError as error:
            _log.debug("keeping the TLS certificate in use: %s", error)

    def _read(self) -> bytes:
        try:
            return b"\0".join(path.read_bytes() for path in self._paths)
        except OSError as error:
            raise IssuerError(f"can't read the TLS certificate: {error}") from error

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # Chosen if the client offers it. Linkerd's proxy offers nothing, and speaks
        # HTTP/2 all the same.
        context.set_alpn_protocols(["h2"])
        content = self._read()
        try:
            context.load_cert_chain(*self._paths, password=_no_password)
        except (OSError, ssl.SSLError) as error:
            paths = " and ".join(map(str, self._paths))
            raise IssuerError(f"can't use {paths} for TLS: {error}") from error
        self._in_use = content
        return context


def _no_password() -> str:
    """What OpenSSL asks instead of somebody at a terminal."""
    raise IssuerError("can't use the TLS certificate: its key has a password")


class _Side(asyncio.Protocol):
    """One end of a relayed connection: what it reads, the other end writes."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read nothing until there is somebody to write it."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  (of a stream)
        transport.pause_reading()
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Pass on."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        """This end is slow: read no more from the other."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """This end has caught up."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Whoever ends, ends both; what is still to be written is written."""
        self.close()
        if self.other is not None:
            self.other.close()
        if not self.closed.done():
            self.closed.set_result(None)

    def close(self) -> None:
        """End this side."""
        if self.transport is not None:
            self.transport.close()


class Terminator:
    """Accepts TLS connections and relays each to a Unix socket."""

    def __init__(self, backend: Path, context: Callable[[], ssl.SSLContext]) -> None:
        self._backend = backend
        self._context = context
        self._connections: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None
        self._socket: socket.socket | None = None

    def start(self, host: str, port: int) -> int:
        """Listen, and serve in the background; the port."""
        listener = listen(host, port, shared=True)
        listener.setblocking(False)  # noqa: FBT003  (its only argument)
        self._socket = listener
        self._accepting = asyncio.create_task(self._accept(listener))
        bound: int = listener.getsockname()[1]
        return bound

    async def stop_accepting(self) -> None:
        """Take no more connections; those that are open go on."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()

    async def close(self) -> None:
        """End the connections that are open."""
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError as error:  # out of files, or the client has gone already
                _log.warning("could not accept a connection: %s", error)
                await asyncio.sleep(_RETRY_ACCEPT_S)
                continue
            task = asyncio.create_task(self._serve(accepted))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _serve(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        front = back = None
        try:
            _, front = await loop.connect_accepted_socket(
                _Side,
                accepted,
                ssl=self._context(),
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
            )
            _, back = await loop.create_unix_connection(_Side, str(self._backend))
            _join(front, back)
            await asyncio.wait([front.closed, back.closed])
        except (OSError, ssl.SSLError, TimeoutError) as error:
            _log.debug("TLS connection failed: %s", error)
            accepted.close()
        finally:
            for side in (front, back):
                if side is not None:
                    side.close()


def _join(front: _Side, back: _Side) -> None:
    front.other, back.other = back, front
    for side in (front, back):
        if side.transport is not None:
            with contextlib.suppress(RuntimeError):  # it has closed already
                side.transport.resume_reading()
