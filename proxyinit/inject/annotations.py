"""Annotations that shape an injected pod: their keys, and what of them is inherited."""

from __future__ import annotations

from collections.abc import Mapping

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
