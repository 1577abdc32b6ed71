"""Running the webhook in this process, until a signal asks it to stop."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import gc
import os
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import uvloop

from identity.issuer.access import Access, from_kubeconfig, in_cluster
from identity.issuer.errors import IssuerError
from identity.issuer.signals import stop_signal
from identity.issuer.sockets import listen
from proxyinit import __version__
from proxyinit.inject import certificates, self_signed
from proxyinit.inject.api import ApiClient
from proxyinit.inject.api_cache import FOLLOWED, Follower, Store
from proxyinit.inject.certificates import Certificates, KeyPair
from proxyinit.inject.configuration import Configuration, Locations
from proxyinit.inject.endpoints import admin_app, webhook_app
from proxyinit.inject.errors import InjectError
from proxyinit.inject.events import Sender
from proxyinit.inject.lookup import Lookup
from proxyinit.inject.metrics import Metrics
from proxyinit.inject.server import Server
from proxyinit.inject.webhook import Webhook
from proxyinit.logs import Log

CREATOR = f"linkerd/proxy-injector {__version__}"
POLL_S = 1.0
TURN_S = 0.0001
"""How long a thread may keep a review waiting, each time that it waits: not 5 ms."""
LOOKED_AT_EVERY = dt.timedelta(minutes=1)
"""How soon a caBundle is mended that somebody has overwritten."""
THREADS = 8
"""For questions that memory can't answer; all others take none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All that the command line says. Addresses are (host, port)."""

    address: tuple[str, int]
    admin_address: tuple[str, int]
    kubeconfig: Path | None
    locations: Locations
    certificate: Path
    key: Path
    self_signed: bool
    verbose: bool = False


class CantServe(InjectError):
    """Something that serving needs is not there."""


def run(options: Options, log: Log) -> None:
    """Serve. Raises `InjectError` when that can't be."""
    log.info(f"running version {__version__}")
    sys.setswitchinterval(TURN_S)
    try:
        # Its TLS and its sockets take a fifth less of the time of a review.
        uvloop.run(_serve(options, log))
    except IssuerError as error:
        raise CantServe(str(error)) from error


async def _serve(options: Options, log: Log) -> None:
    client = ApiClient(_access(options.kubeconfig))
    configuration = Configuration(options.locations, log)
    metrics = Metrics()
    source = _source(options, client)
    pairs = Certificates(source, log)
    followers = [Follower(client, Store(each), log) for each in FOLLOWED]
    sender = Sender(client, log, metrics.event)
    with stop_signal() as stop, ThreadPoolExecutor(THREADS) as threads:
        webhook = Webhook(
            configuration=configuration,
            cluster=Lookup(
                client, {f.store.resource: f.store for f in followers}, threads, log
            ),
            metrics=metrics,
            send=sender.send,
            log=log,
            creator=CREATOR,
            verbose=options.verbose,
            later=asyncio.get_running_loop().call_soon,
        )
        ready = Readiness(followers)
        admin = Server(admin_app(metrics, ready), listen(*options.admin_address))
        log.info(f"starting admin server on {_shown(options.admin_address, admin)}")
        async with _running(admin):
            sender.start()
            for follower in followers:
                follower.start()
            front = Server(webhook_app(webhook), listen(*options.address), pairs.front)
            async with _running(front), _polling(configuration, pairs):
                log.info(f"listening at {_shown(options.address, front)}")
                gc.freeze()  # what is here now stays: no use to look at it again
                await stop.wait()
                ready.stopping = True
                log.info("shutting down webhook server")
        for follower in followers:
            follower.stop()
        sender.close()


class Readiness:
    """Ready once memory is filled, until we are asked to stop."""

    def __init__(self, followers: list[Follower]) -> None:
        self.stopping = False
        self._followers = followers

    def __call__(self) -> bool:
        """Whether reviews should come here."""
        synced = all(follower.synced.is_set() for follower in self._followers)
        return synced and not self.stopping


@contextlib.asynccontextmanager
async def _running(server: Server) -> AsyncIterator[None]:
    await server.start()
    try:
        yield
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def _polling(
    configuration: Configuration, pairs: Certificates
) -> AsyncIterator[None]:
    async def poll() -> None:
        while True:
            await asyncio.sleep(POLL_S)
            configuration.refresh()
            await asyncio.to_thread(pairs.poll)

    task = asyncio.create_task(poll())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _access(kubeconfig: Path | None) -> Access:
    return in_cluster(os.environ) if kubeconfig is None else from_kubeconfig(kubeconfig)


def _source(options: Options, client: ApiClient) -> Callable[[], KeyPair]:
    if options.self_signed:
        return OwnCertificate(client, options.locations.namespace)
    return partial(certificates.read, options.certificate, options.key)


class OwnCertificate:
    """Gives a pair that we made, trusted by the API server; a new one in good time.

    Others write the bundle too: with manifests, or with authorities of their own that
    leave no room. What is missing is added again.
    """

    def __init__(
        self,
        client: self_signed.Client,
        namespace: str,
        clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(tz=dt.UTC),
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._made: self_signed.SelfSigned | None = None
        self._renew_at = self._look_at = dt.datetime.min.replace(tzinfo=dt.UTC)

    def __call__(self) -> KeyPair:
        """The pair to use. Raises `InjectError` when nobody would trust it."""
        now = self._clock()
        made = self._made
        if made is None or now >= self._renew_at:
            made = self_signed.generate(self._namespace, now)
            self_signed.publish(self._client, made.authority, now)
            self._made, self._renew_at = made, now + self_signed.RENEWED_AFTER
            self._look_at = now + LOOKED_AT_EVERY
        elif now >= self._look_at:
            self._look_at = now + LOOKED_AT_EVERY
            self_signed.publish(self._client, made.authority, now)
        return made.pair


def _shown(address: tuple[str, int], server: Server) -> str:
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"{host}:{server.port}"
