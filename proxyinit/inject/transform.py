"""What the command line does to one object: values in, the changed object out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from proxyinit.inject import annotations as keys
from proxyinit.inject import patch
from proxyinit.inject.decision import Decision, Origin, Reason, decide
from proxyinit.inject.errors import Unrenderable
from proxyinit.inject.injection import Request, inject
from proxyinit.inject.recipe import Recipe, Rendered, render
from proxyinit.inject.report import Outcome
from proxyinit.inject.uninject import uninject
from proxyinit.inject.values import Values
from proxyinit.inject.workload import Workload, is_annotatable, read

Transform = Callable[[Mapping[str, Any]], Outcome]
"""From an object of a supported kind to what became of it."""

MOST_KNOWN = 64
NEEDS_MANUAL = "--manual must be set when injecting control plane components"


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """How to inject: the values, flags included, and the annotations flags mean.

    `manual` renders containers; otherwise objects are annotated for the webhook.
    `creator` is the text of ``created-by``. `opaque_ports` is None unless the flag
    was given, and goes to Services as well. `known` are containers of earlier pods.
    """

    values: Values
    overrides: Mapping[str, str] = field(default_factory=dict)
    manual: bool = False
    creator: str = ""
    opaque_ports: str | None = None
    known: dict[Recipe, Rendered] = field(default_factory=dict, repr=False)

    def __call__(self, document: Mapping[str, Any]) -> Outcome:
        """Inject, or annotate, one object. Raises `Malformed`."""
        workload = read(document)
        kind, name = workload.kind, workload.name
        try:
            return self._outcome(workload)
        except Unrenderable as error:
            told = f"failed to inject {kind.lower()}/{name}: {error}"
            return Outcome(kind=kind, name=name, error=told)

    def _outcome(self, workload: Workload) -> Outcome:
        kind, name = workload.kind, workload.name
        controls = keys.CONTROL_PLANE_COMPONENT in workload.labels
        if controls and not self.manual:
            return Outcome(kind=kind, name=name, error=NEEDS_MANUAL)
        clean, _ = uninject(
            workload.document,
            workload.prefix,
            has_pod=workload.template is not None,
            keeps_ingress=True,
        )
        workload = read(clean)
        if workload.template is None:
            return self._annotated(workload)
        decision = decide(workload, self.values, Origin.CLI)
        if not decision.injects:
            return _refused(workload, decision)
        changed, advice = self._injected(workload)
        return Outcome(
            kind=kind,
            name=name,
            status="injected",
            changed=changed,
            usable=True,
            udp=decision.udp,
            advice=advice,
        )

    def _injected(
        self, workload: Workload
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        if not self.manual:
            operations = patch.annotate(workload, self._marks(workload))
            return patch.apply(workload.document, operations), ()
        request = Request(
            workload=_as_named(self._flags_win(workload)),
            values=self.values,
            origin=Origin.CLI,
            namespace=workload.namespace,
            creator=self.creator,
            overrides=self.overrides,
        )
        found = inject(request, self._rendered)
        return patch.apply(workload.document, found.operations), found.warnings

    def _rendered(self, values: Values, made: Recipe) -> Rendered:
        """Follow a recipe; pods with the same one share what comes of it."""
        if made not in self.known:
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            rendered = render(values, made)
            operations = tuple(map(_for_people, rendered.operations))
            self.known[made] = replace(rendered, operations=operations)
        return self.known[made]

    def _flags_win(self, workload: Workload) -> Workload:
        """A workload without annotations that flags will write anew.

        Otherwise the containers would follow the old ones, and the next injection
        the new: applied twice it would not be as applied once.
        """
        written = [key for key in workload.annotations if key in self.overrides]
        if not written:
            return workload
        own = {k: v for k, v in workload.annotations.items() if k not in written}
        return replace(workload, annotations=own)

    def _annotated(self, workload: Workload) -> Outcome:
        """Namespaces pass on to their pods; Services have opaque ports alone."""
        document: Mapping[str, Any] = workload.document
        if workload.kind.lower() == "namespace":
            marks = {keys.INJECT: keys.ENABLED, **self.overrides}
        elif self.opaque_ports is not None:
            marks = {keys.OPAQUE_PORTS: self.opaque_ports}
        else:
            marks = {}
        if marks:
            metadata = document.get("metadata") or {}
            annotations = {
                **(metadata.get("annotations") or {}),
                **dict(sorted(marks.items())),
            }
            document = {
                **document,
                "metadata": {**metadata, "annotations": annotations},
            }
        return Outcome(
            kind=workload.kind,
            name=workload.name,
            status="annotated" if marks else "skipped",
            changed=document,
            usable=True,
        )

    def _marks(self, workload: Workload) -> dict[str, str]:
        """Annotations for the webhook; ingress mode is a way to enable, and stays."""
        if workload.annotations.get(keys.INJECT) == keys.INGRESS:
            return dict(self.overrides)
        return {keys.INJECT: keys.ENABLED, **self.overrides}


def _as_named(workload: Workload) -> Workload:
    """A workload without the name that it has yet to get.

    What generateName begins with is no value of a label: ``job-`` would be refused.
    """
    named = workload.top_metadata.get("name")
    return workload if named else replace(workload, name="")


def _refused(workload: Workload, decision: Decision) -> Outcome:
    """A pod that can't be injected: an error, unless its author wants none of it."""
    disabled = Reason.DISABLED in decision.reasons
    told = ", ".join(reason.text for reason in decision.reasons)
    return Outcome(
        kind=workload.kind,
        name=workload.name,
        changed=workload.document,
        usable=True,
        host_network=Reason.HOST_NETWORK in decision.reasons,
        sidecar=Reason.SIDECAR in decision.reasons,
        disabled=disabled,
        udp=decision.udp,
        no_token=Reason.AUTOMOUNT in decision.reasons,
        error="" if disabled else f"failed to inject {workload.resource_name}: {told}",
    )


def removal(document: Mapping[str, Any]) -> Outcome:
    """Uninject one object."""
    workload = read(document)
    changed, removed = uninject(
        document, workload.prefix, has_pod=workload.template is not None
    )
    return Outcome(
        kind=workload.kind,
        name=workload.name,
        status="uninjected" if removed else "skipped",
        changed=changed,
        usable=is_annotatable(workload.kind),
    )


def _for_people(operation: patch.Operation) -> patch.Operation:
    """An operation whose container is as people write them: name first, no nulls."""
    value = operation["value"]
    if not isinstance(value, dict):
        return operation
    found = {key: item for key, item in value.items() if item is not None}
    if "name" in found:
        found = {"name": found["name"], **found}
    return {**operation, "value": found}
