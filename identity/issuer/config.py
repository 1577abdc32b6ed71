"""The service's configuration as one value, and Go's durations."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from pathlib import Path

from identity.issuer.policy import Domain

AUDIENCE = "identity.l5d.io"
"""Tokens for the service, and for nobody else, are made out to this audience."""

KUBERNETES = "kubernetes"
JWKS = "jwks"
"""The two ways to find out whose token it is."""

DEFAULT_LIFETIME = dt.timedelta(hours=24)
DEFAULT_SKEW = dt.timedelta(seconds=10)
ZERO_LIFETIME = dt.timedelta(days=365)
"""What a lifetime of 0 means, as upstream has it."""

ISSUER_DIR = Path("/var/run/linkerd/identity/issuer")
ANCHORS = Path("/var/run/linkerd/identity/trust-roots/ca-bundle.crt")

_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerConfig:
    """All that the command line says. Empty paths and texts are not set."""

    address: str = ":8080"
    admin_address: str = ":9990"
    kubeconfig: Path | None = None
    domain: Domain
    scheme: str
    lifetime: dt.timedelta = DEFAULT_LIFETIME
    skew: dt.timedelta = DEFAULT_SKEW
    issuer_dir: Path = ISSUER_DIR
    anchors: Path = ANCHORS
    api_calls_per_s: float = 100
    api_burst: int = 1
    validator: str = KUBERNETES
    jwks: Path | None = None
    token_issuer: str = ""
    token_leeway: dt.timedelta = DEFAULT_SKEW
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    spiffe: bool = False
    workers: int = 1
    poll_interval: dt.timedelta = dt.timedelta(seconds=1)
    grace: dt.timedelta = dt.timedelta(seconds=20)
    log_level: str = "info"
    log_format: str = "plain"

    @property
    def name(self) -> str:
        """How the service is called in messages about its credentials."""
        return f"identity.{self.domain.control_namespace}.{self.domain.trust_domain}"

    @property
    def enabled(self) -> bool:
        """Whether there is a mesh to certify for."""
        return bool(self.scheme and self.domain.trust_domain)


def parse_duration(text: str) -> dt.timedelta:
    """A duration as Go writes it, such as 24h0m0s or 1.5h; ValueError if it is none."""
    sign, body = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if body == "0":
        return dt.timedelta(0)
    parts = _PART.findall(body)
    if not parts or "".join(number + unit for number, unit in parts) != body:
        raise ValueError(f"time: invalid duration {text!r}")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    try:
        return sign * dt.timedelta(seconds=seconds)
    except OverflowError as error:
        raise ValueError(f"time: invalid duration {text!r}") from error


def split_address(text: str) -> tuple[str, int]:
    """Host and port of ``:8080``, ``127.0.0.1:0`` or ``[::1]:8080``.

    No host means all addresses of both families. Raises ValueError.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"expected HOST:PORT or :PORT, got {text!r}")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(f"expected [HOST]:PORT around an IPv6 address, got {text!r}")
    return host.strip("[]") or "::", int(port)
