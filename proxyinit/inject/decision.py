"""Whether a pod is injected, and every reason why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from proxyinit.inject.annotations import DISABLED, ENABLED, INGRESS, INJECT
from proxyinit.inject.names import INIT, PROXY, SERVICE_ACCOUNT_MOUNT
from proxyinit.inject.values import Values
from proxyinit.inject.workload import Object, Workload, objects

_ENABLING = (ENABLED, INGRESS)
_VALID = (*_ENABLING, DISABLED)

_SIDECAR_IMAGES = ("cr.l5d.io/linkerd/proxy:", "gcr.io/istio-release/proxyv2:")
_SIDECAR_NAMES = (PROXY, "istio-proxy")
_INIT_IMAGES = ("cr.l5d.io/linkerd/proxy-init:", "gcr.io/istio-release/proxy_init:")
_INIT_NAMES = (INIT, "istio-init")


class Origin(Enum):
    """Who asks: the API server, or a person with a manifest."""

    WEBHOOK = "webhook"
    CLI = "cli"


class Reason(Enum):
    """Why a pod is not injected: the code that metrics have, and a text for people."""

    HOST_NETWORK = "host_network_enabled", "hostNetwork is enabled"
    SIDECAR = "sidecar_already_exists", "pod has a sidecar injected already"
    UNSUPPORTED = "unsupported_resource", "this resource kind is unsupported"
    ABSENT = (
        "injection_enable_annotation_absent",
        f'neither the namespace nor the pod have the annotation "{INJECT}:{ENABLED}"',
    )
    DISABLED = (
        "injection_disable_annotation_present",
        f'pod has the annotation "{INJECT}:{DISABLED}"',
    )
    INVALID_AT_WORKLOAD = (
        "invalid_inject_annotation_at_workload",
        f'invalid value for annotation "{INJECT}" at workload',
    )
    INVALID_AT_NAMESPACE = (
        "invalid_inject_annotation_at_ns",
        f'invalid value for annotation "{INJECT}" at namespace',
    )
    AUTOMOUNT = (
        "disabled_automount_service_account_token_account",
        (
            'automountServiceAccountToken set to "false", with '
            'Values.identity.serviceAccountTokenProjection set to "false"'
        ),
    )

    @property
    def code(self) -> str:
        """The label of metrics."""
        return self.value[0]

    @property
    def text(self) -> str:
        """The sentence in logs, events and reports."""
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Decision:
    """`annotation_at` says whose annotation decided: namespace, workload, or neither.

    `udp` tells that a container serves UDP, which the proxy does not see.
    """

    reasons: tuple[Reason, ...]
    annotation_at: str
    udp: bool

    @property
    def injects(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.reasons

    @property
    def disables(self) -> bool:
        """Whether the inject annotation speaks against it."""
        annotated = (Reason.DISABLED, Reason.ABSENT)
        invalid = (Reason.INVALID_AT_WORKLOAD, Reason.INVALID_AT_NAMESPACE)
        return any(reason in annotated + invalid for reason in self.reasons)


def decide(
    workload: Workload,
    values: Values,
    origin: Origin,
    ns_annotations: Mapping[str, str] | None = None,
) -> Decision:
    """Decide on a workload; the namespace has a say in the webhook only.

    All reasons are told, in the order in which `Reason` has them; of a kind without
    pods there is but one.
    """
    if workload.template is None:
        return Decision((Reason.UNSUPPORTED,), "", udp=False)
    if origin is Origin.CLI:
        disabled = workload.annotations.get(INJECT) == DISABLED
        annotated, at = Reason.DISABLED if disabled else None, ""
    else:
        namespace = (ns_annotations or {}).get(INJECT, "")
        annotated, at = _annotated(namespace, workload.annotations.get(INJECT, ""))
    found = (
        Reason.HOST_NETWORK if workload.spec.get("hostNetwork") is True else None,
        Reason.SIDECAR if has_sidecar(workload) else None,
        annotated,
        Reason.AUTOMOUNT if _lacks_token(workload, values, origin) else None,
    )
    reasons = tuple(reason for reason in found if reason is not None)
    return Decision(reasons, at, _serves_udp(workload))


def _annotated(namespace: str, pod: str) -> tuple[Reason | None, str]:
    if namespace and namespace not in _VALID:
        return Reason.INVALID_AT_NAMESPACE, ""
    if pod and pod not in _VALID:
        return Reason.INVALID_AT_WORKLOAD, ""
    if namespace in _ENABLING:
        if pod == DISABLED:
            return Reason.DISABLED, "workload"
        return None, "namespace"
    if pod in _ENABLING:
        return None, "workload"
    return Reason.ABSENT, ""


def has_sidecar(workload: Workload) -> bool:
    """Whether a proxy, or the container that redirects to it, is there already.

    Images of mirrors are not known; their containers' names are.
    """
    return any(
        _is(container, _SIDECAR_IMAGES, _SIDECAR_NAMES)
        for container in workload.all_containers
    ) or any(
        _is(container, _INIT_IMAGES, _INIT_NAMES)
        for container in workload.init_containers
    )


def _is(container: Object, images: tuple[str, ...], names: tuple[str, ...]) -> bool:
    image = container.get("image")
    known = isinstance(image, str) and image.startswith(images)
    return known or container.get("name") in names


def _lacks_token(workload: Workload, values: Values, origin: Origin) -> bool:
    """Whether the pod has no token, where the proxy depends on the pod's own."""
    if values.token_projection:
        return False
    if workload.spec.get("automountServiceAccountToken") is False:
        return True
    first = workload.containers[:1]
    return origin is Origin.WEBHOOK and all(token_mount(c) is None for c in first)


def token_mount(container: Object) -> Object | None:
    """Where a container has the pod's own token mounted; None if it has not."""
    for mount in objects(container, "volumeMounts"):
        if mount.get("mountPath") == SERVICE_ACCOUNT_MOUNT:
            return mount
    return None


def _serves_udp(workload: Workload) -> bool:
    return any(
        port.get("protocol") == "UDP"
        for container in workload.containers
        for port in objects(container, "ports")
    )
