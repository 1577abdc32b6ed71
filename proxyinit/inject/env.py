"""The proxy's environment, in upstream's order.

References such as ``$(_pod_ns)`` are expanded by the kubelet, from variables that
stand in front of them: the order is part of the meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from proxyinit.inject.annotations import TRACE_ATTRIBUTE, text
from proxyinit.inject.errors import Unrenderable
from proxyinit.inject.names import PROXY
from proxyinit.inject.values import HTTP_HEADER_LOGS, Values

Variable = dict[str, Any]

NO_ANCHORS = "Please provide the identity trust anchors"

_PREFIX = "LINKERD2_PROXY_"
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NEVER = "365d"
_PODINFO = "/var/run/linkerd/podinfo"
_PROJECTED_TOKEN = "/var/run/secrets/tokens/linkerd-identity-token"  # noqa: S105  (a path)
_OWN_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105  (a path)


def environment(
    values: Values, inbound_ports: str, annotations: Mapping[str, str]
) -> list[Variable]:
    """All variables of the proxy. Raises `Unrenderable`.

    `inbound_ports` are the pod's own; `annotations` the pod's, for traces.
    """
    if not values.trust_anchors.strip():
        raise Unrenderable(NO_ANCHORS)
    own = values.proxy
    return [
        *_pod(),
        *map(_variable, _settings(values)),
        *_addresses(values),
        _from_field(f"{_PREFIX}INBOUND_IPS", "status.podIPs"),
        *map(_variable, _traffic(values, inbound_ports)),
        *(map(_variable, _tracing(values, annotations)) if own.tracing else ()),
        *_tuning(values),
        *map(_variable, _context(values)),
        *_identity(values),
        *map(_variable, _last(values)),
        *map(dict, own.additional_env),
        *map(dict, own.experimental_env),
    ]


def _variable(pair: tuple[str, str]) -> Variable:
    name, value = pair
    return {"name": _PREFIX + name, "value": value}


def _plain(name: str, value: str) -> Variable:
    return {"name": name, "value": value}


def _from_field(name: str, path: str) -> Variable:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _bool(value: bool) -> str:  # noqa: FBT001  (the value itself)
    return "true" if value else "false"


def _pod() -> Iterator[Variable]:
    yield _from_field("_pod_name", "metadata.name")
    yield _from_field("_pod_ns", "metadata.namespace")
    yield _from_field("_pod_uid", "metadata.uid")
    yield _from_field("_pod_ip", "status.podIP")
    yield _from_field("_pod_nodeName", "spec.nodeName")
    yield _plain("_pod_containerName", PROXY)


def _settings(values: Values) -> Iterator[tuple[str, str]]:
    own = values.proxy
    yield from _workers(values)
    if own.require_identity_ports:
        yield "INBOUND_PORTS_REQUIRE_IDENTITY", own.require_identity_ports
    yield "SHUTDOWN_ENDPOINT_ENABLED", _bool(own.shutdown_endpoint)
    yield "LOG", own.log_level + _header_log(own.log_http_headers)
    yield "LOG_FORMAT", own.log_format
    namespace, domain = values.control_namespace, values.cluster_domain
    yield (
        "DESTINATION_SVC_ADDR",
        f"linkerd-dst-headless.{namespace}.svc.{domain}.:8086",
    )
    yield "DESTINATION_PROFILE_NETWORKS", values.cluster_networks
    yield "POLICY_SVC_ADDR", f"linkerd-policy.{namespace}.svc.{domain}.:8090"
    yield "POLICY_WORKLOAD", '{"ns":"$(_pod_ns)", "pod":"$(_pod_name)"}\n'
    yield "INBOUND_DEFAULT_POLICY", own.default_inbound_policy
    yield "POLICY_CLUSTER_NETWORKS", values.cluster_networks
    yield "CONTROL_STREAM_INITIAL_TIMEOUT", own.stream_initial_timeout
    yield "CONTROL_STREAM_IDLE_TIMEOUT", own.stream_idle_timeout
    yield "CONTROL_STREAM_LIFETIME", own.stream_lifetime
    optional = (
        ("INBOUND_CONNECT_TIMEOUT", own.inbound_connect_timeout),
        ("OUTBOUND_CONNECT_TIMEOUT", own.outbound_connect_timeout),
        ("OUTBOUND_DISCOVERY_IDLE_TIMEOUT", own.outbound_discovery_timeout),
        ("INBOUND_DISCOVERY_IDLE_TIMEOUT", own.inbound_discovery_timeout),
        ("OUTBOUND_DETECT_TIMEOUT", _NEVER if own.no_outbound_detect_timeout else ""),
        ("INBOUND_DETECT_TIMEOUT", _NEVER if own.no_inbound_detect_timeout else ""),
    )
    yield from (pair for pair in optional if pair[1])


def _workers(values: Values) -> Iterator[tuple[str, str]]:
    own = values.proxy
    if own.cores > 0:
        yield "CORES", str(own.cores)
        yield "CORES_MIN", str(own.cores)
        return
    if own.workers_minimum > 0:
        yield "CORES", str(own.workers_minimum)
        yield "CORES_MIN", str(own.workers_minimum)
    if own.workers_maximum > 0:
        yield "CORES_MAX", str(own.workers_maximum)
    if own.workers_ratio > 0:
        yield "CORES_MAX_RATIO", f"{own.workers_ratio:g}"


def _header_log(wanted: str) -> str:
    if wanted not in HTTP_HEADER_LOGS:
        expected = ", ".join(HTTP_HEADER_LOGS)
        raise Unrenderable(f"proxy.logHTTPHeaders {wanted!r}: expected {expected}")
    return "" if wanted == "insecure" else ",[{headers}]=off,[{request}]=off"


def _addresses(values: Values) -> Iterator[Variable]:
    own = values.proxy
    host = "0.0.0.0" if values.disable_ipv6 else "[::]"  # noqa: S104  (the proxy's)
    outbound = f"127.0.0.1:{own.outbound_port}"
    both = outbound if values.disable_ipv6 else f"{outbound},[::1]:{own.outbound_port}"
    yield _variable(("CONTROL_LISTEN_ADDR", f"{host}:{own.control_port}"))
    yield _variable(("ADMIN_LISTEN_ADDR", f"{host}:{own.admin_port}"))
    yield _variable(("OUTBOUND_LISTEN_ADDR", outbound))
    yield _variable(("OUTBOUND_LISTEN_ADDRS", both))
    yield _variable(("INBOUND_LISTEN_ADDR", f"{host}:{own.inbound_port}"))


def _traffic(values: Values, inbound_ports: str) -> Iterator[tuple[str, str]]:
    own = values.proxy
    services = f"svc.{values.cluster_domain}."
    yield "INBOUND_PORTS", inbound_ports
    if own.gateway:
        yield "INBOUND_GATEWAY_SUFFIXES", services
    if own.ingress:
        yield "INGRESS_MODE", "true"
    yield "DESTINATION_PROFILE_SUFFIXES", "." if own.external_profiles else services
    yield "INBOUND_ACCEPT_KEEPALIVE", "10000ms"
    yield "OUTBOUND_CONNECT_KEEPALIVE", "10000ms"
    yield "INBOUND_ACCEPT_USER_TIMEOUT", "30s"
    yield "OUTBOUND_CONNECT_USER_TIMEOUT", "30s"
    yield "OUTBOUND_METRICS_HOSTNAME_LABELS", _bool(own.hostname_labels)


def _tracing(
    values: Values, annotations: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    own = values.proxy
    yield "TRACE_ATTRIBUTES_PATH", f"{_PODINFO}/labels"
    yield "TRACE_ANNOTATIONS_PATH", f"{_PODINFO}/annotations"
    yield "TRACE_PROTOCOL", "opentelemetry"
    yield "TRACE_SERVICE_NAME", own.trace_service
    yield "TRACE_COLLECTOR_SVC_ADDR", own.trace_endpoint
    if own.trace_account:
        account = f"{own.trace_account}.{own.trace_namespace}"
        yield "TRACE_COLLECTOR_SVC_NAME", _identity_name(values, account)
    attributes = {key: text(value) for key, value in own.trace_attributes.items()}
    attributes |= {
        key.removeprefix(TRACE_ATTRIBUTE): value
        for key, value in annotations.items()
        if key.startswith(TRACE_ATTRIBUTE)
    }
    lines = [f"{key}={value}" for key, value in sorted(attributes.items())]
    yield "TRACE_EXTRA_ATTRIBUTES", "\n".join(lines)


def _tuning(values: Values) -> Iterator[Variable]:
    """``inbound.server.http2.keepAliveInterval`` as a variable, and all its like."""
    own = values.proxy
    for name, tree in (("inbound", own.inbound), ("outbound", own.outbound)):
        for path, value in _leaves(tree, (name,)):
            words = (_HUMP.sub("_", step).upper() for step in path)
            yield _variable(("_".join(words), text(value)))


def _leaves(
    tree: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key in sorted(tree):
        value = tree[key]
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, key))
        elif value is not None:
            yield (*path, key), value


def _context(values: Values) -> Iterator[tuple[str, str]]:
    if values.proxy.opaque_ports:
        ports = values.proxy.opaque_ports
        yield "INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION", ports
    yield (
        "DESTINATION_CONTEXT",
        '{"ns":"$(_pod_ns)", "nodeName":"$(_pod_nodeName)", "pod":"$(_pod_name)"}\n',
    )


def _identity_name(values: Values, account: str) -> str:
    namespace, domain = values.control_namespace, values.identity_domain
    return f"{account}.serviceaccount.identity.{namespace}.{domain}"


def _identity(values: Values) -> Iterator[Variable]:
    namespace = values.control_namespace
    service = f"linkerd-identity-headless.{namespace}.svc.{values.cluster_domain}"
    destination = _identity_name(values, f"linkerd-destination.{namespace}")
    identity = _identity_name(values, f"linkerd-identity.{namespace}")
    token = _PROJECTED_TOKEN if values.token_projection else _OWN_TOKEN
    yield _from_field("_pod_sa", "spec.serviceAccountName")
    yield _plain("_l5d_ns", namespace)
    yield _plain("_l5d_trustdomain", values.identity_domain)
    for pair in (
        ("IDENTITY_DIR", "/var/run/linkerd/identity/end-entity"),
        ("IDENTITY_TRUST_ANCHORS", f"{values.trust_anchors.strip()}\n"),
        ("IDENTITY_TOKEN_FILE", token),
        ("IDENTITY_SVC_ADDR", f"{service}.:8080"),
        ("IDENTITY_LOCAL_NAME", _identity_name(values, "$(_pod_sa).$(_pod_ns)")),
        ("IDENTITY_SVC_NAME", identity),
        ("DESTINATION_SVC_NAME", destination),
        ("POLICY_SVC_NAME", destination),
    ):
        yield _variable(pair)


def _last(values: Values) -> Iterator[tuple[str, str]]:
    own = values.proxy
    if own.access_log:
        yield "ACCESS_LOG", own.access_log
    if own.shutdown_grace_period:
        yield "SHUTDOWN_GRACE_PERIOD", own.shutdown_grace_period
