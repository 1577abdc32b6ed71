"""One certification: token, connection, call, judgement."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import grpc
import grpc.aio

from identity import transport, trust
from identity._proto import CERTIFY
from identity._proto.identity_pb2 import CertifyRequest, CertifyResponse
from identity.config import Config
from identity.credentials import Answer, Credential, KeyPair
from identity.errors import AttemptFailed, CallFailed, CertificateRejected
from identity.relay import Relay
from identity.resolve import Lookup, resolve
from identity.token import read_token
from identity.transport import Stream, Tls

_MAX_ANSWER = 1 << 20
"""A leaf and its chain are some KiB; more is not worth being parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certifier:
    """Certifies over the network; each call is a new connection."""

    lookup: Lookup
    now: Callable[[], datetime]
    random: random.Random = field(default_factory=random.Random)

    async def certify(
        self, config: Config, pair: KeyPair, credential: Credential | None = None
    ) -> Credential:
        """A certificate for the pair's key; `credential` is shown to the service.

        Raises `TokenUnusable`, one of `AttemptFailed`, or `CertificateRejected`.
        """
        token = read_token(config.token_file)
        service = config.service
        endpoints = await resolve(service.host, service.port, self.lookup)
        self.random.shuffle(endpoints)
        tls = service.name and Tls(
            anchors=config.anchors, server=service.name, credential=credential
        )
        stream = await transport.connect(endpoints, tls or None, config.connect_timeout)
        request = CertifyRequest(
            identity=config.name,
            token=token,
            certificate_signing_request=pair.csr_der,
        )
        response = await call(
            stream, service.authority, request, within=config.call_timeout
        )
        return trust.accept(
            answer(response),
            key=pair.key,
            name=config.name,
            anchors=config.anchors,
            now=self.now(),
        )


async def call(
    stream: Stream, authority: str, request: CertifyRequest, *, within: timedelta
) -> CertifyResponse:
    """Call the service over a connection, which is closed afterwards.

    Raises `CallFailed` for a gRPC status, or what broke the connection.
    """
    options = (
        ("grpc.default_authority", authority),  # else the socket's path, escaped
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 0),  # the schedule is ours
        ("grpc.max_receive_message_length", _MAX_ANSWER),
    )
    async with (
        Relay(stream) as relay,
        grpc.aio.insecure_channel(relay.target, options) as channel,
    ):
        certify = channel.unary_unary(
            CERTIFY,
            request_serializer=CertifyRequest.SerializeToString,
            response_deserializer=CertifyResponse.FromString,
        )
        try:
            response: CertifyResponse = await certify(
                request, timeout=within.total_seconds()
            )
        except grpc.aio.AioRpcError as error:
            raise _failure(error, relay, authority, request.token) from error
    return response


def answer(response: CertifyResponse) -> Answer:
    """What was returned, as a value. Raises `CertificateRejected`."""
    until = None
    if response.HasField("valid_until"):
        stamp = response.valid_until
        try:
            until = datetime.fromtimestamp(stamp.seconds, UTC)
        except (OverflowError, ValueError, OSError) as error:
            raise CertificateRejected(
                f"expected a certificate that ends in this era, got {stamp.seconds} s"
            ) from error
    return Answer(
        leaf_der=response.leaf_certificate,
        intermediates_der=tuple(response.intermediate_certificates),
        valid_until=until,
    )


def _failure(
    error: grpc.aio.AioRpcError, relay: Relay, authority: str, token: bytes
) -> AttemptFailed:
    if relay.failure is not None:
        # In TLS 1.3 a refused certificate shows up here, after the handshake.
        return transport.failure(relay.failure, authority)
    code = error.code().name
    details = error.details() or "no reason given"
    # Some servers quote what they were sent.
    shown = details.replace(token.decode("utf-8", "replace").strip(), "<token>")
    return CallFailed(f"{authority} answered {code}: {shown}", code)
