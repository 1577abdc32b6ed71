"""An identity service as seen through a mesh proxy, which does what it is told.

Unlike `serving`, which runs the real service, this one can present any certificate
over TLS, with or without ALPN, and return any answer, or none.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ssl
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeAlias

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from identity._proto import SERVICE
from identity._proto.identity_pb2 import CertifyRequest, CertifyResponse
from identity.testing.authority import CA, Leaf, whole_second

Handler: TypeAlias = Callable[[CertifyRequest, grpc.ServicerContext], CertifyResponse]


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of one TLS connection, once its handshake was done."""

    sni: str | None
    version: str
    alpn: str | None
    client_der: bytes | None


def certified(
    request: CertifyRequest,
    issuer: CA,
    *,
    lifetime: dt.timedelta = dt.timedelta(hours=24),
    name: str = "",
) -> CertifyResponse:
    """The answer of a good service; or about another name, or for no time at all."""
    csr = x509.load_der_x509_csr(request.certificate_signing_request)
    key = csr.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)  # noqa: S101  (a client's own)
    leaf = issuer.leaf(
        name or request.identity,
        public_key=key,
        not_after=whole_second() + lifetime,
    )
    return respond(leaf)


def respond(leaf: Leaf) -> CertifyResponse:
    """A leaf and its chain as the wire carries them."""
    response = CertifyResponse(
        leaf_certificate=leaf.der, intermediate_certificates=leaf.chain_der
    )
    response.valid_until.FromDatetime(leaf.certificate.not_valid_after_utc)
    return response


class MeshService:
    """A context manager that serves on a loopback port, in threads of its own.

    With `tls` it presents that leaf, otherwise it is plaintext. `clients` is an
    authority whose certificates clients may present, and must if `required`.
    """

    def __init__(  # noqa: PLR0913  (each option is a kind of service)
        self,
        handler: Handler,
        *,
        tls: Leaf | None = None,
        alpn: tuple[str, ...] = (),
        clients: CA | None = None,
        required: bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.handler = handler
        self.requests: list[CertifyRequest] = []
        self.seen: list[Seen] = []
        self.port = port
        self._host = host
        self._stack = contextlib.ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._sni: dict[int, str | None] = {}
        self._context = None if tls is None else self._make_context(tls, alpn)
        if self._context is not None and clients is not None:
            self._context.verify_mode = (
                ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
            )
            self._context.load_verify_locations(cadata=clients.pem.decode())

    def __enter__(self) -> Self:
        self._grpc = grpc.server(ThreadPoolExecutor(8))
        handler = grpc.unary_unary_rpc_method_handler(
            self._certify,
            request_deserializer=CertifyRequest.FromString,
            response_serializer=CertifyResponse.SerializeToString,
        )
        self._grpc.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"Certify": handler}),)
        )
        self._backend = str(self._folder / "grpc.sock")
        self._grpc.add_insecure_port(f"unix:{self._backend}")
        self._grpc.start()
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(started,))
        self._thread.start()
        started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._grpc.stop(None).wait()
        self._stack.close()

    def _certify(
        self, request: CertifyRequest, context: grpc.ServicerContext
    ) -> CertifyResponse:
        self.requests.append(request)
        return self.handler(request, context)

    def _make_context(self, leaf: Leaf, alpn: tuple[str, ...]) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*leaf.write(self._folder))
        context.sni_callback = self._note_sni
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context

    def _note_sni(
        self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext
    ) -> None:
        self._sni[id(connection)] = name

    def _serve(self, started: threading.Event) -> None:
        async def serve() -> None:
            self._stop = asyncio.Event()
            server = await asyncio.start_server(
                self._relay, self._host, self.port, ssl=self._context
            )
            self.port = server.sockets[0].getsockname()[1]
            started.set()
            await self._stop.wait()
            server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self._loop.run_until_complete(serve())
        self._loop.close()

    async def _relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        tls = writer.get_extra_info("ssl_object")
        if tls is not None:
            self.seen.append(
                Seen(
                    self._sni.pop(id(tls), None),
                    tls.version(),
                    tls.selected_alpn_protocol(),
                    tls.getpeercert(binary_form=True),
                )
            )
        back_reader, back_writer = await asyncio.open_unix_connection(self._backend)
        ways = [
            asyncio.create_task(_move(reader, back_writer)),
            asyncio.create_task(_move(back_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            back_writer.transport.abort()
            writer.close()


async def _move(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
