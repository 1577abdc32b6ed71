"""The agent's web server: pages, and requests that are none."""

from __future__ import annotations

import asyncio
import http.client
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identity import health
from identity.errors import IdentityError
from identity.health import Page, respond, serving

PAGES = {
    "/live": lambda: Page(200, b"live\n"),
    "/ready": lambda: Page(503, b"not ready\n"),
}


@pytest.mark.parametrize(
    ("head", "status", "body"),
    [
        pytest.param(b"GET /live HTTP/1.1", 200, b"live\n", id="live"),
        pytest.param(b"GET /live?x=1 HTTP/1.0", 200, b"live\n", id="with a query"),
        pytest.param(b"GET /ready HTTP/1.1", 503, b"not ready\n", id="not ready"),
        pytest.param(b"HEAD /ready HTTP/1.1", 503, b"", id="HEAD"),
        pytest.param(b"POST /live HTTP/1.1", 405, b"expected GET", id="POST"),
        pytest.param(b"GET / HTTP/1.1", 404, b"expected one of /live", id="elsewhere"),
        pytest.param(b"GET /live", 400, b"expected HTTP", id="HTTP 0.9"),
        pytest.param(b"\x16\x03\x01", 400, b"expected HTTP", id="TLS"),
    ],
)
def test_answers(head: bytes, status: int, body: bytes) -> None:
    """Status, length and text, for each kind of request."""
    got, _, text = respond(head + b"\r\nHost: x\r\n\r\n", PAGES).partition(b"\r\n\r\n")
    assert got.startswith(f"HTTP/1.1 {status} ".encode())
    assert text.startswith(body)
    if body:
        assert f"Content-Length: {len(text)}".encode() in got


@given(st.binary(max_size=200))
def test_no_request_makes_it_fail(head: bytes) -> None:
    """Any bytes get an answer of HTTP."""
    assert respond(head, PAGES).startswith(b"HTTP/1.1 ")


def ask(port: int, path: str) -> tuple[int, bytes]:
    """A page, as another program gets it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path)
    response = connection.getresponse()
    answer = response.status, response.read()
    connection.close()
    return answer


def test_served_over_http() -> None:
    """A client of the standard library is content; junk and silence hold nobody up."""

    async def talk() -> list[tuple[int, bytes]]:
        async with serving("127.0.0.1", 0, PAGES) as port:
            with socket.create_connection(("127.0.0.1", port)) as silent:
                with socket.create_connection(("127.0.0.1", port)) as junk:
                    junk.sendall(b"x" * 3 * health.MAX_REQUEST)
                    pages = [
                        await asyncio.to_thread(ask, port, path)
                        for path in ("/live", "/ready", "/x")
                    ]
                silent.sendall(b"G")
            return pages

    assert asyncio.run(talk()) == [
        (200, b"live\n"),
        (503, b"not ready\n"),
        (404, b"expected one of /live, /ready\n"),
    ]


def test_an_address_that_is_taken() -> None:
    """The message names it, and the option to change."""

    async def twice(port: int) -> None:
        async with serving("127.0.0.1", port, PAGES):
            pytest.fail("it can't listen there")

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(IdentityError, match=rf"port {port}: .*--admin-addr"):
            asyncio.run(twice(port))
