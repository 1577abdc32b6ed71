"""The agent's own web server: is it alive, is there a certificate, the metrics."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from identity.agent import Agent
from identity.errors import IdentityError

REQUEST_TIMEOUT_S = 5.0
MAX_REQUEST = 8192

_PLAIN = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class Page:
    """An answer: status, body, and what the body is."""

    status: int
    body: bytes
    kind: str = _PLAIN


Pages: TypeAlias = Mapping[str, Callable[[], Page]]


def pages(agent: Agent) -> Pages:
    """What is served of an agent, by path."""

    def ready() -> Page:
        return Page(200, b"ready\n") if agent.ready() else Page(503, b"not ready\n")

    return {
        "/live": lambda: Page(200, b"live\n"),
        "/ready": ready,
        "/metrics": lambda: Page(200, agent.metrics.render(), _METRICS),
    }


def respond(head: bytes, served: Pages) -> bytes:
    """The whole answer to a request's head; the connection is closed after it."""
    method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
    target, _, version = rest.partition(" ")
    if not version.startswith("HTTP/1."):
        page = Page(400, b"expected HTTP/1.1\n")
    elif method not in ("GET", "HEAD"):
        page = Page(405, b"expected GET or HEAD\n")
    elif make := served.get(target.partition("?")[0]):
        page = make()
    else:
        page = Page(404, f"expected one of {', '.join(served)}\n".encode())
    lines = (
        f"HTTP/1.1 {page.status} {_REASONS[page.status]}",
        f"Content-Type: {page.kind}",
        f"Content-Length: {len(page.body)}",
        *(["Allow: GET, HEAD"] if page.status == 405 else []),
        "Connection: close",
        "\r\n",
    )
    return "\r\n".join(lines).encode() + (b"" if method == "HEAD" else page.body)


@contextlib.asynccontextmanager
async def serving(host: str, port: int, served: Pages) -> AsyncIterator[int]:
    """Serve until left; the port. No host means every address of this machine.

    Raises `IdentityError` if the address is taken.
    """
    open_writers: set[asyncio.StreamWriter] = set()

    async def answer(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        open_writers.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                except asyncio.LimitOverrunError:
                    head = b""
                writer.write(respond(head, served))
                await writer.drain()
        writer.close()
        open_writers.discard(writer)

    try:
        server = await asyncio.start_server(answer, host, port, limit=MAX_REQUEST)
    except OSError as error:
        raise IdentityError(
            f"can't listen on {host} port {port}: {error.strerror}; "
            "choose another --admin-addr"
        ) from error
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in open_writers:
            writer.transport.abort()
