"""The test service of upstream's integration lab: who answers, and whom it asks."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import socket
import socketserver
import urllib.parse

TIMEOUT_S = 5
FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}


def url_of(host: str, port: int, path: str = "/") -> str:
    literal = f"[{host}]" if ":" in host else host
    return f"http://{literal}:{port}{path}"


def get(url: str) -> str:
    """The body of a successful answer; raises OSError where nobody answers."""
    parts = urllib.parse.urlsplit(url)
    assert parts.hostname
    connection = http.client.HTTPConnection(
        parts.hostname, parts.port, timeout=TIMEOUT_S
    )
    with contextlib.closing(connection):
        connection.request("GET", f"{parts.path}?{parts.query}")
        answer = connection.getresponse()
        assert answer.status == http.HTTPStatus.OK
        return answer.read().decode()


class Handler(http.server.BaseHTTPRequestHandler):
    """``/`` says who answers; ``/call?url=`` asks on, and says that as well."""

    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        url = urllib.parse.urlsplit(self.path)
        body = self.server.who
        if url.path == "/call":
            (target,) = urllib.parse.parse_qs(url.query)["url"]
            body = f"me:[{body}]downstream:[{get(target)}]"
        self.send_response(http.HTTPStatus.OK)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its name)
        """Keep quiet."""


class Server(http.server.ThreadingHTTPServer):
    """Upstream's test service under a name, in one family.

    Sockets that a handler opens belong to the namespace and the user of the
    thread that `serve` runs in: threads inherit both.
    """

    def __init__(self, who: str, port: int, version: int) -> None:
        self.who = who
        self.address_family = FAMILY[version]
        self._closing = False
        super().__init__(("", port), Handler)

    def server_bind(self) -> None:
        """Bind, without the look-up of a host name that http.server does."""
        socketserver.TCPServer.server_bind(self)

    def serve(self) -> None:
        """Answer until closed."""
        while not self._closing:
            self.handle_request()
        self.server_close()

    def close(self) -> None:
        """Make `serve` return: a listener that is shut down becomes readable."""
        self._closing = True
        self.socket.shutdown(socket.SHUT_RDWR)
