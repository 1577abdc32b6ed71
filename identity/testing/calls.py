"""Calling the service as a workload does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import grpc

from identity._proto import CERTIFY
from identity._proto.identity_pb2 import CertifyRequest, CertifyResponse
from identity.testing.authority import csr_der, new_key

NAME = "web.emojivoto.serviceaccount.identity.linkerd.cluster.local"
"""Whose token `api.token("emojivoto", "web")` is."""

Call = Callable[[CertifyRequest], CertifyResponse]


def request(token: bytes, name: str = NAME, csr: bytes | None = None) -> CertifyRequest:
    """A request for a name, with a fresh key unless a CSR is given."""
    made = csr_der(name, new_key()) if csr is None else csr
    return CertifyRequest(identity=name, token=token, certificate_signing_request=made)


@contextmanager
def calling(port: int) -> Iterator[Call]:
    """A plaintext channel to the service on loopback."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        method: Call = channel.unary_unary(
            CERTIFY,
            request_serializer=CertifyRequest.SerializeToString,
            response_deserializer=CertifyResponse.FromString,
        )

        def call(message: CertifyRequest) -> CertifyResponse:
            return method(message, timeout=20)  # type: ignore[call-arg]  # grpc's own

        yield call


@dataclass(frozen=True)
class Failed:
    """How a call failed."""

    code: grpc.StatusCode
    details: str


def outcome(call: Call, message: CertifyRequest) -> CertifyResponse | Failed:
    """The answer, or the failure."""
    try:
        return call(message)
    except grpc.RpcError as error:
        return Failed(error.code(), error.details() or "")


def failure(call: Call, message: CertifyRequest) -> Failed:
    """The status of a call that has to fail."""
    found = outcome(call, message)
    if not isinstance(found, Failed):
        raise AssertionError(f"expected a refusal, got {found}")  # noqa: TRY004  (of a test)
    return found
