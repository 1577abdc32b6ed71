"""A connection to the identity service: TLS as its proxies speak it, or plain.

TLS is the standard library's and not gRPC's, because a mesh proxy selects no
ALPN protocol, which gRPC refuses; because the server's name may be a URI, which
gRPC can't check; and because any configured certificate may be the anchor.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from identity import trust
from identity.credentials import Credential
from identity.errors import (
    AttemptFailed,
    ClientRefused,
    ServiceUnreachable,
    ServiceUntrusted,
)
from identity.names import is_uri
from identity.resolve import Endpoint
from identity.trust import Anchors

_ABOUT_OUR_CERTIFICATE = (
    "CERTIFICATE_REQUIRED",
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REVOKED",
    "CERTIFICATE_UNKNOWN",
    "UNSUPPORTED_CERTIFICATE",
    "UNKNOWN_CA",
    "ACCESS_DENIED",
)
"""Parts of OpenSSL's names for alerts by which a server refuses a client."""

_CLOSE_S = 0.5


@dataclass(frozen=True, slots=True)
class Stream:
    """The two directions of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def close(self) -> None:
        """Say goodbye, but don't wait long for the other side to say it, too."""
        self.writer.close()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self.writer.wait_closed()
        except TimeoutError:
            self.writer.transport.abort()
        except OSError:
            return  # it is gone already


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How to speak TLS: whom to trust, whom to expect, and who we are, if anybody."""

    anchors: Anchors
    server: str
    credential: Credential | None = None

    def context(self) -> ssl.SSLContext:
        """A context for one connection; none is ever used twice."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # OpenSSL compares DNS names only, and with wildcards: `check_service` does
        # it instead, once the chain has been verified.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        # An anchor need not be self-signed.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=self.anchors.text)
        if self.credential is not None:
            _present(context, self.credential)
        return context

    def check(self, stream: Stream) -> None:
        """Check who is at the other end. Raises `ServiceUntrusted`."""
        tls = stream.writer.get_extra_info("ssl_object")
        trust.check_service(tls.getpeercert(binary_form=True) or b"", self.server)


async def connect(
    endpoints: Sequence[Endpoint], tls: Tls | None, within: timedelta
) -> Stream:
    """Connect to the first endpoint that takes us, each within that time.

    Raises `ServiceUntrusted`, `ClientRefused` or `ServiceUnreachable`, with what was
    wrong at each of them.
    """
    failures: list[AttemptFailed] = []
    for host, port in endpoints:
        try:
            return await _connect(host, port, tls, within)
        except AttemptFailed as error:
            failures.append(error)
    told = "; ".join(map(str, failures)) or "the service has no addresses"
    kinds = [type(failure) for failure in failures]
    for kind in (ServiceUntrusted, ClientRefused):
        if kind in kinds:
            raise kind(told)
    raise ServiceUnreachable(told)


async def _connect(host: str, port: int, tls: Tls | None, within: timedelta) -> Stream:
    where = f"{host} port {port}"
    try:
        async with asyncio.timeout(within.total_seconds()):
            if tls is None:
                return Stream(*await asyncio.open_connection(host, port))
            stream = Stream(
                *await asyncio.open_connection(
                    host,
                    port,
                    ssl=tls.context(),
                    # SNI is by what a proxy knows that the connection is for itself.
                    server_hostname="" if is_uri(tls.server) else tls.server,
                )
            )
    except TimeoutError as error:
        raise ServiceUnreachable(
            f"{where}: no connection within {within.total_seconds():g} s"
        ) from error
    except OSError as error:
        raise failure(error, where) from error
    try:
        tls.check(stream)
    except ServiceUntrusted as error:
        stream.writer.transport.abort()
        raise ServiceUntrusted(f"{where}: {error}") from error
    return stream


def failure(error: OSError, where: str) -> AttemptFailed:
    """What an error of a socket or of TLS means for us, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ServiceUntrusted(
            f"{where}: the service's certificate is not trusted: {error.verify_message}"
        )
    if isinstance(error, ssl.SSLError):
        reason = error.reason or "the connection was closed"
        told = reason.replace("_", " ").lower()
        if any(part in reason for part in _ABOUT_OUR_CERTIFICATE):
            return ClientRefused(
                f"{where}: the service refused our certificate: {told}"
            )
        return ServiceUnreachable(f"{where}: TLS failed: {told}")
    # asyncio's own text names the address again, and not what was wrong.
    told = os.strerror(error.errno) if error.errno else str(error)
    return ServiceUnreachable(f"{where}: {told}")


def _present(context: ssl.SSLContext, credential: Credential) -> None:
    """Load key and chain; the function takes paths only, so by memory with a path."""
    fd = os.memfd_create("identity", os.MFD_CLOEXEC)
    try:
        os.write(fd, (credential.key_pem + credential.chain_pem).encode())
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
