"""Who owns a pod: the workload whose name its label and its events carry."""

from __future__ import annotations

from dataclasses import dataclass

from proxyinit.inject.annotations import OWNER_PREFIX
from proxyinit.inject.workload import Object, mapping, objects

POD = "pod"
LABELLED = (
    *("deployment", "replicationcontroller", "replicaset", "job", "daemonset"),
    "statefulset",
)
"""Kinds whose pods are labelled; the pods of a CronJob are its Jobs'."""
KNOWN = (POD, "cronjob", *LABELLED)
"""Kinds that are counted by name; owners of other kinds are counted together."""
OWNED = {"replicaset": "apps", "job": "batch"}
"""Kinds that others may stand behind, with their API groups."""

_ABOVE_REPLICASETS = ("job", "statefulset", "daemonset", "deployment")


@dataclass(frozen=True, slots=True)
class Owner:
    """The kind, in lower case, and the name of an object in the pod's namespace.

    `reference` is how another object names it, with its uid; empty for pods.
    """

    kind: str
    name: str
    reference: Object | None = None

    @property
    def labels(self) -> dict[str, str]:
        """What a pod of this owner is labelled with."""
        if self.kind not in LABELLED:
            return {}
        return {f"{OWNER_PREFIX}{self.kind}": self.name}

    @property
    def counted_as(self) -> str:
        """The kind in metrics."""
        return self.kind if self.kind in KNOWN else ""


def direct(pod: Object) -> Owner | None:
    """The one owner that an object names; None if there are none, or several."""
    references = objects(mapping(pod, "metadata"), "ownerReferences")
    if len(references) != 1:
        return None
    (reference,) = references
    kind, name = reference.get("kind"), reference.get("name")
    return Owner(str(kind).lower(), str(name), reference) if kind and name else None


def has_above(owner: Owner) -> bool:
    """Whether something else may stand behind an owner."""
    if owner.reference is None or owner.kind not in OWNED:
        return False
    group = str(owner.reference.get("apiVersion", "")).partition("/")[0]
    return group == OWNED[owner.kind]


def above(owner: Owner, found: Object) -> Owner:
    """Who stands behind a ReplicaSet or a Job, as far as that is a workload too."""
    over = direct(found)
    if over is None:
        return owner
    if owner.kind == "replicaset" and over.kind not in _ABOVE_REPLICASETS:
        return owner
    return over
