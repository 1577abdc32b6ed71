"""The real certifying service, on loopback, while a test needs it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from identity.issuer.config import IssuerConfig
from identity.issuer.metrics import Metrics
from identity.issuer.policy import Domain
from identity.issuer.worker import Outside, Worker, new_loop
from identity.testing.authority import CA
from identity.testing.kubernetes import KubernetesApi
from identity.testing.projected import project

DOMAIN = Domain("linkerd", "cluster.local")


def write_issuer(folder: Path, issuer: CA, root: CA) -> None:
    """Fill `issuer/` and `roots/` in a folder, as Secret and ConfigMap are mounted."""
    issuer_files = folder / "plain"
    issuer_files.mkdir(exist_ok=True)
    crt, key = issuer.write(issuer_files)
    files = {"tls.crt": crt.read_bytes(), "tls.key": key.read_bytes()}
    project(folder / "issuer", files)
    project(folder / "roots", {"ca-bundle.crt": root.pem})


def service_config(folder: Path, api: KubernetesApi, **changes: Any) -> IssuerConfig:
    """The configuration of a service on loopback, with `write_issuer`'s files.

    It uses the stand-in API by a kubeconfig; `changes` are fields to set otherwise.
    """
    config = IssuerConfig(
        address="127.0.0.1:0",
        admin_address="127.0.0.1:0",
        kubeconfig=api.write_kubeconfig(folder),
        domain=DOMAIN,
        scheme="kubernetes.io/tls",
        issuer_dir=folder / "issuer",
        anchors=folder / "roots" / "ca-bundle.crt",
    )
    return replace(config, **changes)


@contextmanager
def serving(
    config: IssuerConfig, outside: Outside | None = None
) -> Iterator[tuple[int, Metrics]]:
    """Run the service in a thread; its port and metrics.

    What keeps it from starting is raised here.
    """
    metrics = Metrics()
    worker = Worker(config, metrics, outside)
    ready = threading.Event()
    stop = asyncio.Event()
    loop = new_loop(config)
    failures: list[BaseException] = []

    async def serve() -> None:
        async with worker.serving():
            ready.set()
            await stop.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        except BaseException as error:  # noqa: BLE001  (raised in the other thread)
            failures.append(error)
        finally:
            loop.close()
            ready.set()

    thread = threading.Thread(target=run, name="issuer")
    thread.start()
    ready.wait()
    try:
        if failures:
            raise failures[0]
        yield worker.port, metrics
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        thread.join()
