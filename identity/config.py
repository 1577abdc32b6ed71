"""What the client has to know, as values; and how each setting is spelled."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import timedelta

from identity.schedule import Backoff, RefreshPolicy
from identity.trust import Anchors
from identity.variables import (
    DIRECTORY,
    LOCAL_NAME,
    MAX_REFRESH,
    MIN_REFRESH,
    SVC_ADDR,
    SVC_NAME,
    TOKEN_FILE,
    TRUST_ANCHORS,
    connect_timeout_of,
)

CONNECT_TIMEOUT = {"OUTBOUND": timedelta(seconds=1), "INBOUND": timedelta(seconds=0.3)}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its option, the variable of the same meaning, what it is for."""

    option: str
    variable: str
    metavar: str
    help: str


SETTINGS = (
    Setting("--dir", DIRECTORY, "DIR", "Directory of key, CSR and certificates."),
    Setting("--name", LOCAL_NAME, "NAME", "Name to be certified."),
    Setting(
        "--trust-anchors",
        TRUST_ANCHORS,
        "FILE",
        "PEM file, read anew; the variable holds text.",
    ),
    Setting("--token-file", TOKEN_FILE, "FILE", "Service-account token."),
    Setting("--svc-addr", SVC_ADDR, "HOST:PORT", "Address of the identity service."),
    Setting("--svc-name", SVC_NAME, "NAME", "Name in the service's certificate."),
    Setting("--min-refresh", MIN_REFRESH, "DURATION", "Renew no sooner  [10s]."),
    Setting("--max-refresh", MAX_REFRESH, "DURATION", "Renew no later  [24h]."),
    Setting(
        "--connect-timeout",
        connect_timeout_of("OUTBOUND"),
        "DURATION",
        "For TCP and TLS, per address  [1s].",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Where the identity service is, and who it must prove to be.

    `name` is a DNS name or a URI; None for a service on loopback, which is spoken
    to without TLS. `host` is a name, with a final dot as configured, or an address.
    """

    host: str
    port: int
    name: str | None = None

    @property
    def authority(self) -> str:
        """What HTTP/2 calls the host: without final dot, and without port 80."""
        host = self.host.removesuffix(".")
        if ":" in host:
            host = f"[{host}]"
        return host if self.port == 80 else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All that the client has to know."""

    directory: str
    name: str
    anchors: Anchors
    token_file: str
    service: Service
    refresh: RefreshPolicy = field(default_factory=RefreshPolicy)
    backoff: Backoff = field(default_factory=Backoff)
    connect_timeout: timedelta = timedelta(seconds=1)
    call_timeout: timedelta = timedelta(seconds=10)


def is_loopback(host: str) -> bool:
    """Whether the host is ``localhost.``, with the dot, or a loopback address."""
    if host == "localhost.":
        return True
    address = ip_address(host)
    return address is not None and address.is_loopback


def ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is written as, if it is one."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
