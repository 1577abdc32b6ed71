"""Running the service: in this process, or in several that share the port."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING

from identity import logs
from identity.issuer.admin import Admin
from identity.issuer.config import IssuerConfig, split_address
from identity.issuer.credentials import parse_anchors, read_anchors
from identity.issuer.errors import IssuerError
from identity.issuer.policy import check_domain

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_MULTIPROC = "PROMETHEUS_MULTIPROC_DIR"
_EXTRA_GRACE_S = 5
_READY = "ready to certify"

_log = logging.getLogger(__name__)


def run(config: IssuerConfig) -> None:
    """Serve until a signal asks to stop. Raises `IssuerError` when that can't be."""
    if config.workers > 1:
        _run_workers(config)
    else:
        asyncio.run(_run_here(config))


def is_enabled(config: IssuerConfig) -> bool:
    """Whether there is anything to serve; the checks that need no network.

    Raises `IssuerError`.
    """
    bundle = read_anchors(config.anchors)
    if not config.enabled:
        _log.info("Identity disabled in control plane configuration.")
        return False
    try:
        check_domain(config.domain)
    except ValueError as error:
        raise IssuerError(f"Invalid trust domain: {error}") from error
    parse_anchors(bundle)
    return True


async def _run_here(config: IssuerConfig) -> None:
    from prometheus_client import disable_created_metrics  # noqa: PLC0415

    from identity.issuer.metrics import Metrics  # noqa: PLC0415  (not for the parent)
    from identity.issuer.worker import Worker  # noqa: PLC0415

    disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no types
    metrics = Metrics()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop.set)
    admin = Admin(*split_address(config.admin_address), lambda: metrics.registry)
    _say_admin(config, admin)
    try:
        if not is_enabled(config):
            return
        async with Worker(config, metrics).serving():
            admin.ready.set()
            _log.info(_READY)
            await stop.wait()
            admin.ready.clear()
    finally:
        admin.close()


def _run_workers(config: IssuerConfig) -> None:
    """Serve with several processes, while this one answers for all of them.

    They share the port; the kernel gives each new connection to one of them. When
    one ends before it is asked to, all end: who restarts us sees a failure.
    """
    from prometheus_client import CollectorRegistry  # noqa: PLC0415
    from prometheus_client.multiprocess import MultiProcessCollector  # noqa: PLC0415

    def registry() -> CollectorRegistry:
        made = CollectorRegistry()
        MultiProcessCollector(made, path=folder)  # type: ignore[no-untyped-call]  # the library has no types here
        return made

    stop = threading.Event()
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: stop.set())
    with tempfile.TemporaryDirectory(prefix="issuer-metrics-") as folder:
        admin = Admin(*split_address(config.admin_address), registry)
        _say_admin(config, admin)
        try:
            if not is_enabled(config):
                return
            with _reserved_port(config) as shared:
                os.environ[_MULTIPROC] = folder
                _supervise(shared, admin, stop)
        finally:
            admin.close()


def _say_admin(config: IssuerConfig, admin: Admin) -> None:
    host = config.admin_address.rpartition(":")[0]
    _log.info("starting admin server on %s:%d", host, admin.port)


def _supervise(config: IssuerConfig, admin: Admin, stop: threading.Event) -> None:
    started = [_start_worker(config) for _ in range(config.workers)]
    processes = [process for process, _ in started]
    waiting = {pipe for _, pipe in started}
    sentinels = [process.sentinel for process in processes]
    try:
        while not stop.is_set():
            for event in wait([*waiting, *sentinels], timeout=0.2):
                if not isinstance(event, Connection):
                    raise IssuerError("a worker process has ended: see its last lines")
                waiting.discard(event)
                _receive(event)
                if not waiting:
                    admin.ready.set()
                    _log.info(_READY)
        admin.ready.clear()
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()
        for process in processes:
            process.join(config.grace.total_seconds() + _EXTRA_GRACE_S)
            if process.is_alive():
                process.kill()


def _receive(pipe: Connection) -> None:
    """Take a worker's word that it is ready; raises `IssuerError` with its reason."""
    try:
        failure = pipe.recv()
    except EOFError:
        failure = "a worker process has ended before it was ready"
    if failure:
        raise IssuerError(failure)


def _start_worker(config: IssuerConfig) -> tuple[BaseProcess, Connection]:
    # Spawned, not forked: threads and gRPC's state don't survive a fork.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(config, theirs))
    process.start()
    theirs.close()
    return process, ours


def _work(config: IssuerConfig, ready: Connection) -> None:
    """The main function of a worker process."""
    logs.configure(config.log_level, config.log_format)
    try:
        asyncio.run(_work_until_asked(config, ready))
    except IssuerError as error:
        ready.send(str(error))


async def _work_until_asked(config: IssuerConfig, ready: Connection) -> None:
    from identity.issuer.metrics import Metrics  # noqa: PLC0415
    from identity.issuer.worker import Worker  # noqa: PLC0415

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop.set)
    parent = multiprocessing.parent_process()
    if parent is not None:  # if it is killed, nobody else would ask us to stop
        loop.add_reader(parent.sentinel, stop.set)
    async with Worker(config, Metrics()).serving():
        ready.send("")
        await stop.wait()


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
