"""Objects of Kubernetes that hold pods: where the pod is, and what is in it.

Nothing here changes an object, and nothing else needs to know where a CronJob has
its pod. Fields that are missing, null or empty are all the same; fields of another
type than Kubernetes gives them are `Malformed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from proxyinit.inject.annotations import OWNER_PREFIX, texts
from proxyinit.inject.errors import Malformed

Object = Mapping[str, Any]

_TEMPLATES = {
    "pod": (),
    "deployment": ("spec", "template"),
    "replicaset": ("spec", "template"),
    "replicationcontroller": ("spec", "template"),
    "daemonset": ("spec", "template"),
    "statefulset": ("spec", "template"),
    "job": ("spec", "template"),
    "cronjob": ("spec", "jobTemplate", "spec", "template"),
}
"""The way from an object to its pod; kinds are compared without case."""

_ANNOTATED_ONLY = ("namespace", "service")


@dataclass(frozen=True, slots=True)
class Workload:
    """An object, and the pod template in it.

    `kind` is as the object spells it. `template` is None for kinds without pods.
    `prefix` is the template's JSON pointer. `annotations` and `labels` are the
    template's, `top_annotations` and `top_labels` the object's own.
    """

    kind: str
    name: str
    namespace: str
    document: Object = field(repr=False)
    template: Object | None = field(repr=False)
    prefix: str
    annotations: Mapping[str, str] = field(repr=False)
    labels: Mapping[str, str] = field(repr=False)
    containers: tuple[Object, ...] = field(repr=False)
    init_containers: tuple[Object, ...] = field(repr=False)

    @property
    def spec(self) -> Object:
        """The pod's spec, empty if there is none."""
        return {} if self.template is None else mapping(self.template, "spec")

    @property
    def metadata(self) -> Object:
        """The pod template's metadata, empty if there is none."""
        return {} if self.template is None else mapping(self.template, "metadata")

    @property
    def top_metadata(self) -> Object:
        """The object's own metadata; for a Pod the same as `metadata`."""
        return mapping(self.document, "metadata")

    @property
    def top_annotations(self) -> dict[str, str]:
        """The object's own annotations."""
        return texts(mapping(self.top_metadata, "annotations"))

    @property
    def top_labels(self) -> dict[str, str]:
        """The object's own labels."""
        return texts(mapping(self.top_metadata, "labels"))

    @property
    def all_containers(self) -> tuple[Object, ...]:
        """Init containers, then regular ones."""
        return self.init_containers + self.containers

    @property
    def resource_name(self) -> str:
        """How logs and reports call it: ``deployment/web``."""
        return f"{self.kind.lower()}/{self.name}"

    @property
    def owner_label(self) -> str:
        """The label that names the workload on its pods; empty for bare pods."""
        kind = self.kind.lower()
        owns = self.template is not None and kind != "pod"
        return OWNER_PREFIX + kind if owns else ""


def is_annotatable(kind: str) -> bool:
    """Whether a manifest of this kind is ever changed."""
    return kind.lower() in _TEMPLATES or kind.lower() in _ANNOTATED_ONLY


def read(document: Object, kind: str = "") -> Workload:
    """The workload in an object; `kind` is for objects that don't say theirs.

    A pod that has no name yet goes by its generateName. Raises `Malformed`.
    """
    kind = str(document.get("kind") or kind)
    metadata = mapping(document, "metadata")
    path = _TEMPLATES.get(kind.lower())
    template = None if path is None else _template(document, path, kind)
    spec = {} if template is None else mapping(template, "spec")
    own = {} if template is None else mapping(template, "metadata")
    return Workload(
        kind=kind,
        name=str(metadata.get("name") or metadata.get("generateName") or ""),
        namespace=str(metadata.get("namespace") or ""),
        document=document,
        template=template,
        prefix="".join(f"/{step}" for step in path or ()),
        annotations=texts(mapping(own, "annotations")),
        labels=texts(mapping(own, "labels")),
        containers=objects(spec, "containers"),
        init_containers=objects(spec, "initContainers"),
    )


def _template(document: Object, path: tuple[str, ...], kind: str) -> Object:
    found = document
    for step in path:
        found = mapping(found, step)
    if path and not found:
        raise Malformed(f"{kind} without {'.'.join(path)}: expected a pod template")
    return found


def mapping(value: Object, key: str) -> Object:
    """A field that holds an object; empty when it is missing. Raises `Malformed`."""
    found = value.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict):  # what JSON and YAML make; Mapping takes longer
        raise Malformed(f"expected an object as {key!r}, got {_shown(found)}")
    return found


def objects(value: Object, key: str) -> tuple[Object, ...]:
    """A field that holds a list of objects; nulls in it are left out, as Go does.

    Raises `Malformed`.
    """
    found = value.get(key)
    if found is None:
        return ()
    if not isinstance(found, list):
        raise Malformed(f"expected a list as {key!r}, got {_shown(found)}")
    for item in found:
        if item is not None and not isinstance(item, dict):
            raise Malformed(f"expected objects in {key!r}, got {_shown(item)}")
    return tuple(item for item in found if item is not None)


def _shown(value: object) -> str:
    said = repr(value)
    return said if len(said) <= 60 else f"{said[:60]}..."
