"""What a review costs: against reading and writing its JSON, and under a steady load.

Reviews of fifty Deployments' pods in turn, as an API server sends them, each different
from the last. The client is a bare socket with TLS, and what it takes is counted too.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from interception import Row
from reviews import review

from identity.testing import CA
from proxyinit.inject.testing import Cluster

LAUNCHER = (sys.executable, "-m", "proxyinit.inject.launcher", "serve")
WORKLOADS = 50
REVIEWS = 4000
RATE = 200
LOAD_S = 60
CONNECTIONS = 4
TARGET = 4.0
TAIL_TARGET = 5.0

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_PORT = re.compile(r':(\d+)"')


def rows() -> Iterator[Row]:
    """Every figure of the webhook."""
    sys.setswitchinterval(0.0001)  # the clients' threads must not wait for each other
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        with _cluster(folder):
            with _one_cpu(), _webhook(folder) as (port, context):
                together = _cost(port, context)
            with _webhook(folder) as (port, context):
                yield _cost_row(together, _cost(port, context))
                yield _tail(port, context)


@contextlib.contextmanager
def _cluster(folder: Path) -> Iterator[None]:
    """An API server in a process of its own: it takes no time from the clients."""
    argv = [sys.executable, __file__, str(folder)]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield


def serve_cluster(folder: Path) -> None:
    """Be that API server, until the one that started it goes."""
    with Cluster() as cluster:
        for number in range(WORKLOADS):
            above = {"apiVersion": "apps/v1", "kind": "Deployment", "uid": f"{number}"}
            above["name"] = f"server-{number}"
            cluster.owned("replicasets", "shop", f"server-{number}-5b6f8d9c4", above)
        cluster.annotate("shop", {"linkerd.io/inject": "enabled"})
        cluster.write_kubeconfig(folder)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.read()


@contextlib.contextmanager
def _webhook(folder: Path) -> Iterator[tuple[int, ssl.SSLContext]]:
    """The program with the chart's values; its port, and who trusts it."""
    ca = CA("webhook")
    certificate, key = ca.leaf(dns=["localhost"]).write(folder)
    (folder / "values").write_text("linkerdVersion: v1\n")
    (folder / "roots").write_bytes(ca.pem)
    argv: list[str | Path] = [
        *(*LAUNCHER, "-addr=127.0.0.1:0", "-metrics-addr=127.0.0.1:0"),
        *("-kubeconfig", folder / "kubeconfig", "--values", folder / "values"),
        *("--trust-roots", folder / "roots", "--tls-cert", certificate),
        *("--tls-key", key),
    ]
    log = (folder / "log").open("w+b")
    with log, subprocess.Popen(argv, stderr=log) as process:
        try:
            port = _port_in(folder / "log", process)
            yield port, ssl.create_default_context(cadata=ca.pem.decode())
        finally:
            process.terminate()


def _port_in(log: Path, process: subprocess.Popen[bytes]) -> int:
    while process.poll() is None:
        for line in log.read_text().splitlines():
            if "listening at" in line:
                return int(_PORT.findall(line)[0])
        time.sleep(0.05)
    raise RuntimeError(f"the webhook ended: {log.read_text()}")


class Client:
    """One connection, kept alive."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        raw = socket.create_connection(("127.0.0.1", port))
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = context.wrap_socket(raw, server_hostname="localhost")

    def ask_s(self, request: bytes) -> float:
        """Send a request and read its answer; the seconds that it took."""
        begun_s = time.perf_counter()
        self._socket.sendall(request)
        answer = self._receive()
        while b"\r\n\r\n" not in answer:
            answer += self._receive()
        head, _, body = answer.partition(b"\r\n\r\n")
        found = _LENGTH.search(head)
        left = int(found[1]) - len(body) if found else 0
        while left > 0:
            body += (part := self._receive())
            left -= len(part)
        taken_s = time.perf_counter() - begun_s
        if not head.startswith(b"HTTP/1.1 200") or b'"patch":' not in body:
            raise RuntimeError(f"no patch: {answer[:300]!r}")
        return taken_s

    def _receive(self) -> bytes:
        found = self._socket.recv(65536)
        if not found:
            raise RuntimeError("the webhook hung up")
        return found

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def _requests() -> tuple[list[bytes], list[bytes]]:
    bodies = [review(number) for number in range(WORKLOADS)]
    head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return bodies, [
        f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies
    ]


@contextlib.contextmanager
def _one_cpu() -> Iterator[None]:
    """One CPU for the client and the webhook.

    Else each sleeps while the other works, and finds its CPU's caches cold; what that
    costs depends on the machine, and the JSON that it is compared with does not pay.
    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@dataclass(frozen=True)
class Cost:
    """Medians: of a review over TLS, and of its JSON alone."""

    review_us: float
    json_us: float

    @property
    def ratio(self) -> float:
        """How often the one takes as long as the other."""
        return self.review_us / self.json_us


def _cost(port: int, context: ssl.SSLContext) -> Cost:
    """Reviews and their JSON alone, one by one: both with the caches that are left."""
    bodies, requests = _requests()
    client = Client(port, context)
    for request in requests * 4:
        client.ask_s(request)
    reviews_s: list[float] = []
    least_s: list[float] = []
    for number in range(REVIEWS):
        reviews_s.append(client.ask_s(requests[number % WORKLOADS]))
        body = bodies[number % WORKLOADS]
        begun_s = time.perf_counter()
        json.dumps(json.loads(body))
        least_s.append(time.perf_counter() - begun_s)
    client.close()
    return Cost(*(1e6 * statistics.median(x) for x in (reviews_s, least_s)))


def _cost_row(together: Cost, apart: Cost) -> Row:
    figure = (
        f"{together.ratio:.2f} ({together.review_us:.0f} µs over TLS, JSON "
        f"{together.json_us:.0f} µs; on two CPUs, which sleep in turns, "
        f"{apart.ratio:.2f}: {apart.review_us:.0f} µs and {apart.json_us:.0f} µs)"
    )
    what = "webhook, keep-alive, client on the same CPU: a review against its JSON"
    return Row(what, figure, f"≤ {TARGET:g}", together.ratio <= TARGET)


@dataclass
class Load:
    """What clients saw that send at given times; lateness of ours is not theirs."""

    taken_s: list[float] = field(default_factory=list)

    def run(
        self, client: Client, requests: list[bytes], first: int, at_s: float
    ) -> None:
        """Send every `CONNECTIONS`-th request of the load."""
        for number in range(first, RATE * LOAD_S, CONNECTIONS):
            time.sleep(max(0.0, at_s + number / RATE - time.perf_counter()))
            self.taken_s.append(client.ask_s(requests[number % WORKLOADS]))


def _tail(port: int, context: ssl.SSLContext) -> Row:
    """A steady load, for a minute."""
    _, requests = _requests()
    load = Load()
    at_s = time.perf_counter() + 0.2
    threads = [
        threading.Thread(
            target=load.run, args=(Client(port, context), requests, first, at_s)
        )
        for first in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    median_s = statistics.median(load.taken_s)
    p99_s = statistics.quantiles(load.taken_s, n=100)[98]
    ratio = p99_s / median_s
    figure = (
        f"{ratio:.2f} (p99 {1e3 * p99_s:.2f} ms, median {1e3 * median_s:.2f} ms, "
        f"{len(load.taken_s)} reviews)"
    )
    what = f"webhook: p99 against the median at {RATE} reviews a second for a minute"
    return Row(what, figure, f"≤ {TAIL_TARGET:g}", ratio <= TAIL_TARGET)


def main() -> None:
    """Print the figures; or, with a folder, be the API server of one who does."""
    if len(sys.argv) > 1:
        serve_cluster(Path(sys.argv[1]))
        return
    for row in rows():
        mark = {True: "ok", False: "missed", None: ""}[row.met]
        print(f"{row.what}: {row.figure} [{row.target}] {mark}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
