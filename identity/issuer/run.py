"""Running the service in this process, until a signal asks it to stop."""

from __future__ import annotations

import asyncio
import logging

from prometheus_client import disable_created_metrics

from identity.issuer.admin import Admin
from identity.issuer.config import IssuerConfig, split_address
from identity.issuer.credentials import parse_anchors, read_anchors
from identity.issuer.errors import IssuerError
from identity.issuer.metrics import Metrics
from identity.issuer.policy import check_domain
from identity.issuer.signals import stop_signal
from identity.issuer.worker import Worker, new_loop

READY = "ready to certify"

_log = logging.getLogger(__name__)


def run(config: IssuerConfig) -> None:
    """Serve; raises `IssuerError` when that can't be."""
    with asyncio.Runner(loop_factory=lambda: new_loop(config)) as runner:
        runner.run(_serve(config))


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


def say_admin(config: IssuerConfig, admin: Admin) -> None:
    """Log where the admin server is."""
    host = config.admin_address.rpartition(":")[0]
    _log.info("starting admin server on %s:%d", host, admin.port)


async def _serve(config: IssuerConfig) -> None:
    disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no types
    metrics = Metrics()
    with stop_signal() as stop:
        admin = Admin(*split_address(config.admin_address), lambda: metrics.registry)
        say_admin(config, admin)
        try:
            if is_enabled(config):
                await _certify(Worker(config, metrics), admin, stop)
        finally:
            admin.close()


async def _certify(worker: Worker, admin: Admin, stop: asyncio.Event) -> None:
    async with worker.serving():
        admin.ready.set()
        _log.info(READY)
        await stop.wait()
        admin.ready.clear()
