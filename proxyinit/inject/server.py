"""Serving with uvicorn: HTTP/1.1, kept alive.

uvicorn with httptools took the least time of the servers that were measured: a review
over TLS in 122 µs, where aiohttp took 163 to 235 and uvicorn with h11 166.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from functools import partial
from socket import IPPROTO_TCP, TCP_NODELAY, socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

HEADERS_WITHIN_S = 15
"""From the first byte of a connection to the end of a request's headers."""
KEPT_ALIVE_S = 120
"""Longer than API servers keep idle connections (90 s): they close first."""
GRACE_S = 5
"""For requests that are under way when we are asked to stop."""


class _Whole:
    """A transport that sends the head of an answer and its body together.

    uvicorn writes one after the other, which would be two records of TLS, two packets,
    and a client that wakes up twice. What stays alone goes when this turn of the loop
    ends.
    """

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send it with what came before it, or with what is next."""
        self._held.append(data)
        if len(self._held) > 1:
            self._send()
        else:
            self._loop.call_soon(self._send)

    def close(self) -> None:
        """Hang up when all is sent."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        held, self._held = self._held, []
        if held and not self._transport.is_closing():
            self._transport.write(b"".join(held))


class _Protocol(HttpToolsProtocol):
    """Hangs up on connections that don't come to the point."""

    _waiting: asyncio.TimerHandle

    def __init__(self, *uvicorns: Any, headers_within_s: float, **more: Any) -> None:
        super().__init__(*uvicorns, **more)
        self._headers_within_s = headers_within_s

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request's headers, but not for ever."""
        super().connection_made(_Whole(transport, self.loop))  # type: ignore[arg-type]  # as a transport
        self._wait()

    def on_message_begin(self) -> None:
        """The same for each request that follows."""
        self._waiting.cancel()
        self._wait()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """They are here."""
        self._waiting.cancel()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is waited for any more."""
        self._waiting.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        hang_up = self.transport.abort
        self._waiting = self.loop.call_later(self._headers_within_s, hang_up)


class Server:
    """One listening socket and an application, in the running loop.

    Connections are accepted from `start` on. `stop` takes no more of them, and waits
    for requests under way.
    """

    def __init__(
        self,
        app: App,
        listener: socket,
        tls: ssl.SSLContext | None = None,
        *,
        headers_within_s: float = HEADERS_WITHIN_S,
    ) -> None:
        factory = None if tls is None else lambda _config, _default: tls
        protocol = partial(_Protocol, headers_within_s=headers_within_s)
        config = uvicorn.Config(
            app,
            http=protocol,  # type: ignore[arg-type]  # called as the class would be
            loop="none",
            lifespan="off",
            interface="asgi3",
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEPT_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
            backlog=1024,
            ssl_context_factory=factory,
        )
        # asyncio does it for sockets that it makes itself. Without it the second packet
        # of an answer waits for the first to be acknowledged: 40 ms.
        listener.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        self._server = _Uvicorn(config)
        self._listener = listener
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The TCP port."""
        bound: int = self._listener.getsockname()[1]
        return bound

    async def start(self) -> None:
        """Serve in the background."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        await self._server.begun.wait()

    async def stop(self) -> None:
        """Stop gracefully."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task


class _Uvicorn(uvicorn.Server):
    """uvicorn without a say in signals, and with news of its start."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.begun = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to whoever runs us."""
        yield

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Start, and tell."""
        await super().startup(sockets)
        self.begun.set()
