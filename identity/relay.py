"""A private socket for gRPC, joined to a connection that gRPC can't make itself.

Both directions are moved by the one event loop: a TLS connection that two threads
read and write at once hangs now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from types import TracebackType
from typing import Self

from identity.transport import Stream

_CHUNK = 1 << 16


class Relay:
    """Takes one local connection, from this very process, and joins it to a stream.

    A context manager. The socket has a random name in the kernel and none in any
    directory, so there is nothing to write and nothing to leave behind; others of
    the pod could connect to it, and are turned away.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._name = f"proxy-identity-{os.urandom(16).hex()}"
        self._near: Stream | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def target(self) -> str:
        """The socket, as gRPC spells it."""
        return f"unix-abstract:{self._name}"

    @property
    def failure(self) -> OSError | None:
        """Why the far connection broke, if it did."""
        error = self._stream.reader.exception()
        return error if isinstance(error, OSError) else None

    async def __aenter__(self) -> Self:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"\0{self._name}")
        self._server = await asyncio.start_unix_server(self._serve, sock=listener)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._near is not None:
            await self._near.close()
        await self._stream.close()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._near is not None or _peer_pid(writer) != os.getpid():
            writer.transport.abort()
            return
        self._near = near = Stream(reader, writer)
        far = self._stream
        ways = [
            asyncio.create_task(_move(near.reader, far.writer)),
            asyncio.create_task(_move(far.reader, near.writer)),
        ]
        self._tasks.update(ways)
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        near.writer.close()


async def _move(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Move bytes one way until either end is closed."""
    with contextlib.suppress(OSError):
        while data := await source.read(_CHUNK):
            sink.write(data)
            await sink.drain()


def _peer_pid(writer: asyncio.StreamWriter) -> int:
    """The process at the other end of a local connection, as the kernel knows it."""
    connection = writer.get_extra_info("socket")
    size = struct.calcsize("3i")
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid: int = struct.unpack("3i", raw)[0]
    return pid
