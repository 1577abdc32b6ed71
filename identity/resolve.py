"""Addresses of the identity service: SRV records first, as the proxy does.

Kubernetes answers an SRV query for a headless service with a name for each pod,
whose first label spells the address with dashes.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from identity.config import ip_address
from identity.errors import ServiceUnresolved

Endpoint: TypeAlias = tuple[str, int]
"""An address and a port."""

T = TypeVar("T")

ADDRESS_TIMEOUT_S = 5.0


class Lookup(Protocol):
    """The two questions that are asked; either raises OSError without an answer."""

    async def srv(self, name: str) -> list[tuple[str, int]]:
        """Targets and ports of the SRV records of a name."""

    async def addresses(self, name: str) -> list[str]:
        """IPv4 and IPv6 addresses of a name."""


@dataclass(frozen=True, slots=True)
class SystemLookup:
    """Asks the name servers of this machine, and its own files for addresses."""

    resolv_conf: str = "/etc/resolv.conf"
    port: int = 53
    srv_timeout_s: float = 2.0

    async def srv(self, name: str) -> list[tuple[str, int]]:
        """SRV records; the system's resolver knows none, so by our own query."""
        import dns.asyncresolver  # noqa: PLC0415  (60 ms, for named services only)
        import dns.exception  # noqa: PLC0415  (as above)

        try:
            resolver = dns.asyncresolver.Resolver(self.resolv_conf)
            resolver.port = self.port
            found = await resolver.resolve(
                name, "SRV", search=True, lifetime=self.srv_timeout_s
            )
        except dns.exception.DNSException as error:
            raise OSError(str(error)) from error
        return [(str(record.target), int(record.port)) for record in found]

    async def addresses(self, name: str) -> list[str]:
        """Addresses as every other program on this machine finds them."""

        def ask() -> list[str]:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            return [str(sockaddr[0]) for *_, sockaddr in found]

        async with asyncio.timeout(ADDRESS_TIMEOUT_S):
            return await _in_thread(ask)


async def resolve(host: str, port: int, lookup: Lookup) -> list[Endpoint]:
    """Where to connect to, without duplicates. Raises `ServiceUnresolved`."""
    if ip_address(host) is not None:
        return [(host, port)]
    if host == "localhost.":
        return [("127.0.0.1", port)]
    try:
        return _unique(decode_srv(await lookup.srv(host)))
    except (OSError, ValueError):
        pass
    try:
        found = await lookup.addresses(host)
    except OSError as error:  # a timeout is one, too
        reason = error.strerror or str(error) or "the name servers do not answer"
        raise ServiceUnresolved(
            f"no address of {host!r} is known: {reason}; "
            "look at the service's address and at this pod's DNS"
        ) from error
    return _unique((address, port) for address in found)


def decode_srv(records: Iterable[tuple[str, int]]) -> list[Endpoint]:
    """Endpoints of SRV records; ValueError if there is none, or one is no address."""
    found = [
        (_decode_label(target.partition(".")[0]), port) for target, port in records
    ]
    if not found:
        raise ValueError("no SRV records")
    return found


def _decode_label(label: str) -> str:
    """``10-1-2-3`` or ``2001-db8--1`` as the address that is meant."""
    dotted = ip_address(label.replace("-", "."))
    return str(dotted or ipaddress.IPv6Address(label.replace("-", ":")))


def _unique(endpoints: Iterable[Endpoint]) -> list[Endpoint]:
    return list(dict.fromkeys(endpoints))


async def _in_thread(ask: Callable[[], T]) -> T:
    """Call in a thread that nobody waits for: a lost query must not stop the end."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]  # T may be None

    def work() -> None:
        result: T | None = None
        failure: Exception | None = None
        try:
            result = ask()
        except (OSError, UnicodeError) as error:
            failure = error if isinstance(error, OSError) else OSError(str(error))
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, result, failure)

    threading.Thread(target=work, daemon=True).start()
    return await answer
