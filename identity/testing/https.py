"""An HTTPS server that records and answers calls, and can be cut off."""

from __future__ import annotations

import json
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from identity.testing.authority import Leaf


@dataclass(frozen=True, slots=True)
class Call:
    """A request that arrived: when, on the monotonic clock, and what."""

    at_s: float
    method: str
    path: str
    body: Any = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: JSON from a mapping, or text as it is.

    With `stream` the body comes in chunks, as long as that has any.
    """

    status: int
    body: Mapping[str, Any] | str
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: Iterable[bytes] | None = None

    @property
    def content(self) -> bytes:
        """The bytes of the body."""
        return (
            self.body if isinstance(self.body, str) else json.dumps(self.body)
        ).encode()

    @property
    def content_type(self) -> str:
        """What the body is said to be."""
        return "text/html" if isinstance(self.body, str) else "application/json"


Respond = Callable[[Call, str], Answer]
"""What to say to a call that came with this bearer token, or none."""


class Handler(BaseHTTPRequestHandler):
    """Reads requests, and writes what is answered to them."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # status line, headers and body leave in one packet
    server: Server

    def do_GET(self) -> None:
        """Answer a GET."""
        self._handle(None)

    def do_POST(self) -> None:
        """Answer a POST of JSON."""
        size = int(self.headers.get("Content-Length", "0"))
        self._handle(json.loads(self.rfile.read(size)))

    def do_PATCH(self) -> None:
        """Answer a PATCH of JSON."""
        self.do_POST()

    def _handle(self, body: Any) -> None:
        call = Call(time.monotonic(), self.command, self.path, body)
        bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
        answer = self.server.answer(call, bearer)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        if answer.stream is not None:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._write_chunks(answer.stream)
            return
        self.send_header("Content-Length", str(len(answer.content)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.content)
        self.wfile.flush()

    def _write_chunks(self, stream: Iterable[bytes]) -> None:
        self.wfile.flush()
        for chunk in stream:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: `calls` has it."""


class Server(ThreadingHTTPServer):
    """A server in threads, from its making until `close`."""

    request_queue_size = 128
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], leaf: Leaf, answer: Respond) -> None:
        super().__init__(address, Handler)
        self.answer = answer
        self._open: set[socket.socket] = set()
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            self._tls.load_cert_chain(*leaf.write(Path(folder)))
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        self._thread.start()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept; the handshake is left to the connection's own thread."""
        raw, address = super().get_request()
        tls = self._tls.wrap_socket(
            raw, server_side=True, do_handshake_on_connect=False
        )
        self._open.add(tls)
        return tls, address

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that has ended."""
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients may go away whenever they like."""

    def close(self) -> None:
        """Stop to accept, and cut what is open."""
        self.shutdown()
        self._thread.join()
        self.server_close()
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:  # it ended by itself meanwhile
                self._open.discard(connection)
