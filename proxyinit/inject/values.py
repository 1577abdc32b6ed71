"""The chart's values, as far as injected pods depend on them.

A value per section, each field with the path it has in the chart and the chart's
default. What is missing, null, or unknown to us means the default; what has another
type than the chart gives it is a mistake, and all mistakes are told at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

from proxyinit.inject.chart_fields import (
    at,
    holding,
    networks,
    number,
    objects,
    one_of,
    port,
    ratio,
    read,
    switch,
    text,
    words,
)
from proxyinit.inject.errors import ValuesError

IPTABLES_MODES = ("nft", "legacy")
INBOUND_POLICIES = (
    *("all-unauthenticated", "all-authenticated"),
    *("cluster-unauthenticated", "cluster-authenticated", "deny", "audit"),
)
HTTP_HEADER_LOGS = ("off", "insecure")
NEEDS_ROOT = "proxyInit.runAsRoot must be set to use proxyInit.closeWaitTimeoutSecs"


def _http2() -> Mapping[str, Any]:
    return {"server": {"http2": {"keepAliveInterval": "10s", "keepAliveTimeout": "3s"}}}


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """The sidecar. Empty texts are not set, gid below 0 leaves the group out.

    `cores` is the deprecated setting that wins over the workers' when it is above 0;
    `workers_minimum` 0 leaves the whole group of settings out.
    """

    image: str = at("image.name", text, "cr.l5d.io/linkerd/proxy")
    version: str = at("image.version", text, "")
    pull_policy: str = at("image.pullPolicy", text, "")
    inbound_port: int = at("ports.inbound", port, 4143)
    outbound_port: int = at("ports.outbound", port, 4140)
    admin_port: int = at("ports.admin", port, 4191)
    control_port: int = at("ports.control", port, 4190)
    uid: int = at("uid", number, 2102)
    gid: int = at("gid", number, -1)
    cpu_request: str = at("resources.cpu.request", text, "")
    cpu_limit: str = at("resources.cpu.limit", text, "")
    memory_request: str = at("resources.memory.request", text, "")
    memory_limit: str = at("resources.memory.limit", text, "")
    ephemeral_storage_request: str = at("resources.ephemeral-storage.request", text, "")
    ephemeral_storage_limit: str = at("resources.ephemeral-storage.limit", text, "")
    cores: int = at("cores", number, 0)
    workers_minimum: int = at("runtime.workers.minimum", number, 1)
    workers_maximum: int = at("runtime.workers.maximum", number, 0)
    workers_ratio: float = at("runtime.workers.maximumCPURatio", ratio, 0.0)
    log_level: str = at("logLevel", text, "warn,linkerd=info,hickory=error")
    log_format: str = at("logFormat", text, "plain")
    log_http_headers: str = at("logHTTPHeaders", one_of(*HTTP_HEADER_LOGS), "off")
    native_sidecar: bool = at("nativeSidecar", switch, default=True)
    wait: bool = at("await", switch, default=True)
    wait_before_exit_s: int = at("waitBeforeExitSeconds", number, 0)
    opaque_ports: str = at("opaquePorts", text, "25,587,3306,4444,5432,6379,9300,11211")
    default_inbound_policy: str = at(
        "defaultInboundPolicy", text, "all-unauthenticated"
    )
    require_identity_ports: str = at("requireIdentityOnInboundPorts", text, "")
    external_profiles: bool = at("enableExternalProfiles", switch, default=False)
    shutdown_endpoint: bool = at("enableShutdownEndpoint", switch, default=False)
    hostname_labels: bool = at("metrics.hostnameLabels", switch, default=False)
    gateway: bool = at("isGateway", switch, default=False)
    ingress: bool = at("isIngress", switch, default=False)
    access_log: str = at("accessLog", text, "")
    shutdown_grace_period: str = at("shutdownGracePeriod", text, "")
    outbound_connect_timeout: str = at("outboundConnectTimeout", text, "1000ms")
    inbound_connect_timeout: str = at("inboundConnectTimeout", text, "100ms")
    outbound_discovery_timeout: str = at(
        "outboundDiscoveryCacheUnusedTimeout", text, "5s"
    )
    inbound_discovery_timeout: str = at(
        "inboundDiscoveryCacheUnusedTimeout", text, "90s"
    )
    no_outbound_detect_timeout: bool = at(
        "disableOutboundProtocolDetectTimeout", switch, default=False
    )
    no_inbound_detect_timeout: bool = at(
        "disableInboundProtocolDetectTimeout", switch, default=False
    )
    stream_initial_timeout: str = at("control.streams.initialTimeout", text, "3s")
    stream_idle_timeout: str = at("control.streams.idleTimeout", text, "5m")
    stream_lifetime: str = at("control.streams.lifetime", text, "1h")
    liveness_delay_s: int = at("livenessProbe.initialDelaySeconds", number, 10)
    liveness_timeout_s: int = at("livenessProbe.timeoutSeconds", number, 1)
    readiness_delay_s: int = at("readinessProbe.initialDelaySeconds", number, 2)
    readiness_timeout_s: int = at("readinessProbe.timeoutSeconds", number, 1)
    startup_delay_s: int = at("startupProbe.initialDelaySeconds", number, 0)
    startup_period_s: int = at("startupProbe.periodSeconds", number, 1)
    startup_failures: int = at("startupProbe.failureThreshold", number, 120)
    inbound: Mapping[str, Any] = holding("inbound", _http2)
    outbound: Mapping[str, Any] = holding("outbound", _http2)
    security_context: Mapping[str, Any] = holding("securityContext")
    additional_env: tuple[Mapping[str, Any], ...] = at("additionalEnv", objects, ())
    experimental_env: tuple[Mapping[str, Any], ...] = at("experimentalEnv", objects, ())
    tracing: bool = at("tracing.enabled", switch, default=False)
    trace_service: str = at("tracing.traceServiceName", text, "linkerd-proxy")
    trace_endpoint: str = at("tracing.collector.endpoint", text, "")
    trace_account: str = at(
        "tracing.collector.meshIdentity.serviceAccountName", text, ""
    )
    trace_namespace: str = at("tracing.collector.meshIdentity.namespace", text, "")
    trace_attributes: Mapping[str, Any] = holding("tracing.labels")


@dataclass(frozen=True, kw_only=True)
class Init:
    """The init container that redirects.

    Without `image` it runs from the proxy's image, by the path that Linkerd has it
    at; an image of its own starts by its own entry point unless there is a `command`.
    """

    iptables_mode: str = at("iptablesMode", one_of(*IPTABLES_MODES), "nft")
    ignore_inbound_ports: str = at("ignoreInboundPorts", text, "4567,4568")
    ignore_outbound_ports: str = at("ignoreOutboundPorts", text, "4567,4568")
    skip_subnets: str = at("skipSubnets", text, "")
    skip_inbound_subnets: str = at("skipInboundSubnets", text, "")
    skip_outbound_subnets: str = at("skipOutboundSubnets", text, "")
    log_level: str = at("logLevel", text, "")
    log_format: str = at("logFormat", text, "")
    close_wait_s: int = at("closeWaitTimeoutSecs", number, 0)
    privileged: bool = at("privileged", switch, default=False)
    run_as_root: bool = at("runAsRoot", switch, default=False)
    run_as_user: int = at("runAsUser", number, 65534)
    run_as_group: int = at("runAsGroup", number, 65534)
    mount_path: str = at("xtMountPath.mountPath", text, "/run")
    mount_name: str = at("xtMountPath.name", text, "linkerd-proxy-init-xtables-lock")
    image: str = at("image.name", text, "")
    version: str = at("image.version", text, "")
    pull_policy: str = at("image.pullPolicy", text, "")
    command: tuple[str, ...] = at("command", words, ())


@dataclass(frozen=True, kw_only=True)
class Validator:
    """The init container that proves the redirect where a CNI plugin makes it."""

    log_level: str = at("logLevel", text, "debug")
    log_format: str = at("logFormat", text, "plain")
    connect_addr: str = at("connectAddr", text, "")
    listen_addr: str = at("listenAddr", text, "")
    timeout: str = at("timeout", text, "10s")
    security_context: Mapping[str, Any] = holding("securityContext")


@dataclass(frozen=True, kw_only=True)
class Debug:
    """The container with tools that a pod may ask for."""

    image: str = at("image.name", text, "cr.l5d.io/linkerd/debug")
    version: str = at("image.version", text, "")
    pull_policy: str = at("image.pullPolicy", text, "")


@dataclass(frozen=True, kw_only=True)
class Values:
    """All of them. `control_namespace` is not the chart's but its release's."""

    linkerd_version: str = at("linkerdVersion", text, "")
    image_pull_policy: str = at("imagePullPolicy", text, "IfNotPresent")
    cni_enabled: bool = at("cniEnabled", switch, default=False)
    disable_ipv6: bool = at("disableIPv6", switch, default=True)
    cluster_domain: str = at("clusterDomain", text, "cluster.local")
    cluster_networks: str = at(
        "clusterNetworks",
        networks,
        "10.0.0.0/8,100.64.0.0/10,172.16.0.0/12,192.168.0.0/16,fd00::/8",
    )
    trust_domain: str = at("identityTrustDomain", text, "")
    trust_anchors: str = at("identityTrustAnchorsPEM", text, "")
    token_projection: bool = at(
        "identity.serviceAccountTokenProjection", switch, default=True
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
    proxy = Proxy(**read(Proxy, chart, "proxy", problems))
    init = Init(**read(Init, chart, "proxyInit", problems))
    validator = Validator(**read(Validator, chart, "networkValidator", problems))
    debug = Debug(**read(Debug, chart, "debugContainer", problems))
    own = read(Values, chart, "", problems)
    if trust_anchors is not None:
        own["trust_anchors"] = trust_anchors
    if init.close_wait_s > 0 and not init.run_as_root:
        problems.append(NEEDS_ROOT)
    if problems:
        raise ValuesError(problems)
    return Values(
        **own,
        control_namespace=control_namespace,
        proxy=proxy,
        init=init,
        validator=validator,
        debug=debug,
    )
