"""JSON Patch: what is added to an object, operation by operation.

Every operation is an `add`. Values are JSON values and are never pasted into text,
so quotes, newlines and markup in annotations stay what they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from proxyinit.inject.annotations import OPAQUE_PORTS
from proxyinit.inject.workload import Object, Workload

Operation = dict[str, Any]
"""``{"op": "add", "path": ..., "value": ...}``, in that order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Additions:
    """What a pod's spec gets, which is at the pointer `at`.

    `init` may be the validator; `volumes_first` are in front of it. `init_at` and
    `proxy_at` are places below the spec. Lists that are not there yet are made; a pod
    has containers, unless it is none.
    """

    at: str
    no_volumes: bool
    no_init_containers: bool
    no_containers: bool
    volumes_first: Sequence[Object]
    init: Object
    init_at: str
    debug: Object | None
    volumes: Sequence[Object]
    proxy: Object
    proxy_at: str


def add(path: str, value: Any) -> Operation:
    """One operation."""
    return {"op": "add", "path": path, "value": value}


def inject(additions: Additions) -> list[Operation]:
    """The operations on a pod's spec, in upstream's order."""
    at = additions.at
    operations = []
    if additions.no_volumes:
        operations.append(add(f"{at}/volumes", []))
    if additions.no_init_containers:
        operations.append(add(f"{at}/initContainers", []))
    if additions.no_containers:
        operations.append(add(f"{at}/containers", []))
    operations += [add(f"{at}/volumes/-", item) for item in additions.volumes_first]
    operations.append(add(f"{at}/{additions.init_at}", additions.init))
    if additions.debug is not None:
        operations.append(add(f"{at}/containers/-", additions.debug))
    operations += [add(f"{at}/volumes/-", item) for item in additions.volumes]
    operations.append(add(f"{at}/{additions.proxy_at}", additions.proxy))
    return operations


def mark(
    workload: Workload, annotations: Mapping[str, str], labels: Mapping[str, str]
) -> list[Operation]:
    """The operations on a pod's metadata, which come before those on its spec."""
    at = f"{workload.prefix}/metadata/labels"
    operations = annotate(workload, annotations)
    if not workload.labels:
        operations.append(add(at, {}))
    operations += _entries(at, labels)
    return operations


def annotate(workload: Workload, annotations: Mapping[str, str]) -> list[Operation]:
    """Operations that annotate a pod template and do nothing else."""
    return list(_metadata(workload, annotations)) if annotations else []


def opaque_ports(document: Object, ports: str) -> list[Operation]:
    """Operations that give an object itself its opaque ports."""
    metadata = document.get("metadata")
    at = "/metadata/annotations"
    operations = [add("/metadata", {})] if metadata is None else []
    if not metadata or not metadata.get("annotations"):
        operations.append(add(at, {}))
    return [*operations, add(f"{at}/{escape(OPAQUE_PORTS)}", ports)]


def _metadata(
    workload: Workload, annotations: Mapping[str, str]
) -> Iterator[Operation]:
    at = f"{workload.prefix}/metadata"
    if not any(workload.metadata.values()):
        yield add(at, {})
    if not workload.annotations:
        yield add(f"{at}/annotations", {})
    yield from _entries(f"{at}/annotations", annotations)


def _entries(at: str, entries: Mapping[str, str]) -> Iterator[Operation]:
    """An operation for each key, in the order of their bytes."""
    for key in sorted(entries, key=str.encode):
        yield add(f"{at}/{escape(key)}", entries[key])


@lru_cache(maxsize=1024)
def escape(key: str) -> str:
    """A key as one step of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def apply(document: Object, operations: Sequence[Operation]) -> dict[str, Any]:
    """A document after `add` operations; the one given stays as it was.

    What is not on the way of an operation is shared between the two.
    """
    changed = dict(document)
    owned = {id(changed)}
    for operation in operations:
        _add(changed, operation["path"], operation["value"], owned)
    return changed


def _add(document: dict[str, Any], path: str, value: Any, owned: set[int]) -> None:
    *way, last = map(_unescape, path.split("/")[1:])
    place: Any = document
    for step in way:
        key = int(step) if isinstance(place, list) else step
        if id(place[key]) not in owned:
            place[key] = place[key].copy()
            owned.add(id(place[key]))
        place = place[key]
    if isinstance(place, list):
        place.insert(len(place) if last == "-" else int(last), value)
    else:
        place[last] = value


def _unescape(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")
