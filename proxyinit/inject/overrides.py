"""What annotations change in the chart's values.

A value that can't be read changes nothing and is told as a warning; it never stops a
pod. The lists that upstream passes on as they are, are passed on as they are, with a
warning if proxy-init will refuse them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proxyinit.inject import annotations as keys
from proxyinit.inject import opaque, typed
from proxyinit.inject.override_table import TABLE, Override
from proxyinit.inject.values import HTTP_HEADER_LOGS, NEEDS_ROOT, Values
from proxyinit.pflag import parse_bool

Env = Mapping[str, Any]
Changes = dict[str, Any]


SHAPING = frozenset(
    (
        *(override.key for override in TABLE),
        *keys.NATIVE_SIDECAR,
        *(keys.INJECT, keys.OPAQUE_PORTS, keys.CLOSE_WAIT, keys.LOG_HTTP_HEADERS),
    )
)
"""The annotations that `overridden` looks at."""


@dataclass(frozen=True, slots=True)
class Overridden:
    """Values after annotations, and what could not be made of these."""

    values: Values
    warnings: tuple[str, ...]


class _Reader:
    """Collects changes by section, and warnings."""

    def __init__(self, annotations: Mapping[str, str]) -> None:
        self.annotations = annotations
        self.changes: dict[str, Changes] = {"proxy": {}, "init": {}, "debug": {}}
        self.warnings: list[str] = []

    def read(self, override: Override) -> None:
        """Take an annotation that is there."""
        value = self.annotations[override.key]
        try:
            parsed = override.parse(value)
        except ValueError as error:
            self.warn(override.key, value, str(error), taken=override.raw)
            if not override.raw:
                return
            parsed = value
        self.changes[override.section][override.field] = parsed

    def warn(self, key: str, value: str, why: str, *, taken: bool = False) -> None:
        """Tell the person who typed it."""
        what = "proxy-init may refuse it" if taken else "ignored"
        self.warnings.append(f"{key}: {why}, got {_shown(value)}: {what}")


def overridden(
    values: Values,
    annotations: Mapping[str, str],
    named_ports: Mapping[str, int],
    env_layers: Sequence[str] = (),
    *,
    lenient: bool = True,
) -> Overridden:
    """The values that a pod with these annotations gets.

    `named_ports` are the pod's own, for opaque ports. `env_layers` are texts of
    ``proxy-additional-env`` from the least to the most important. Without `lenient`,
    what no container could be rendered with is taken all the same, and rendering will
    refuse it.
    """
    reader = _Reader(annotations)
    for override in TABLE:
        if override.key in annotations:
            reader.read(override)
    _read_cores(reader)
    _read_native_sidecar(reader)
    _read_header_log(reader, lenient=lenient)
    _read_close_wait(reader, lenient=lenient and not values.init.run_as_root)
    if keys.OPAQUE_PORTS in annotations:
        ports, mistakes = opaque.parse(annotations[keys.OPAQUE_PORTS], named_ports)
        reader.changes["proxy"]["opaque_ports"] = ports
        for item, why in mistakes:
            reader.warn(keys.OPAQUE_PORTS, item, why)
    if annotations.get(keys.INJECT) == keys.INGRESS:
        reader.changes["proxy"]["ingress"] = True
    if env_layers:
        env = _merged_env(values.proxy.additional_env, env_layers, reader)
        reader.changes["proxy"]["additional_env"] = env
    return Overridden(_changed(values, reader.changes), tuple(reader.warnings))


def wants_debug(value: str | None) -> tuple[bool, tuple[str, ...]]:
    """Whether an annotation asks for the debug container; a warning if nobody knows."""
    if value is None:
        return False, ()
    try:
        return parse_bool(value), ()
    except ValueError as error:
        return False, (f"{keys.DEBUG}: {error}, got {_shown(value)}: ignored",)


def _changed(values: Values, changes: Mapping[str, Changes]) -> Values:
    sections = {
        name: replace(getattr(values, name), **found)
        for name, found in changes.items()
        if found
    }
    return replace(values, **sections) if sections else values


def _read_cores(reader: _Reader) -> None:
    """CPU requests and limits bound the proxy's threads as well."""
    proxy = reader.changes["proxy"]
    for quantity, workers in (
        ("cpu_request", "workers_minimum"),
        ("cpu_limit", "workers_maximum"),
    ):
        if quantity in proxy:
            proxy[workers] = typed.whole_cores(proxy[quantity])


def _read_native_sidecar(reader: _Reader) -> None:
    for key in keys.NATIVE_SIDECAR:
        if key in reader.annotations:
            reader.read(Override(key, "proxy", "native_sidecar", parse_bool))
            return


def _read_header_log(reader: _Reader, *, lenient: bool) -> None:
    if keys.LOG_HTTP_HEADERS in reader.annotations:
        parse = typed.one_of(*HTTP_HEADER_LOGS) if lenient else str
        reader.read(Override(keys.LOG_HTTP_HEADERS, "proxy", "log_http_headers", parse))


def _read_close_wait(reader: _Reader, *, lenient: bool) -> None:
    """Take the timeout; with `lenient` nothing but "none" can be had."""
    value = reader.annotations.get(keys.CLOSE_WAIT, "")
    if not value:
        return
    try:
        seconds = typed.span_ns(value) // 10**9
    except ValueError as error:
        reader.warn(keys.CLOSE_WAIT, value, str(error))
        return
    if seconds > 0 and lenient:
        reader.warn(keys.CLOSE_WAIT, value, NEEDS_ROOT)
        return
    reader.changes["init"]["close_wait_s"] = seconds


def _merged_env(
    base: Sequence[Env], layers: Sequence[str], reader: _Reader
) -> tuple[Env, ...]:
    """Variables of all layers; a later one takes the place of its namesake."""
    merged = {str(item.get("name")): item for item in base}
    for layer in layers:
        try:
            found = json.loads(layer)
        except (ValueError, RecursionError):
            found = None
        if not _is_env(found):
            why = "expected a JSON array of variables with names"
            reader.warn(keys.ADDITIONAL_ENV, layer, why)
            continue
        merged |= {item["name"]: item for item in found}
    return tuple(merged.values())


def _is_env(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, dict) and isinstance(item.get("name"), str) and item["name"]
        for item in value
    )


def _shown(value: str) -> str:
    said = repr(value)
    return said if len(said) <= 80 else f"{said[:80]}..."
