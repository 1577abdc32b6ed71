"""HTTP as it goes over the wire: what is sent together, in which order, and to whom."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvloop

from proxyinit.inject.endpoints import webhook_app
from proxyinit.inject.server import HEADERS_WITHIN_S, Server
from proxyinit.inject.webhook import MOST_BYTES, Answer


class Echo:
    """Answers with the body that was sent, once it is let; `seen` are all bodies."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.asked = asyncio.Event()
        self.let = asyncio.Event()
        self.let.set()

    async def answer(self, body: bytes) -> Answer:
        """The body."""
        self.seen.append(body)
        self.asked.set()
        await self.let.wait()
        return Answer(200, body)

    def refuse_size(self) -> Answer:
        """What is said of too much."""
        return Answer(500, b"too much")


class Client:
    """A connection without TLS."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.reader, self.writer = reader, writer

    def send(self, body: bytes, *headers: bytes, method: bytes = b"POST") -> None:
        """Send a request whole."""
        self.writer.write(request(body, *headers, method=method))

    async def until(self, text: bytes) -> bytes:
        """What arrives, up to a text."""
        return await asyncio.wait_for(self.reader.readuntil(text), 10)

    async def rest(self) -> bytes:
        """What arrives until the server hangs up."""
        return await asyncio.wait_for(self.reader.read(), 10)


def request(body: bytes, *headers: bytes, method: bytes = b"POST") -> bytes:
    """A request as bytes."""
    size = b"content-length: %d" % len(body)
    lines = [method + b" / HTTP/1.1", b"host: webhook", size, *headers, b"", body]
    return b"\r\n".join(lines)


def answer(body: bytes, *headers: bytes) -> bytes:
    """An answer as bytes."""
    size = b"content-length: %d" % len(body)
    lines = [b"HTTP/1.1 200 OK", b"content-type: application/json", size]
    return b"\r\n".join([*lines, *headers, b"", body])


@asynccontextmanager
async def connected(server: Server) -> AsyncIterator[Client]:
    """A client of a server."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


@asynccontextmanager
async def running(
    echo: Echo, headers_within_s: float = HEADERS_WITHIN_S
) -> AsyncIterator[Server]:
    """A server."""
    listener = socket.create_server(("127.0.0.1", 0))
    app = webhook_app(echo)
    server = Server(app, listener, headers_within_s=headers_within_s)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def serving(echo: Echo) -> AsyncIterator[Client]:
    """A server's client."""
    async with running(echo) as server, connected(server) as client:
        yield client


LAST = b"connection: close"


def test_requests_in_a_pipeline() -> None:
    """They are answered in their order, though all came at once."""

    async def talk() -> bytes:
        async with serving(echo := Echo()) as client:
            echo.let.clear()
            for body in (b"a", b"", b"bc"):
                client.send(body)
            client.send(b"d", LAST)
            await echo.asked.wait()
            echo.let.set()
            return await client.rest()

    expected = answer(b"a") + answer(b"") + answer(b"bc") + answer(b"d", LAST)
    assert uvloop.run(talk()) == expected


def test_who_waits_to_be_asked_for_a_body_is_asked() -> None:
    """What stands alone is sent, too: nothing comes after it by itself."""

    async def talk() -> bytes:
        async with serving(Echo()) as client:
            whole = request(b"abc", b"expect: 100-continue", LAST)
            client.writer.write(whole[:-3])
            assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.writer.write(whole[-3:])
            return await client.rest()

    assert uvloop.run(talk()) == answer(b"abc", LAST)


def test_a_head_without_a_body() -> None:
    """HEAD is answered by the head alone, which waits for nothing."""

    async def talk() -> bytes:
        async with serving(Echo()) as client:
            client.send(b"abc", method=b"HEAD")
            await client.until(b"\r\n\r\n")
            client.send(b"d", LAST)
            return await client.rest()

    assert uvloop.run(talk()) == answer(b"d", LAST)


def test_what_is_no_request() -> None:
    """It is told so before the server hangs up."""

    async def talk() -> bytes:
        async with serving(Echo()) as client:
            client.writer.write(b"\0\1\r\n\r\n")
            return await client.rest()

    assert uvloop.run(talk()).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "size", [pytest.param(0, id="nothing"), pytest.param(5, id="some of it")]
)
def test_a_body_that_breaks_off_is_none(size: int) -> None:
    """Who hangs up meanwhile has asked nothing, and nothing is said of it."""

    async def talk() -> list[bytes]:
        async with serving(echo := Echo()) as client:
            whole = request(b"abc" * 4)
            client.writer.write(whole[: len(whole) - 12 + size])
            client.writer.write_eof()
            assert await client.rest() == b""
        return echo.seen

    assert uvloop.run(talk()) == []


def test_more_than_is_read() -> None:
    """It is forgotten as it comes, and the connection goes on."""

    async def talk() -> tuple[list[bytes], bytes]:
        async with serving(echo := Echo()) as client:
            client.send(b"x" * (MOST_BYTES + 1))
            head = await client.until(b"too much")
            client.send(b"y" * MOST_BYTES, LAST)
            await client.rest()
        return [body[:1] for body in echo.seen], head

    seen, head = uvloop.run(talk())
    assert seen == [b"y"]
    assert head.startswith(b"HTTP/1.1 500 ")


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="silence"),
        pytest.param(b"POST / HT", id="half a head"),
        pytest.param(request(b"a") + b"POST / HT", id="half a head, the second time"),
    ],
)
def test_who_does_not_come_to_the_point(sent: bytes) -> None:
    """They are hung up on; who has asked and may ask again is not."""

    async def talk() -> bytes:
        async with (
            running(Echo(), headers_within_s=0.2) as server,
            connected(server) as idle,
            connected(server) as slow,
        ):
            idle.send(b"a")
            await idle.until(answer(b"a"))
            slow.writer.write(sent)
            with contextlib.suppress(ConnectionResetError):
                await slow.rest()
            idle.send(b"b", LAST)
            return await idle.rest()

    assert uvloop.run(talk()) == answer(b"b", LAST)


def test_no_answer_waits_for_an_acknowledgement() -> None:
    """Accepted connections have what the listener has: Nagle's algorithm is off."""

    async def app(*_: object) -> None:
        raise AssertionError("nobody asks")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        Server(app, listener)
        with (
            socket.create_connection(listener.getsockname()),
            listener.accept()[0] as accepted,
        ):
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
