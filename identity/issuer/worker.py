"""One serving process: from the configuration to the last call answered.

The order of the start is upstream's: trust anchors, Kubernetes access, issuer,
listener; whoever waits for readiness knows that all of it works.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from identity.issuer import access, events
from identity.issuer.api import AT_ONCE, KubernetesClient
from identity.issuer.config import KUBERNETES, IssuerConfig, split_address
from identity.issuer.credentials import locate, parse_anchors, read_anchors
from identity.issuer.errors import IssuerError
from identity.issuer.jwks import ApiSource, FileSource, JwksValidator
from identity.issuer.kubernetes import (
    EventSender,
    TokenReviewer,
    Validator,
    check_access,
)
from identity.issuer.limit import Gate, Pace
from identity.issuer.metrics import Metrics
from identity.issuer.reload import Reloader
from identity.issuer.server import GrpcServer, Handler
from identity.issuer.service import Certifier
from identity.issuer.tls import Terminator, TlsFiles

_AGAIN_S = 1
_FAILED = "Failed to initialize identity service"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outside:
    """What the command line supplies: time, randomness, environment, pod files."""

    clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(tz=dt.UTC)
    random: Callable[[int], bytes] = os.urandom
    environment: Callable[[], dict[str, str]] = lambda: dict(os.environ)
    mount: Path = access.MOUNT


def new_loop(config: IssuerConfig) -> asyncio.AbstractEventLoop:
    """The loop to serve in: uvloop's, if it is installed.

    gRPC makes sixteen callbacks for each call; in uvloop they cost a fifth less of
    all CPU time. Its TLS transports don't carry the terminator's relay, so where TLS
    ends here it is asyncio's own.
    """
    if config.tls_certificate is None:
        with contextlib.suppress(ImportError):
            import uvloop  # noqa: PLC0415  (it only makes things faster)

            return uvloop.new_event_loop()
    return asyncio.new_event_loop()


class Worker:
    """A service that runs while its `serving` context is entered."""

    def __init__(
        self, config: IssuerConfig, metrics: Metrics, outside: Outside | None = None
    ) -> None:
        self._config = config
        self._metrics = metrics
        self._outside = outside or Outside()
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="api")
        self._background: list[asyncio.Task[None]] = []
        self.port = 0

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Start, serve while the body runs, and stop when calls have ended."""
        config = self._config
        try:
            parse_anchors(read_anchors(config.anchors))
            client = self._client()
            gate = Gate(Pace(config.api_calls_per_s / config.workers, config.api_burst))
            sink = self._events(client, gate)
            validator = self._validator(client, gate)
            reloader = self._reloader(sink)
            certifier = Certifier(
                config=config,
                credentials=lambda: reloader.current,
                validator=validator,
                events=sink,
                clock=self._outside.clock,
                random=self._outside.random,
            )
            handler = Handler(certifier.certify, self._metrics)
            server = GrpcServer(handler, shared=config.workers > 1)
            async with self._listening(server, reloader):
                yield
        finally:
            for task in self._background:
                task.cancel()
            await asyncio.gather(*self._background, return_exceptions=True)
            self._threads.shutdown(wait=False, cancel_futures=True)

    @contextlib.asynccontextmanager
    async def _listening(
        self, server: GrpcServer, reloader: Reloader
    ) -> AsyncIterator[None]:
        config = self._config
        host, port = split_address(config.address)
        grace_s = config.grace.total_seconds()
        certificate, key = config.tls_certificate, config.tls_key
        if certificate is None or key is None:
            shown = f"[{host}]" if ":" in host else host
            self.port = await _start(server, f"{shown}:{port}")
            self._watch(reloader, None)
            _log.info("starting gRPC server on %s:%d", shown, self.port)
            yield
            _log.info("shutting down gRPC server on %s", config.address)
            await server.stop(grace_s)
            return
        files = TlsFiles(certificate, key)
        with tempfile.TemporaryDirectory(prefix="issuer-") as folder:
            backend = Path(folder) / "grpc.sock"
            await _start(server, f"unix:{backend}")
            terminator = Terminator(backend, lambda: files.context)
            try:
                self.port = terminator.start(host, port)
            except IssuerError:
                await server.stop(0)  # else it complains when nothing is left of it
                raise
            self._watch(reloader, files)
            _log.info("starting gRPC server with TLS on %s:%d", host, self.port)
            yield
            _log.info("shutting down gRPC server on %s", config.address)
            await terminator.stop_accepting()
            await server.stop(grace_s)
            await terminator.close()

    def _client(self) -> KubernetesClient | None:
        """The API's client; none when keys come from a file and no API is named."""
        config = self._config
        if config.kubeconfig is not None:
            found = access.from_kubeconfig(config.kubeconfig)
        elif config.jwks is None:
            environment = self._outside.environment()
            found = access.in_cluster(environment, self._outside.mount)
        else:
            return None
        client = KubernetesClient(found, self._metrics.api)
        if config.validator == KUBERNETES:
            try:
                check_access(client)
            except IssuerError as error:
                raise IssuerError(f"{_FAILED}: {error}") from error
        return client

    def _events(self, client: KubernetesClient | None, gate: Gate) -> events.Events:
        if client is None:
            return events.NoEvents()
        sender = EventSender(client, gate, self._threads, self._metrics.event)
        self._keep_running(sender.run)
        return sender

    def _validator(self, client: KubernetesClient | None, gate: Gate) -> Validator:
        config = self._config
        if config.validator == KUBERNETES:
            if client is None:
                raise IssuerError("the kubernetes validator needs a Kubernetes API")
            return TokenReviewer(client, gate, self._threads)
        source: ApiSource | FileSource
        if config.jwks is not None:
            source = FileSource(config.jwks, config.token_issuer)
        elif client is not None:
            source = ApiSource(client, config.token_issuer)
        else:
            raise IssuerError("the jwks validator needs a file or a Kubernetes API")
        validator = JwksValidator(source, self._threads, config.token_leeway)
        try:
            validator.start()
        except IssuerError as error:
            raise IssuerError(f"{_FAILED}: {error}") from error
        self._keep_running(validator.run)
        return validator

    def _reloader(self, sink: events.Events) -> Reloader:
        config = self._config
        files = locate(config.issuer_dir, config.scheme, config.anchors)
        namespace = config.domain.control_namespace
        reloader = Reloader(files, namespace, config.name, sink)
        try:
            reloader.start(self._outside.clock())
        except IssuerError as error:
            raise IssuerError(f"{_FAILED}: {error}") from error
        return reloader

    def _watch(self, reloader: Reloader, files: TlsFiles | None) -> None:
        self._keep_running(partial(self._poll, reloader, files))

    def _keep_running(self, work: Callable[[], Awaitable[None]]) -> None:
        self._background.append(asyncio.create_task(_unending(work)))

    async def _poll(self, reloader: Reloader, files: TlsFiles | None) -> None:
        while True:
            now = self._outside.clock()
            if reloader.poll(now):
                self._metrics.issuer_updated()
            if reloader.current is not None:
                certificate = reloader.current.authority.certificate
                self._metrics.issuer_ends(certificate.not_valid_after_utc, now)
            if files is not None:
                files.poll()
            await asyncio.sleep(self._config.poll_interval.total_seconds())


async def _unending(work: Callable[[], Awaitable[None]]) -> None:
    """Work that a mistake of ours does not end: without it rotations are missed."""
    while True:
        try:
            await work()
        except Exception as error:  # noqa: BLE001  (the outermost loop never ends)
            # Its message might quote anything, secrets too.
            _log.error("unexpected %s", type(error).__name__)
            await asyncio.sleep(_AGAIN_S)


async def _start(server: GrpcServer, target: str) -> int:
    try:
        return await server.start(target)
    except RuntimeError as error:  # what grpcio raises when it can't listen
        raise IssuerError(f"can't listen on {target}: {error}") from error
