"""Opaque ports: connections that the proxy passes on without looking into them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from proxyinit.inject.values import Values
from proxyinit.inject.workload import Object, Workload, mapping, objects

MAX_PORT = 65535
Mistake = tuple[str, str]
"""An item that is no port, and what was expected."""


def parse(text: str, named_ports: Mapping[str, int]) -> tuple[str, list[Mistake]]:
    """The ports of a comma list, as numbers and ranges; and the items left out.

    Items are ports, ranges, or names of container ports. One comma may trail.
    """
    ports, mistakes = [], []
    items = text.removesuffix(",").split(",") if text else []
    for item in map(str.strip, items):
        if item in named_ports:
            ports.append(str(named_ports[item]))
            continue
        try:
            ports.append(_port_range(item))
        except ValueError as error:
            mistakes.append((item, str(error)))
    return ",".join(ports), mistakes


def _port_range(item: str) -> str:
    low_text, dash, high_text = item.partition("-")
    low = _number(low_text)
    high = _number(high_text) if dash else low
    if low > high:
        raise ValueError("expected the lower port first")
    return str(low) if low == high else f"{low}-{high}"


def _number(text: str) -> int:
    digits = text.strip()
    readable = digits.isascii() and digits.isdigit() and len(digits) <= 9
    number = int(digits) if readable else -1
    if not 0 <= number <= MAX_PORT:
        raise ValueError("expected a port, a range, or the name of a container port")
    return number


def named_ports(workload: Workload) -> dict[str, int]:
    """The numbers of the pod's container ports that have names."""
    return {
        port["name"]: number
        for port, number in _numbered(workload)
        if isinstance(port.get("name"), str) and port["name"]
    }


def inbound_ports(workload: Workload) -> str:
    """Ports that the pod's containers declare or are probed on, sorted as text.

    Ports that probes name, and probes of other kinds, don't count.
    """
    found = {str(number) for _, number in _numbered(workload)}
    for container in workload.all_containers:
        for probe in ("readinessProbe", "livenessProbe"):
            port = mapping(mapping(container, probe), "httpGet").get("port")
            if isinstance(port, int) and not isinstance(port, bool):
                found.add(str(port))
    return ",".join(sorted(found))


def default_for_pod(workload: Workload, values: Values) -> str:
    """The pod's container ports that are opaque by default; empty when none are."""
    opaque = _default(values)
    ports = [str(number) for _, number in _numbered(workload)]
    return ",".join(port for port in ports if port in opaque)


def default_for_service(service: Object, values: Values) -> str:
    """The service's ports whose targets are opaque by default; empty when none are."""
    opaque = _default(values)
    ports = objects(mapping(service, "spec"), "ports")
    found = [port.get("port") for port in ports if str(_target(port)) in opaque]
    return ",".join(map(str, found))


def _target(port: Object) -> Any:
    """The number that connections go to; None when it goes by a name."""
    target = port.get("targetPort")
    if target in (None, 0, ""):
        return port.get("port")
    return target if isinstance(target, int) else None


def _default(values: Values) -> Sequence[str]:
    return values.proxy.opaque_ports.split(",") if values.proxy.opaque_ports else ()


def _numbered(workload: Workload) -> Iterable[tuple[Object, int]]:
    """Container ports in order, init containers' first, with their numbers."""
    for container in workload.all_containers:
        for port in objects(container, "ports"):
            number = port.get("containerPort")
            if isinstance(number, int) and not isinstance(number, bool) and number:
                yield port, number
