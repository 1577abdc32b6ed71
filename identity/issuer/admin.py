"""The admin endpoints: alive, ready, metrics."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from identity.issuer.sockets import listen

_TEXT = "text/plain; charset=utf-8"
_log = logging.getLogger(__name__)


class Admin:
    """Serves `/ping`, `/ready` and `/metrics` from a thread, until closed.

    Not ready is status 500, as upstream has it.
    """

    def __init__(
        self, host: str, port: int, registry: Callable[[], CollectorRegistry]
    ) -> None:
        self.ready = threading.Event()
        self._registry = registry
        self._server = _Server(listen(host, port), self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The TCP port."""
        bound: int = self._server.socket.getsockname()[1]
        return bound

    def close(self) -> None:
        """Stop to serve."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, content type and body for a path."""
        if path == "/ping":
            return 200, _TEXT, b"pong\n"
        if path == "/ready":
            ready = self.ready.is_set()
            return (200, _TEXT, b"ok\n") if ready else (500, _TEXT, b"not ready\n")
        if path == "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest(self._registry())
        return 404, _TEXT, b"not found\n"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listener: socket, admin: Admin) -> None:
        # Bound already: http.server would ask the DNS for the host's full name.
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.admin = admin


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10

    def do_GET(self) -> None:
        """Answer a GET."""
        status, kind, body = self.server.admin.answer(self.path.partition("?")[0])
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Probes come every few seconds: for debugging only."""
        _log.debug(format, *args)
