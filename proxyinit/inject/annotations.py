"""Annotations that shape an injected pod: their keys, and how their texts are read.

Parsers take the text that a person typed and raise ValueError with what was
expected; whoever calls decides whether that is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

from proxyinit.config import parse_ports, parse_subnet

INJECT = "linkerd.io/inject"
CREATED_BY = "linkerd.io/created-by"
PROXY_VERSION = "linkerd.io/proxy-version"
TRUST_ROOT_SHA256 = "linkerd.io/trust-root-sha256"

CONTROL_PLANE_COMPONENT = "linkerd.io/control-plane-component"
CONTROL_PLANE_NS = "linkerd.io/control-plane-ns"
WORKLOAD_NS = "linkerd.io/workload-ns"
OWNER_PREFIX = "linkerd.io/proxy-"

ENABLED, DISABLED, INGRESS = "enabled", "disabled", "ingress"

CONFIG = "config.linkerd.io/"
ALPHA = "config.alpha.linkerd.io/"
BETA = "config.beta.linkerd.io/"
TRACE_ATTRIBUTE = "resource.opentelemetry.io/"

OPAQUE_PORTS = f"{CONFIG}opaque-ports"
CLOSE_WAIT = f"{CONFIG}close-wait-timeout"
DEBUG = f"{CONFIG}enable-debug-sidecar"
ADDITIONAL_ENV = f"{CONFIG}proxy-additional-env"
LOG_HTTP_HEADERS = f"{CONFIG}proxy-log-http-headers"
SKIP_INBOUND_SUBNETS = f"{CONFIG}skip-inbound-subnets"
SKIP_OUTBOUND_SUBNETS = f"{CONFIG}skip-outbound-subnets"
NATIVE_SIDECAR = tuple(f"{p}proxy-enable-native-sidecar" for p in (CONFIG, BETA, ALPHA))
"""The first of them that is there counts, even if it can't be read."""
WAIT_BEFORE_EXIT = f"{ALPHA}proxy-wait-before-exit-seconds"

METERED = tuple(
    CONFIG + name
    for name in (
        *("admin-port", "control-port", "enable-debug-sidecar"),
        *("enable-external-profiles", "image-pull-policy", "inbound-port"),
        *("outbound-port", "pod-inbound-ports", "proxy-cpu-limit"),
        *("proxy-cpu-request", "proxy-image", "proxy-admin-shutdown"),
        *("proxy-log-format", "proxy-log-level", "proxy-log-http-headers"),
        *("proxy-memory-limit", "proxy-memory-request"),
        *("proxy-ephemeral-storage-limit", "proxy-ephemeral-storage-request"),
        *("proxy-uid", "proxy-gid", "proxy-version"),
        *("proxy-require-identity-inbound-ports", "skip-inbound-ports"),
        *("opaque-ports", "skip-outbound-ports", "proxy-metrics-hostname-labels"),
        *("proxy-outbound-connect-timeout", "proxy-inbound-connect-timeout"),
        *("proxy-await", "default-inbound-policy", "skip-subnets", "access-log"),
        "shutdown-grace-period",
        "proxy-outbound-discovery-cache-unused-timeout",
        "proxy-inbound-discovery-cache-unused-timeout",
        "proxy-disable-outbound-protocol-detect-timeout",
        "proxy-disable-inbound-protocol-detect-timeout",
        *("proxy-enable-native-sidecar", "proxy-additional-env"),
    )
)
"""The keys that upstream's metrics have a label for each."""

INHERITABLE = (
    *METERED,
    WAIT_BEFORE_EXIT,
    NATIVE_SIDECAR[2],
    INJECT,
    SKIP_INBOUND_SUBNETS,
    SKIP_OUTBOUND_SUBNETS,
)
"""Keys that a pod takes over from its namespace; the last two are ours."""

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))"
    r"(?P<unit>[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,3})?",
    re.ASCII,
)
_POWERS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DURATION_UNITS_NS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)


def text(value: object) -> str:
    """An annotation's value as text: YAML has numbers and switches, Kubernetes none."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def texts(value: object) -> dict[str, str]:
    """Annotations or labels with texts as values; nothing of what is no mapping."""
    if not isinstance(value, dict):
        return {}
    return {text(key): text(item) for key, item in value.items()}


def inherited(namespace: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """What a pod takes over from its namespace: keys that it does not have itself."""
    return {
        key: namespace[key]
        for key in INHERITABLE
        if key in namespace and key not in own
    }


def parse_integer(value: str, bits: int) -> int:
    """A decimal integer of so many bits, as Go's strconv.ParseInt takes it."""
    number = int(value) if _INTEGER.fullmatch(value) else None
    if number is None or not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError("expected a whole number")
    return number


def parse_ratio(value: str) -> float:
    """A number between 0 and 1, neither of them included."""
    number = float(value) if _FLOAT.fullmatch(value) else 0.0
    if not 0 < number < 1:
        raise ValueError("expected a number between 0 and 1, such as 0.5")
    return number


def parse_duration_ns(value: str) -> int:
    """Nanoseconds of a duration as Go writes it, such as 30s or 1h0m0s."""
    sign, body = (-1, value[1:]) if value[:1] == "-" else (1, value.removeprefix("+"))
    if body == "0":
        return 0
    parts = _DURATION_PART.findall(body)
    if not parts or "".join(number + unit for number, unit in parts) != body:
        raise ValueError("expected a duration, such as 30s or 1h30m")
    total = sum(Decimal(number) * _DURATION_UNITS_NS[unit] for number, unit in parts)
    if total >= 1 << 63:
        raise ValueError("expected a duration below 292 years")
    return sign * int(total)


def parse_quantity(value: str) -> Decimal:
    """The number that a Kubernetes quantity means, such as 100m, 1.5 or 20Mi."""
    found = _QUANTITY.fullmatch(value)
    if found is None:
        raise ValueError("expected a quantity, such as 100m, 1.5 or 20Mi")
    number, unit = Decimal(found["number"]), found["unit"] or ""
    if unit.endswith("i"):
        return number * Decimal(1024) ** ("KMGTPE".index(unit[0]) + 1)
    power = int(unit[1:]) if unit[:1] in "eE" and unit[1:] else _POWERS.get(unit, 0)
    return number * Decimal(10) ** power


def whole_cores(cpu: str) -> int:
    """The cores that a CPU quantity asks for, rounded up."""
    return int(parse_quantity(cpu).to_integral_value(rounding=ROUND_CEILING))


def check_port_list(value: str) -> None:
    """Raise ValueError unless proxy-init will take it for a list of ports."""
    for item in value.split(","):
        _told(parse_ports, item.strip(" "))


def check_subnet_list(value: str) -> None:
    """Raise ValueError unless proxy-init will take it for a list of subnets."""
    for item in value.split(","):
        _told(parse_subnet, item.strip(" "))


def _told(parse: object, item: str) -> None:
    assert callable(parse)  # noqa: S101  (for mypy)
    try:
        parse(item)
    except ValueError as error:
        raise ValueError(f"{error}, got {item!r}") from None
