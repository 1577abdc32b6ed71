"""The gRPC side of the service: bytes in, a certificate or a status out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from identity._proto import SERVICE
from identity._proto.identity_pb2 import CertifyRequest, CertifyResponse
from identity.issuer import errors
from identity.issuer.metrics import Metrics
from identity.issuer.policy import Request
from identity.issuer.service import Certified
from identity.issuer.turns import Turns

MAX_REQUEST_BYTES = 256 * 1024
"""A request has some 2 KiB; what is far beyond is not read into memory."""

LAST_CALLS_S = 2
"""How long calls are still taken after the signal to stop, if they keep coming."""

_MOMENT_S = 0.05
_log = logging.getLogger(__name__)

STATUS = {
    errors.NotReady: grpc.StatusCode.UNAVAILABLE,
    errors.Malformed: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotEntitled: grpc.StatusCode.FAILED_PRECONDITION,
    errors.IssuerInvalid: grpc.StatusCode.UNKNOWN,
    errors.ReviewFailed: grpc.StatusCode.INTERNAL,
    errors.SigningFailed: grpc.StatusCode.INTERNAL,
    errors.Overloaded: grpc.StatusCode.UNAVAILABLE,
}
"""Which status each refusal is; the numbers are upstream's."""

Certify = Callable[[Request], Awaitable[Certified]]
Context = grpc.aio.ServicerContext[bytes, bytes]


class Handler:
    """Answers `Certify` calls."""

    def __init__(
        self, certify: Certify, metrics: Metrics, turns: Turns | None = None
    ) -> None:
        self._certify = certify
        self._metrics = metrics
        self._turns = turns or Turns()
        self._calls = 0

    async def quiet(self) -> None:
        """Wait for a moment in which no call comes."""
        seen = -1
        while seen != self._calls:
            seen = self._calls
            await asyncio.sleep(_MOMENT_S)

    async def call(self, wire: bytes, context: Context) -> bytes:
        """One call, from the bytes of its message to those of the answer."""
        begun = time.perf_counter()
        self._calls += 1
        self._metrics.call_started()
        code = grpc.StatusCode.CANCELLED  # unless it ends otherwise
        try:
            await self._turns.wait()
            answer = encode(await self._certify(decode(wire)))
            await asyncio.sleep(0)  # the group's work first, then its answers
            code = grpc.StatusCode.OK
        except errors.Refusal as refusal:
            code = STATUS[type(refusal)]
            await context.abort(code, str(refusal))
        except DecodeError:
            code = grpc.StatusCode.INTERNAL
            await context.abort(code, "the message is no CertifyRequest")
        except Exception as error:  # noqa: BLE001  (the last one to be asked)
            # Its message might quote a token; gRPC would log it, and send it.
            code = grpc.StatusCode.UNKNOWN
            _log.error("unexpected %s", type(error).__name__)
            await context.abort(code, "unexpected error")
        finally:
            self._metrics.call_ended(code, time.perf_counter() - begun)
        return answer


def decode(wire: bytes) -> Request:
    """The request in a message. Raises DecodeError."""
    message = CertifyRequest.FromString(wire)
    return Request(message.identity, message.token, message.certificate_signing_request)


def encode(certified: Certified) -> bytes:
    """The message that carries a certificate."""
    message = CertifyResponse(
        leaf_certificate=certified.leaf_der,
        intermediate_certificates=certified.chain_der,
    )
    message.valid_until.seconds = certified.not_after_s
    return message.SerializeToString()


class _Unregistered:
    """A server that takes methods in the generic way only.

    With each call, grpcio's server makes a task for each registered method anew: for
    those of the health service that is a tenth of what a certificate costs.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(
        self, handlers: Sequence[grpc.GenericRpcHandler]
    ) -> None:
        """Take them."""
        self._server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(self, service: str, methods: object) -> None:
        """They are generic ones already."""


class GrpcServer:
    """The plaintext gRPC server with its health service.

    `shared` lets other processes listen on the same port, as several workers do.
    """

    def __init__(self, handler: Handler, *, shared: bool) -> None:
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
                ("grpc.so_reuseport", int(shared)),
                # Requests of 2 KiB need no search for a larger window, which
                # would ping each client with each of them.
                ("grpc.http2.bdp_probe", 0),
            ]
        )
        method: grpc.RpcMethodHandler[bytes, bytes] = (
            grpc.unary_unary_rpc_method_handler(handler.call)
        )
        generic = grpc.method_handlers_generic_handler(SERVICE, {"Certify": method})
        self._server.add_generic_rpc_handlers((generic,))
        self._handler = handler
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(
            self._health,
            _Unregistered(self._server),  # type: ignore[arg-type]  # it has what is used
        )

    async def start(self, target: str) -> int:
        """Listen on ``host:port`` or ``unix:path``, and serve; the port."""
        port = self._server.add_insecure_port(target)
        await self._server.start()
        serving = health_pb2.HealthCheckResponse.SERVING
        for service in ("", SERVICE):
            await self._health.set(service, serving)
        return port

    async def stop(self, grace_s: float) -> None:
        """Take no more calls, and wait until those under way have ended.

        gRPC cancels those that have arrived and wait to be taken up: in a crowd that
        is most of them. So they are first let in, for as long as that is soon done.
        """
        await self._health.enter_graceful_shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(grace_s, LAST_CALLS_S)):
                await self._handler.quiet()
        await self._server.stop(grace_s)
