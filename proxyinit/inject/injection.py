"""From a workload and what is known about it to the patch that injects it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import orjson

from proxyinit.inject import annotations as keys
from proxyinit.inject import opaque, patch
from proxyinit.inject.decision import Origin
from proxyinit.inject.errors import Malformed
from proxyinit.inject.owner import Owner
from proxyinit.inject.patch import Operation
from proxyinit.inject.recipe import Recipe, Rendered, recipe, render
from proxyinit.inject.values import Values
from proxyinit.inject.workload import Workload

LONGEST_LABEL = 63
"""Characters of a label's value; a pod with a longer one would be refused."""


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
    """The patch: operations on metadata, then those on the spec.

    `warnings` say what of the annotations could not be followed.
    """

    marks: list[Operation]
    rendered: Rendered
    warnings: tuple[str, ...]

    @property
    def operations(self) -> list[Operation]:
        """All of the patch."""
        return [*self.marks, *self.rendered.operations]

    @property
    def json(self) -> bytes:
        """The patch as JSON."""
        return b"%b,%b]" % (orjson.dumps(self.marks)[:-1], self.rendered.json)


Render = Callable[[Values, Recipe], Rendered]


def inject(request: Request, render: Render = render) -> Injected:
    """Inject a workload. Raises `Unrenderable` and `Malformed`.

    In the webhook nothing that annotations ask for is refused: what can't be had is
    left out, with a warning. On the command line it is an error, as with upstream.
    """
    workload = request.workload
    if workload.template is None or workload.template.get("spec") is None:
        raise Malformed("expected a pod's spec, found none")
    extra = extra_annotations(request)
    made = recipe(
        workload,
        _annotations_read(request, extra),
        _env_layers(request),
        extra.get(keys.DEBUG, workload.annotations.get(keys.DEBUG)),
        lenient=request.origin is Origin.WEBHOOK,
    )
    rendered = render(request.values, made)
    labels = _labels(request)
    warnings = [*rendered.warnings]
    for key in [key for key, value in labels.items() if len(value) > LONGEST_LABEL]:
        what = f"more than {LONGEST_LABEL} characters in {labels.pop(key)!r}"
        warnings.append(f"{key}: {what}: left out")
    marks = patch.mark(workload, extra | dict(rendered.facts), labels)
    return Injected(marks, rendered, tuple(warnings))


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
    A Pod has but one set.
    """
    workload = request.workload
    below: Mapping[str, str] = {}
    if request.origin is Origin.WEBHOOK:
        below = request.ns_annotations
    elif workload.prefix:
        below = workload.top_annotations
    found = (below, workload.annotations)
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
