"""Who owns a pod: the workload whose name its label and its events carry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from proxyinit.inject.annotations import OWNER_PREFIX
from proxyinit.inject.workload import Object, mapping, objects

POD, REPLICASET, JOB = "pod", "replicaset", "job"
LABELLED = (
    *("deployment", "replicationcontroller", "replicaset", "job", "daemonset"),
    "statefulset",
)
"""Kinds whose pods are labelled; the pods of a CronJob are its Jobs'."""

_ABOVE_REPLICASETS = ("job", "statefulset", "daemonset", "deployment")


@dataclass(frozen=True, slots=True)
class Owner:
    """The kind, in lower case, and the name of an object in the pod's namespace."""

    kind: str
    name: str

    @property
    def labels(self) -> dict[str, str]:
        """What a pod of this owner is labelled with."""
        if self.kind not in LABELLED:
            return {}
        return {f"{OWNER_PREFIX}{self.kind}": self.name}


Lookup = Callable[[str, str], Object | None]
"""An object of a kind, by name; None when nobody knows it."""


def resolve(pod: Object, name: str, lookup: Lookup) -> Owner:
    """The owner of a pod; the pod itself unless it has exactly one.

    A ReplicaSet stands for what made it, a Job too; anything else for itself.
    """
    direct = only_owner(pod)
    if direct is None:
        return Owner(POD, name)
    if direct.kind not in (REPLICASET, JOB):
        return direct
    above = only_owner(lookup(direct.kind, direct.name) or {})
    if above is None:
        return direct
    if direct.kind == REPLICASET and above.kind not in _ABOVE_REPLICASETS:
        return direct
    return above


def only_owner(document: Mapping[str, Any]) -> Owner | None:
    """The one owner that an object names; None if there are none, or several."""
    references = objects(mapping(document, "metadata"), "ownerReferences")
    if len(references) != 1:
        return None
    (reference,) = references
    kind, name = reference.get("kind"), reference.get("name")
    return Owner(str(kind).lower(), str(name)) if kind and name else None
