"""What becomes of one object that is about to be made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import orjson

from proxyinit.inject import opaque, patch
from proxyinit.inject.annotations import OPAQUE_PORTS
from proxyinit.inject.decision import Decision, Origin, decide
from proxyinit.inject.injection import Render, Request, inject
from proxyinit.inject.owner import Owner
from proxyinit.inject.recipe import render
from proxyinit.inject.values import Values
from proxyinit.inject.workload import Workload


class Fate(Enum):
    """What is done: containers added, an annotation added, or nothing."""

    INJECTED = "injected"
    ANNOTATED = "annotated"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the cluster knows about the object's surroundings."""

    values: Values
    namespace: str
    ns_annotations: Mapping[str, str]
    owner: Owner | None
    creator: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The patch to answer with in JSON, why, and what to tell whoever made the object.

    Without a patch the object is made as it is.
    """

    fate: Fate
    decision: Decision
    patch: bytes | None
    warnings: tuple[str, ...] = ()


def judge(workload: Workload, known: Known, render: Render = render) -> Outcome:
    """Decide on an object, and make its patch. Raises `Unrenderable`, `Malformed`.

    Pods that are not injected, and Services, get the opaque ports of their namespace
    or those that are opaque by default: clients in the mesh go by them.
    """
    namespace = known.ns_annotations
    decision = decide(workload, known.values, Origin.WEBHOOK, namespace)
    if decision.injects:
        injected = inject(_request(workload, known), render)
        return Outcome(Fate.INJECTED, decision, injected.json, injected.warnings)
    ports = _opaque_ports(workload, known)
    if ports:
        operations = patch.opaque_ports(workload.document, ports)
        return Outcome(Fate.ANNOTATED, decision, orjson.dumps(operations))
    return Outcome(Fate.SKIPPED, decision, None)


def _request(workload: Workload, known: Known) -> Request:
    return Request(
        workload=workload,
        values=known.values,
        origin=Origin.WEBHOOK,
        namespace=known.namespace,
        creator=known.creator,
        owner=known.owner,
        ns_annotations=known.ns_annotations,
    )


def _opaque_ports(workload: Workload, known: Known) -> str:
    service = workload.kind.lower() == "service"
    if workload.template is None and not service:
        return ""
    if OPAQUE_PORTS in workload.top_annotations:
        return ""
    if OPAQUE_PORTS in known.ns_annotations:
        return known.ns_annotations[OPAQUE_PORTS]
    if service:
        return opaque.default_for_service(workload.document, known.values)
    return opaque.default_for_pod(workload, known.values)
