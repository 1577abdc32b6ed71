"""Of a pod, all that shapes its containers; and the operations that follow from it.

Replicas of one workload, and many workloads of one namespace, have the same recipe:
whoever injects many pods renders it once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import orjson

from proxyinit.inject import annotations as keys
from proxyinit.inject import (
    containers,
    init_container,
    opaque,
    patch,
    proxy_container,
    volumes,
)
from proxyinit.inject.containers import FromPod
from proxyinit.inject.env import environment
from proxyinit.inject.overrides import SHAPING, overridden, wants_debug
from proxyinit.inject.patch import Operation
from proxyinit.inject.values import Values
from proxyinit.inject.workload import Object, Workload, objects

Pairs = tuple[tuple[str, str], ...]


class Recipe(NamedTuple):
    """What a pod's containers depend on; hashable, and without the pod's names.

    `prefix` is the pod template's JSON pointer. `annotations` are those that are read,
    `env_layers` the texts of additional variables. `lenient` leaves out what can't be
    rendered. `no_volumes` and its like say that there are none yet.
    """

    prefix: str
    annotations: Pairs
    env_layers: tuple[str, ...]
    debug: str | None
    named_ports: tuple[tuple[str, int], ...]
    inbound_ports: str
    pod: FromPod
    no_volumes: bool
    no_init_containers: bool
    no_containers: bool
    lenient: bool


@dataclass(frozen=True)
class Rendered:
    """Operations on a pod's spec, the annotations that tell of them, and warnings."""

    operations: tuple[Operation, ...]
    facts: Mapping[str, str]
    warnings: tuple[str, ...]

    @cached_property
    def json(self) -> bytes:
        """The operations as JSON, without the brackets around them."""
        return orjson.dumps(self.operations)[1:-1]


def recipe(
    workload: Workload,
    annotations: Mapping[str, str],
    env_layers: Sequence[str],
    debug: str | None,
    *,
    lenient: bool,
) -> Recipe:
    """The recipe of a workload, with the annotations that count for it.

    Raises `Malformed`.
    """
    shaping = [
        item
        for item in annotations.items()
        if item[0] in SHAPING or item[0].startswith(keys.TRACE_ATTRIBUTE)
    ]
    named = opaque.named_ports(workload) if keys.OPAQUE_PORTS in annotations else {}
    spec = workload.spec
    objects(spec, "volumes")  # raises where it is no list of them
    return Recipe(
        prefix=workload.prefix,
        annotations=tuple(sorted(shaping)),
        env_layers=tuple(env_layers),
        debug=debug,
        named_ports=tuple(named.items()),
        inbound_ports=opaque.inbound_ports(workload),
        pod=containers.from_pod(workload),
        no_volumes=not spec.get("volumes"),
        no_init_containers=not spec.get("initContainers"),
        no_containers=spec.get("containers") is None,
        lenient=lenient,
    )


def render(values: Values, made: Recipe) -> Rendered:
    """Follow a recipe. Raises `Unrenderable`."""
    annotations = dict(made.annotations)
    found = overridden(
        values,
        annotations,
        dict(made.named_ports),
        made.env_layers,
        lenient=made.lenient,
    )
    has_debug, debug_warnings = wants_debug(made.debug)
    variables = environment(found.values, made.inbound_ports, annotations)
    operations = patch.inject(_additions(found.values, made, variables, has_debug))
    facts = {
        keys.PROXY_VERSION: found.values.proxy_version,
        keys.TRUST_ROOT_SHA256: values.trust_root_sha256,
    }
    return Rendered(tuple(operations), facts, found.warnings + debug_warnings)


def _additions(
    values: Values,
    made: Recipe,
    variables: list[dict[str, object]],
    has_debug: bool,  # noqa: FBT001  (an answer of `wants_debug`)
) -> patch.Additions:
    """Containers and volumes, and where they go."""
    own, cni = values.proxy, values.cni_enabled
    if own.native_sidecar:
        init_at, proxy_at = "initContainers/0", "initContainers/1"
    else:
        init_at = "initContainers/-"
        proxy_at = "containers/0" if own.wait else "containers/-"
    joins = has_debug or not own.native_sidecar
    init: Object = (
        containers.validator(values) if cni else init_container.init(values, made.pod)
    )
    return patch.Additions(
        at=f"{made.prefix}/spec",
        no_volumes=made.no_volumes,
        no_init_containers=made.no_init_containers,
        no_containers=made.no_containers and joins,
        volumes_first=() if cni else (volumes.xtables(values.init.mount_name),),
        init=init,
        init_at=init_at,
        debug=containers.debug(values) if has_debug else None,
        volumes=[
            volumes.identity(),
            *([volumes.podinfo()] if own.tracing else []),
            *([volumes.token()] if values.token_projection else []),
        ],
        proxy=proxy_container.proxy(values, made.pod, variables),
        proxy_at=proxy_at,
    )
