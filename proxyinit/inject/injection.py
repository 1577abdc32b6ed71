"""From a workload and what is known about it to the patch that injects it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from proxyinit.inject import annotations as keys
from proxyinit.inject import containers, opaque, patch, volumes
from proxyinit.inject.decision import Origin
from proxyinit.inject.env import environment
from proxyinit.inject.overrides import overridden, wants_debug
from proxyinit.inject.owner import Owner
from proxyinit.inject.patch import Additions, Operation
from proxyinit.inject.values import Values
from proxyinit.inject.workload import Object, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A workload that is to be injected.

    `namespace` goes into the label that names it; `creator` into `created-by`, unless
    it is empty. `owner` is whom the webhook found; on the command line the workload
    is its pods' owner. `ns_annotations` count in the webhook alone. `overrides` are
    annotations that flags of the command line mean: they are written, and read for the
    debug container and the close-wait timeout only.
    """

    workload: Workload
    values: Values
    origin: Origin
    namespace: str
    creator: str = ""
    owner: Owner | None = None
    ns_annotations: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Injected:
    """The patch, and what of the annotations could not be followed."""

    operations: list[Operation]
    warnings: tuple[str, ...]


def inject(request: Request) -> Injected:
    """Inject a workload. Raises `Unrenderable` and `Malformed`.

    In the webhook nothing that annotations ask for is refused: what can't be had is
    left out, with a warning. On the command line it is an error, as with upstream.
    """
    workload = request.workload
    extra = extra_annotations(request)
    read = _annotations_read(request, extra)
    found = overridden(
        request.values,
        read,
        opaque.named_ports(workload),
        _env_layers(request),
        lenient=request.origin is Origin.WEBHOOK,
    )
    has_debug, debug_warnings = wants_debug({**workload.annotations, **extra})
    values = found.values
    additions = Additions(
        annotations=extra | _facts(values),
        labels=_labels(request),
        debug=containers.debug(values) if has_debug else None,
        **_rendered(workload, values, read),
    )
    operations = patch.inject(workload, additions)
    return Injected(operations, found.warnings + debug_warnings)


def extra_annotations(request: Request) -> dict[str, str]:
    """Annotations that a pod gets in any case: whose it is, and what it inherits."""
    extra = {keys.CREATED_BY: request.creator} if request.creator else {}
    if request.origin is Origin.CLI:
        return {**extra, **request.overrides}
    own = request.workload.annotations
    extra |= keys.inherited(request.ns_annotations, own)
    if keys.OPAQUE_PORTS not in own and keys.OPAQUE_PORTS not in extra:
        ports = opaque.default_for_pod(request.workload, request.values)
        if ports:
            extra[keys.OPAQUE_PORTS] = ports
    return extra


def _annotations_read(request: Request, extra: Mapping[str, str]) -> dict[str, str]:
    """The annotations that override values."""
    own = dict(request.workload.annotations)
    if request.origin is Origin.WEBHOOK:
        return {**own, **extra}
    close_wait = extra.get(keys.CLOSE_WAIT)
    return own if close_wait is None else {**own, keys.CLOSE_WAIT: close_wait}


def _env_layers(request: Request) -> list[str]:
    """Additional variables, the most important last.

    Namespace and pod in the webhook. On the command line upstream takes those of the
    object itself; the pod template's, which count once it runs, are above them here.
    """
    below = (
        request.ns_annotations
        if request.origin is Origin.WEBHOOK
        else request.workload.top_annotations
    )
    found = (below, request.workload.annotations)
    return [
        layer[keys.ADDITIONAL_ENV] for layer in found if layer.get(keys.ADDITIONAL_ENV)
    ]


def _labels(request: Request) -> dict[str, str]:
    labels = {
        keys.CONTROL_PLANE_NS: request.values.control_namespace,
        keys.WORKLOAD_NS: request.namespace,
    }
    if request.origin is Origin.WEBHOOK:
        return {**labels, **request.owner.labels} if request.owner else labels
    own = request.workload.owner_label
    return {**labels, own: request.workload.name} if own else labels


def _facts(values: Values) -> dict[str, str]:
    """Annotations that say what a pod was injected with."""
    return {
        keys.PROXY_VERSION: values.proxy_version,
        keys.TRUST_ROOT_SHA256: values.trust_root_sha256,
    }


class _Rendered(TypedDict):
    volumes_first: Sequence[Object]
    init: Object
    init_at: str
    volumes: Sequence[Object]
    proxy: Object
    proxy_at: str


def _rendered(
    workload: Workload, values: Values, annotations: Mapping[str, str]
) -> _Rendered:
    """Containers and volumes, and where they go."""
    own, pod = values.proxy, containers.from_pod(workload)
    variables = environment(values, opaque.inbound_ports(workload), annotations)
    if own.native_sidecar:
        init_at, proxy_at = "initContainers/0", "initContainers/1"
    else:
        init_at = "initContainers/-"
        proxy_at = "containers/0" if own.wait else "containers/-"
    cni = values.cni_enabled
    return {
        "volumes_first": () if cni else (volumes.xtables(values.init.mount_name),),
        "init": containers.validator(values) if cni else containers.init(values, pod),
        "init_at": init_at,
        "volumes": [
            volumes.identity(),
            *([volumes.podinfo()] if own.tracing else []),
            *([volumes.token()] if values.token_projection else []),
        ],
        "proxy": containers.proxy(values, pod, variables),
        "proxy_at": proxy_at,
    }
