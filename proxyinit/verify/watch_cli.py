"""The command `proxy-init watch`: verify a node again and again, and serve metrics."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from proxyinit.commands import LOOKED_AT, PflagCommand
from proxyinit.config import MAX_PORT, parse_number
from proxyinit.errors import ProxyInitError
from proxyinit.pflag import Arguments, Flag, parse_bool
from proxyinit.verify.exposition import exposition

_HELP = """Verify the namespaces of this node again and again, and serve the outcome.

At /metrics, in Prometheus' text format, is what `verify --all` found the last time.
/ready answers 200 once there is an outcome that is not older than three intervals.

\b
Example, as root in a pod with hostPID:
  proxy-init watch --addr :4194 --interval 60
"""

_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ADDRESS = ("", 4194)
_STALE_INTERVALS = 3


def parse_address(text: str) -> tuple[str, int]:
    """(host, port) of ``HOST:PORT`` or ``:PORT``."""
    host, colon, port = text.rpartition(":")
    digits = port.isascii() and port.isdigit()
    if not colon or not digits or int(port) > MAX_PORT:
        raise ValueError("expected HOST:PORT or :PORT")
    return host.strip("[]"), int(port)


def parse_interval(text: str) -> int:
    """Seconds, from one to a day."""
    return parse_number(text, 1, 86400, "seconds")


WATCH_FLAGS = (
    Flag(
        "addr",
        "Where to serve /metrics, /ready and /live (default: :4194).",
        parse_address,
        metavar="[HOST]:PORT",
    ),
    Flag(
        "interval",
        "Seconds between one look and the next.",
        parse_interval,
        metavar="SECONDS",
        default=60,
    ),
    Flag("probe", "Prove it by live connections as well.", parse_bool, default=False),
)


class Outcome:
    """What was found the last time, for all who ask."""

    def __init__(self, lasting_s: float) -> None:
        self.text = ""
        self._lasting_s = lasting_s
        self._found_s = 0.0

    def put(self, text: str) -> None:
        """Replace what was found before."""
        self.text, self._found_s = text, time.monotonic()

    @property
    def is_fresh(self) -> bool:
        """Whether there is one, and not from long ago."""
        return bool(self.text) and time.monotonic() < self._found_s + self._lasting_s


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], outcome: Outcome) -> None:
        host, port = address
        six = ":" in host or (not host and socket.has_dualstack_ipv6())
        self.address_family = socket.AF_INET6 if six else socket.AF_INET
        self.outcome = outcome
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Listen for both versions of IP, where no address is given."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        """Answer what a scraper or the kubelet asks."""
        outcome = self.server.outcome
        pages = {
            "/metrics": (bool(outcome.text), outcome.text),
            "/ready": (outcome.is_fresh, "ready\n"),
            "/live": (True, "live\n"),
        }
        well, text = pages.get(self.path, (None, ""))
        status = 404 if well is None else 200 if well else 503
        content = text.encode() if well else b""
        self.send_response(status)
        self.send_header("Content-Type", _TYPE)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing: probes come every few seconds."""


def _own_program() -> tuple[str, ...]:
    """How this one was started: by its name, or as a module of the interpreter."""
    if sys.argv[0].endswith("__main__.py"):
        return (sys.executable, "-m", "proxyinit")
    return (sys.argv[0],)


def look(*words: str, program: Sequence[str] = ()) -> dict[str, Any]:
    """What `verify --all` finds; raises `ProxyInitError` when it has no answer.

    By a program of its own: one that goes in and out of namespaces, and ends.
    """
    argv = [*(program or _own_program()), "verify", "--all", "--format", "json", *words]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ProxyInitError(f"can't start {argv[0]}: {error.strerror}") from error
    try:
        found = json.loads(done.stdout)
    except ValueError as error:
        said = done.stderr.strip() or f"status {done.returncode}"
        raise ProxyInitError(f"verify --all gave no answer: {said}") from error
    if not isinstance(found, dict):
        raise ProxyInitError("verify --all gave an answer of another form")
    return found


def _watch(arguments: Arguments) -> int:
    values: dict[str, Any] = arguments.values
    outcome = Outcome(values["interval"] * _STALE_INTERVALS)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    host, port = values["addr"] or _ADDRESS
    try:
        server = _Server((host, port), outcome)
    except OSError as error:
        raise ProxyInitError(f"can't serve at {host}:{port}: {error}") from error
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        words = ["--probe"] if values["probe"] else []
        while not stop.is_set():
            started = time.monotonic()
            try:
                found = look(*words)
                took_s = time.monotonic() - started
                outcome.put(exposition(found, time.time(), took_s))
            except ProxyInitError as error:
                # The last outcome stays, until it is too old for /ready.
                print(f"watch: {error}", file=sys.stderr, flush=True)  # noqa: T201
            stop.wait(values["interval"])
        server.shutdown()
    return 0


def problems(arguments: Arguments) -> Iterator[str]:
    """Everything that is wrong with the arguments."""
    yield from arguments.problems


watch_command = PflagCommand(
    "watch", WATCH_FLAGS, _watch, _HELP, check=problems, assurance=LOOKED_AT
)
