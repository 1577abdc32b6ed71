"""The chart's values, as far as injected pods depend on them.

A value per section, each field with the path it has in the chart and the chart's
default. What is missing, null, or unknown to us means the default; what has another
type than the chart gives it is a mistake, and all mistakes are told at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from hashlib import sha256
from ipaddress import ip_network
from typing import Any, TypeVar

from proxyinit.inject.errors import ValuesError

_T = TypeVar("_T")
Read = Callable[[Any], Any]

IPTABLES_MODES = ("nft", "legacy")
INBOUND_POLICIES = (
    *("all-unauthenticated", "all-authenticated"),
    *("cluster-unauthenticated", "cluster-authenticated", "deny", "audit"),
)
HTTP_HEADER_LOGS = ("off", "insecure")
NEEDS_ROOT = "proxyInit.runAsRoot must be set to use proxyInit.closeWaitTimeoutSecs"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # a single port without quotes
    raise ValueError("expected text")


def _number(value: Any) -> int:
    """A whole number; YAML readers before us may have made 1e+06 of it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("expected a whole number")  # noqa: TRY004  (one error for all)
    if value != int(value):
        raise ValueError("expected a whole number")
    return int(value)


def _port(value: Any) -> int:
    number = _number(value)
    if not 0 < number < 65536:
        raise ValueError("expected a port from 1 to 65535")
    return number


def _ratio(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("expected a number")  # noqa: TRY004  (one error for all)
    return float(value)


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")  # noqa: TRY004  (one error for all)
    return value


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("expected an object")  # noqa: TRY004  (one error for all)
    return value


def _objects(value: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list) or not all(isinstance(v, Mapping) for v in value):
        raise ValueError("expected a list of objects")
    return tuple(value)


def _words(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise ValueError("expected a list of texts")
    return tuple(value)


def _one_of(*words: str) -> Read:
    def read(value: Any) -> str:
        if value not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return str(value)

    return read


def _networks(value: Any) -> str:
    text = _text(value)
    for item in text.strip(",").split(",") if text else ():
        try:
            address, _, bits = item.partition("/")
            ip_network((address, int(bits)), strict=False)
        except ValueError:
            message = f"cannot parse destination get networks: {item!r} is no CIDR"
            raise ValueError(message) from None
    return text


def _at(path: str, read: Read, default: _T) -> _T:
    """A field at a path of its section, read by a function, with a default."""
    made: _T = field(default=default, metadata={"path": path, "read": read})
    return made


def _empty(path: str) -> Mapping[str, Any]:
    """A field that holds an object; empty by default."""
    made: Mapping[str, Any] = field(
        default_factory=dict, metadata={"path": path, "read": _object}
    )
    return made


def _http2() -> Mapping[str, Any]:
    return {"server": {"http2": {"keepAliveInterval": "10s", "keepAliveTimeout": "3s"}}}


def _tuning(path: str) -> Mapping[str, Any]:
    made: Mapping[str, Any] = field(
        default_factory=_http2, metadata={"path": path, "read": _object}
    )
    return made


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """The sidecar. Empty texts are not set, gid below 0 leaves the group out.

    `cores` is the deprecated setting that wins over the workers' when it is above 0;
    `workers_minimum` 0 leaves the whole group of settings out.
    """

    image: str = _at("image.name", _text, "cr.l5d.io/linkerd/proxy")
    version: str = _at("image.version", _text, "")
    pull_policy: str = _at("image.pullPolicy", _text, "")
    inbound_port: int = _at("ports.inbound", _port, 4143)
    outbound_port: int = _at("ports.outbound", _port, 4140)
    admin_port: int = _at("ports.admin", _port, 4191)
    control_port: int = _at("ports.control", _port, 4190)
    uid: int = _at("uid", _number, 2102)
    gid: int = _at("gid", _number, -1)
    cpu_request: str = _at("resources.cpu.request", _text, "")
    cpu_limit: str = _at("resources.cpu.limit", _text, "")
    memory_request: str = _at("resources.memory.request", _text, "")
    memory_limit: str = _at("resources.memory.limit", _text, "")
    ephemeral_storage_request: str = _at(
        "resources.ephemeral-storage.request", _text, ""
    )
    ephemeral_storage_limit: str = _at("resources.ephemeral-storage.limit", _text, "")
    cores: int = _at("cores", _number, 0)
    workers_minimum: int = _at("runtime.workers.minimum", _number, 1)
    workers_maximum: int = _at("runtime.workers.maximum", _number, 0)
    workers_ratio: float = _at("runtime.workers.maximumCPURatio", _ratio, 0.0)
    log_level: str = _at("logLevel", _text, "warn,linkerd=info,hickory=error")
    log_format: str = _at("logFormat", _text, "plain")
    log_http_headers: str = _at("logHTTPHeaders", _one_of(*HTTP_HEADER_LOGS), "off")
    native_sidecar: bool = _at("nativeSidecar", _switch, default=True)
    wait: bool = _at("await", _switch, default=True)
    wait_before_exit_s: int = _at("waitBeforeExitSeconds", _number, 0)
    opaque_ports: str = _at(
        "opaquePorts", _text, "25,587,3306,4444,5432,6379,9300,11211"
    )
    default_inbound_policy: str = _at(
        "defaultInboundPolicy", _text, "all-unauthenticated"
    )
    require_identity_ports: str = _at("requireIdentityOnInboundPorts", _text, "")
    external_profiles: bool = _at("enableExternalProfiles", _switch, default=False)
    shutdown_endpoint: bool = _at("enableShutdownEndpoint", _switch, default=False)
    hostname_labels: bool = _at("metrics.hostnameLabels", _switch, default=False)
    gateway: bool = _at("isGateway", _switch, default=False)
    ingress: bool = _at("isIngress", _switch, default=False)
    access_log: str = _at("accessLog", _text, "")
    shutdown_grace_period: str = _at("shutdownGracePeriod", _text, "")
    outbound_connect_timeout: str = _at("outboundConnectTimeout", _text, "1000ms")
    inbound_connect_timeout: str = _at("inboundConnectTimeout", _text, "100ms")
    outbound_discovery_timeout: str = _at(
        "outboundDiscoveryCacheUnusedTimeout", _text, "5s"
    )
    inbound_discovery_timeout: str = _at(
        "inboundDiscoveryCacheUnusedTimeout", _text, "90s"
    )
    no_outbound_detect_timeout: bool = _at(
        "disableOutboundProtocolDetectTimeout", _switch, default=False
    )
    no_inbound_detect_timeout: bool = _at(
        "disableInboundProtocolDetectTimeout", _switch, default=False
    )
    stream_initial_timeout: str = _at("control.streams.initialTimeout", _text, "3s")
    stream_idle_timeout: str = _at("control.streams.idleTimeout", _text, "5m")
    stream_lifetime: str = _at("control.streams.lifetime", _text, "1h")
    liveness_delay_s: int = _at("livenessProbe.initialDelaySeconds", _number, 10)
    liveness_timeout_s: int = _at("livenessProbe.timeoutSeconds", _number, 1)
    readiness_delay_s: int = _at("readinessProbe.initialDelaySeconds", _number, 2)
    readiness_timeout_s: int = _at("readinessProbe.timeoutSeconds", _number, 1)
    startup_delay_s: int = _at("startupProbe.initialDelaySeconds", _number, 0)
    startup_period_s: int = _at("startupProbe.periodSeconds", _number, 1)
    startup_failures: int = _at("startupProbe.failureThreshold", _number, 120)
    inbound: Mapping[str, Any] = _tuning("inbound")
    outbound: Mapping[str, Any] = _tuning("outbound")
    security_context: Mapping[str, Any] = _empty("securityContext")
    additional_env: tuple[Mapping[str, Any], ...] = _at("additionalEnv", _objects, ())
    experimental_env: tuple[Mapping[str, Any], ...] = _at(
        "experimentalEnv", _objects, ()
    )
    tracing: bool = _at("tracing.enabled", _switch, default=False)
    trace_service: str = _at("tracing.traceServiceName", _text, "linkerd-proxy")
    trace_endpoint: str = _at("tracing.collector.endpoint", _text, "")
    trace_account: str = _at(
        "tracing.collector.meshIdentity.serviceAccountName", _text, ""
    )
    trace_namespace: str = _at("tracing.collector.meshIdentity.namespace", _text, "")
    trace_attributes: Mapping[str, Any] = _empty("tracing.labels")


@dataclass(frozen=True, kw_only=True)
class Init:
    """The init container that redirects.

    Without `image` it runs from the proxy's image, by the path that Linkerd has it
    at; an image of its own starts by its own entry point unless there is a `command`.
    """

    iptables_mode: str = _at("iptablesMode", _one_of(*IPTABLES_MODES), "nft")
    ignore_inbound_ports: str = _at("ignoreInboundPorts", _text, "4567,4568")
    ignore_outbound_ports: str = _at("ignoreOutboundPorts", _text, "4567,4568")
    skip_subnets: str = _at("skipSubnets", _text, "")
    skip_inbound_subnets: str = _at("skipInboundSubnets", _text, "")
    skip_outbound_subnets: str = _at("skipOutboundSubnets", _text, "")
    log_level: str = _at("logLevel", _text, "")
    log_format: str = _at("logFormat", _text, "")
    close_wait_s: int = _at("closeWaitTimeoutSecs", _number, 0)
    privileged: bool = _at("privileged", _switch, default=False)
    run_as_root: bool = _at("runAsRoot", _switch, default=False)
    run_as_user: int = _at("runAsUser", _number, 65534)
    run_as_group: int = _at("runAsGroup", _number, 65534)
    mount_path: str = _at("xtMountPath.mountPath", _text, "/run")
    mount_name: str = _at("xtMountPath.name", _text, "linkerd-proxy-init-xtables-lock")
    image: str = _at("image.name", _text, "")
    version: str = _at("image.version", _text, "")
    pull_policy: str = _at("image.pullPolicy", _text, "")
    command: tuple[str, ...] = _at("command", _words, ())


@dataclass(frozen=True, kw_only=True)
class Validator:
    """The init container that proves the redirect where a CNI plugin makes it."""

    log_level: str = _at("logLevel", _text, "debug")
    log_format: str = _at("logFormat", _text, "plain")
    connect_addr: str = _at("connectAddr", _text, "")
    listen_addr: str = _at("listenAddr", _text, "")
    timeout: str = _at("timeout", _text, "10s")
    security_context: Mapping[str, Any] = _empty("securityContext")


@dataclass(frozen=True, kw_only=True)
class Debug:
    """The container with tools that a pod may ask for."""

    image: str = _at("image.name", _text, "cr.l5d.io/linkerd/debug")
    version: str = _at("image.version", _text, "")
    pull_policy: str = _at("image.pullPolicy", _text, "")


@dataclass(frozen=True, kw_only=True)
class Values:
    """All of them. `control_namespace` is not the chart's but its release's."""

    linkerd_version: str = _at("linkerdVersion", _text, "")
    image_pull_policy: str = _at("imagePullPolicy", _text, "IfNotPresent")
    cni_enabled: bool = _at("cniEnabled", _switch, default=False)
    disable_ipv6: bool = _at("disableIPv6", _switch, default=True)
    cluster_domain: str = _at("clusterDomain", _text, "cluster.local")
    cluster_networks: str = _at(
        "clusterNetworks",
        _networks,
        "10.0.0.0/8,100.64.0.0/10,172.16.0.0/12,192.168.0.0/16,fd00::/8",
    )
    trust_domain: str = _at("identityTrustDomain", _text, "")
    trust_anchors: str = _at("identityTrustAnchorsPEM", _text, "")
    token_projection: bool = _at(
        "identity.serviceAccountTokenProjection", _switch, default=True
    )
    control_namespace: str = "linkerd"
    proxy: Proxy = Proxy()
    init: Init = Init()
    validator: Validator = Validator()
    debug: Debug = Debug()

    @cached_property
    def trust_root_sha256(self) -> str:
        """The digest of the trust anchors' text, blanks and all, in hex."""
        return sha256(self.trust_anchors.encode()).hexdigest()

    @property
    def identity_domain(self) -> str:
        """The trust domain; the cluster's domain unless it is set."""
        return self.trust_domain or self.cluster_domain

    @property
    def proxy_version(self) -> str:
        """The proxy's version; Linkerd's unless it is set."""
        return self.proxy.version or self.linkerd_version


_SECTIONS = (
    ("proxy", Proxy),
    ("proxyInit", Init),
    ("networkValidator", Validator),
    ("debugContainer", Debug),
)


def load(
    chart: Mapping[str, Any],
    *,
    control_namespace: str = "linkerd",
    trust_anchors: str | None = None,
) -> Values:
    """The values of a chart; `trust_anchors` are taken in place of the chart's.

    Raises `ValuesError`.
    """
    problems: list[str] = []
    sections = []
    for name, kind in _SECTIONS:
        try:
            section = _object(_dig(chart, name) or {})
        except ValueError as error:
            problems.append(f"{name}: {error}")
            section = {}
        sections.append(kind(**_read(kind, section, f"{name}.", problems)))
    own = _read(Values, chart, "", problems)
    if trust_anchors is not None:
        own["trust_anchors"] = trust_anchors
    proxy, init, validator, debug = sections
    assert isinstance(init, Init)  # noqa: S101  (for mypy: as _SECTIONS has it)
    if init.close_wait_s > 0 and not init.run_as_root:
        problems.append(NEEDS_ROOT)
    if problems:
        raise ValuesError(problems)
    return Values(
        **own,
        control_namespace=control_namespace,
        proxy=proxy,  # type: ignore[arg-type]  # as _SECTIONS has it
        init=init,
        validator=validator,  # type: ignore[arg-type]  # as _SECTIONS has it
        debug=debug,  # type: ignore[arg-type]  # as _SECTIONS has it
    )


def _read(
    kind: type, section: Mapping[str, Any], prefix: str, problems: list[str]
) -> dict[str, Any]:
    """The fields that a section gives a value; mistakes into `problems`."""
    found = {}
    for each in fields(kind):
        path = each.metadata.get("path")
        if path is None:
            continue
        try:
            value = _dig(section, *path.split("."))
            if value is not None:
                found[each.name] = each.metadata["read"](value)
        except (ValueError, OverflowError) as error:
            problems.append(f"{prefix}{path}: {error}")
    return found


def _dig(section: Mapping[str, Any], *path: str) -> Any:
    value: Any = section
    for step in path:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise ValueError("expected an object on the way to it")  # noqa: TRY004  (one error for all)
        value = value.get(step)
    return value
