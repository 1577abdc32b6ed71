"""An identity service as seen through a mesh proxy, which does what it is told.

Unlike `serving`, which runs the real service, this one can present any certificate
over TLS, with or without ALPN, and return any answer, or none.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import selectors
import socket
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
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
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
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._listener = socket.create_server((self._host, self.port), family=family)
        self.port = self._listener.getsockname()[1]
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                # Of the socket below TLS, whose object belongs to another thread.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()
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
        # Typed without the None that it gets from clients that name nobody.
        context.sni_callback = self._note_sni
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context

    def _note_sni(
        self, connection: ssl.SSLObject | ssl.SSLSocket, name: str, _: ssl.SSLContext
    ) -> None:
        if isinstance(connection, ssl.SSLSocket):
            self._sni[connection.fileno()] = name

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._start(lambda made=connection: self._serve(made))  # type: ignore[misc]  # the default binds it

    def _serve(self, connection: socket.socket) -> None:
        self._open.add(connection)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.callback(self._open.discard, connection)
            stack.enter_context(connection)
            front = connection
            if self._context is not None:
                tls = self._context.wrap_socket(
                    connection, server_side=True, do_handshake_on_connect=False
                )
                self._open.add(tls)
                stack.callback(self._open.discard, tls)
                front = stack.enter_context(tls)
                _shake_hands(tls)
                self.seen.append(
                    Seen(
                        self._sni.pop(tls.fileno(), None),
                        tls.version() or "",
                        tls.selected_alpn_protocol(),
                        tls.getpeercert(binary_form=True),
                    )
                )
            back = stack.enter_context(socket.socket(socket.AF_UNIX))
            back.connect(self._backend)
            _relay(front, back)


def _shake_hands(tls: ssl.SSLSocket) -> None:
    """Finish the handshake; after a failure, make sure that the client hears why.

    Closing with something unread would be a reset, which overtakes the alert.
    """
    try:
        tls.do_handshake()
    except ssl.SSLError:
        tls.shutdown(socket.SHUT_WR)
        while socket.socket.recv(tls, 1 << 16):
            pass
        raise


def _relay(front: socket.socket, back: socket.socket) -> None:
    """Move bytes both ways, in this one thread, until either end is closed."""
    with selectors.DefaultSelector() as selector:
        selector.register(front, selectors.EVENT_READ, back)
        selector.register(back, selectors.EVENT_READ, front)
        while True:
            for key, _ in selector.select():
                source = key.fileobj
                assert isinstance(source, socket.socket)  # noqa: S101  (as registered)
                source.settimeout(0)
                try:
                    data = source.recv(1 << 16)
                except ssl.SSLWantReadError:
                    continue  # a record is not complete yet
                if not data:
                    return
                key.data.settimeout(None)
                key.data.sendall(data)
