"""Taking out of an object what injection puts in, old releases' additions as well.

What is not taken out is shared with the object given, which stays as it was. Maps
and lists that become empty by it go too: nobody asked for them to be there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxyinit.inject.annotations import (
    CONTROL_PLANE_COMPONENT,
    DISABLED,
    INGRESS,
    INJECT,
)
from proxyinit.inject.names import (
    DEBUG,
    INIT,
    PROXY,
    VALIDATOR,
    VOLUME_IDENTITY,
    VOLUME_PODINFO,
    VOLUME_TOKEN,
    VOLUME_XTABLES,
)
from proxyinit.inject.workload import mapping, objects

OURS = "linkerd.io"
"""What keys of annotations and labels start with that injection owns."""

_ADDED = {
    "initContainers": (INIT, PROXY, VALIDATOR),
    "containers": (PROXY, DEBUG),
    "volumes": (VOLUME_IDENTITY, VOLUME_XTABLES, VOLUME_TOKEN, VOLUME_PODINFO),
}


def uninject(
    document: Mapping[str, Any],
    prefix: str,
    *,
    has_pod: bool,
    keeps_ingress: bool = False,
) -> tuple[Mapping[str, Any], bool]:
    """An object without what was injected; and whether that makes a difference.

    `prefix` is the pod template's JSON pointer. Labels that go make no difference:
    nothing depends on them. `keeps_ingress` is for objects that will be injected
    again: ingress mode is what their author chose, as is ``disabled``. Raises
    `Malformed`.
    """
    kept = (DISABLED, INGRESS) if keeps_ingress else (DISABLED,)
    way = tuple(prefix.split("/")[1:])
    found, dropped = _bare(document, kept)
    if has_pod:
        pod = _at(found, way)
        cleared, removed = _without_containers(pod)
        if way:
            cleared, annotated = _bare(cleared, kept)
            dropped = dropped or annotated
        found = _put(found, way, cleared)
        dropped = dropped or removed
    return found, dropped


def _bare(
    holder: Mapping[str, Any], kept: tuple[str, ...]
) -> tuple[Mapping[str, Any], bool]:
    """An object whose metadata has no keys of ours, except a choice of its author."""
    metadata = mapping(holder, "metadata")
    labels = mapping(metadata, "labels")
    if CONTROL_PLANE_COMPONENT in labels:
        return holder, False
    annotations = mapping(metadata, "annotations")
    stay = {
        key: value
        for key, value in annotations.items()
        if not key.startswith(OURS) or (key == INJECT and value in kept)
    }
    changed = _replaced(metadata, "annotations", stay)
    stay_labels = {k: v for k, v in labels.items() if not k.startswith(OURS)}
    changed = _replaced(changed, "labels", stay_labels)
    if changed is metadata:
        return holder, False
    dropped = len(stay) < len(annotations)
    if not changed:
        return {k: v for k, v in holder.items() if k != "metadata"}, dropped
    return {**holder, "metadata": changed}, dropped


def _without_containers(pod: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """A pod without containers and volumes of ours; and whether a container went."""
    spec = mapping(pod, "spec")
    changed, removed = spec, False
    for field, names in _ADDED.items():
        objects(spec, field)  # raises where it is no list of them
        items = spec.get(field) or []
        stay = [item for item in items if not _named(item, names)]
        removed = removed or (len(stay) < len(items) and field != "volumes")
        changed = _replaced(changed, field, stay)
    return (pod if changed is spec else {**pod, "spec": changed}), removed


def _named(item: Any, names: tuple[str, ...]) -> bool:
    return isinstance(item, Mapping) and item.get("name") in names


def _replaced(holder: Mapping[str, Any], key: str, value: Any) -> Mapping[str, Any]:
    """A map with less in one of its values; the same map if there is nothing less."""
    if len(value) == len(holder.get(key) or ()):
        return holder
    if value:
        return {**holder, key: value}
    return {name: item for name, item in holder.items() if name != key}


def _at(found: Mapping[str, Any], way: tuple[str, ...]) -> Mapping[str, Any]:
    for step in way:
        found = found[step]
    return found


def _put(
    holder: Mapping[str, Any], way: tuple[str, ...], value: Mapping[str, Any]
) -> Mapping[str, Any]:
    if not way:
        return value
    inner = _put(holder[way[0]], way[1:], value)
    return holder if inner is holder[way[0]] else {**holder, way[0]: inner}
