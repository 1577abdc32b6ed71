"""Several processes that serve, and one that answers for them.

They share the port; the kernel gives each new connection to one of them. The parent
sends a worker its configuration, and hears from it when it is ready. When one ends
before it is asked to, all end: who restarts us sees a failure. When the parent is
killed its pipes close, and the workers stop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import IO

from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

from identity import logs
from identity.issuer.admin import Admin
from identity.issuer.config import IssuerConfig, split_address
from identity.issuer.errors import IssuerError
from identity.issuer.metrics import Metrics
from identity.issuer.run import READY, is_enabled, say_admin
from identity.issuer.signals import STOP_SIGNALS, stop_signal
from identity.issuer.worker import Worker, new_loop

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Where prometheus_client, from its import on, keeps the values of a process."""

_EXTRA_GRACE_S = 5
_POLL_S = 0.2
_log = logging.getLogger(__name__)


def run(config: IssuerConfig) -> None:
    """Serve until a signal asks to stop. Raises `IssuerError` when that can't be."""

    def registry() -> CollectorRegistry:
        made = CollectorRegistry()
        MultiProcessCollector(made, path=folder)  # type: ignore[no-untyped-call]  # it has no types
        return made

    stop = threading.Event()
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: stop.set())
    with tempfile.TemporaryDirectory(prefix="issuer-metrics-") as folder:
        admin = Admin(*split_address(config.admin_address), registry)
        say_admin(config, admin)
        try:
            if is_enabled(config):
                with _reserved_port(config) as shared:
                    _supervise(shared, admin, stop, folder)
        finally:
            admin.close()


def _supervise(
    config: IssuerConfig, admin: Admin, stop: threading.Event, folder: str
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    try:
        with selectors.DefaultSelector() as talk:
            for _ in range(config.workers):
                process = _start(config, folder)
                started.append(process)
                pipe = _pipe(process.stdout)
                talk.register(pipe, selectors.EVENT_READ, data=pipe)
            waiting = len(started)
            while not stop.is_set():
                for key, _ in talk.select(_POLL_S):
                    _hear(key.data)
                    waiting -= 1
                    if not waiting:
                        admin.ready.set()
                        _log.info(READY)
        admin.ready.clear()
    finally:
        _end(started, config.grace.total_seconds() + _EXTRA_GRACE_S)


def _start(config: IssuerConfig, folder: str) -> subprocess.Popen[bytes]:
    # A new program, not a fork: threads and gRPC's state don't survive a fork.
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, METRICS_FOLDER: folder},
    )
    pipe = _pipe(process.stdin)
    pickle.dump(config, pipe)
    pipe.flush()
    return process


def _hear(pipe: IO[bytes]) -> None:
    """Take a worker's word that it is ready; raises `IssuerError` otherwise."""
    said = pipe.readline().decode().strip()
    if said != READY:
        raise IssuerError(said or "a worker process has ended: see its last lines")


def _end(processes: list[subprocess.Popen[bytes]], patience_s: float) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _pipe(process.stdin).close()
        _pipe(process.stdout).close()


def _pipe(end: IO[bytes] | None) -> IO[bytes]:
    if end is None:
        raise TypeError("expected a pipe")
    return end


@contextmanager
def _reserved_port(config: IssuerConfig) -> Iterator[IssuerConfig]:
    """The configuration with a port that all workers can share.

    Port 0 would give each of them another one.
    """
    host, port = split_address(config.address)
    if port:
        yield config
        return
    holder = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    with holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind((host, 0))
        shown = f"[{host}]" if ":" in host else host
        yield replace(config, address=f"{shown}:{holder.getsockname()[1]}")


def main() -> None:
    """Be a worker."""
    # The parent is this same program: what it sends is not from outside.
    config: IssuerConfig = pickle.load(sys.stdin.buffer)  # noqa: S301
    logs.configure(config.log_level, config.log_format)
    try:
        with asyncio.Runner(loop_factory=lambda: new_loop(config)) as runner:
            runner.run(_work(config))
    except IssuerError as error:
        print(str(error).replace("\n", " "), flush=True)  # noqa: T201  (to the parent)
        sys.exit(1)


async def _work(config: IssuerConfig) -> None:
    with stop_signal() as stop:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)
        async with Worker(config, Metrics()).serving():
            print(READY, flush=True)  # noqa: T201  (to the parent)
            await stop.wait()


if __name__ == "__main__":
    main()
