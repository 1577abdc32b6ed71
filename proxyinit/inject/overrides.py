"""What annotations change in the chart's values.

A value that can't be read changes nothing and is told as a warning; it never stops a
pod. The lists that upstream passes on as they are, are passed on as they are, with a
warning if proxy-init will refuse them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proxyinit.config import MAX_ID
from proxyinit.inject import annotations as keys
from proxyinit.inject import opaque
from proxyinit.inject.annotations import ALPHA, CONFIG
from proxyinit.inject.values import (
    HTTP_HEADER_LOGS,
    INBOUND_POLICIES,
    NEEDS_ROOT,
    Values,
)
from proxyinit.pflag import parse_bool

Env = Mapping[str, Any]
Changes = dict[str, Any]


def _port(value: str) -> int:
    number = keys.parse_integer(value, 32)
    if not 0 < number < 65536:
        raise ValueError("expected a port from 1 to 65535")
    return number


def _uid(value: str) -> int:
    return _at_most(MAX_ID, _whole(value))


def _gid(value: str) -> int:
    """A group; any number below 0 means none."""
    return _at_most(MAX_ID, keys.parse_integer(value, 64))


def _at_most(limit: int, number: int) -> int:
    if number > limit:
        raise ValueError(f"expected a number up to {limit}")
    return number


def _whole(value: str) -> int:
    number = keys.parse_integer(value, 64)
    if number < 0 or value.startswith("+"):
        raise ValueError("expected a whole number that is not negative")
    return number


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return value

    return parse


def _enabled(value: str) -> bool:
    return _one_of(keys.ENABLED, keys.DISABLED)(value) == keys.ENABLED


def _quantity(value: str) -> str:
    keys.parse_quantity(value)
    return value


def _milliseconds(value: str) -> str:
    return f"{_span_ns(value) // 10**6}ms"


def _seconds(value: str) -> str:
    return f"{_span_ns(value) // 10**9}s"


def _span_ns(value: str) -> int:
    found = keys.parse_duration_ns(value)
    if found < 0:
        raise ValueError("expected a duration that is not negative")
    return found


def _checked(check: Callable[[str], None]) -> Callable[[str], str]:
    """Read by a check: the text stays as it is."""

    def parse(value: str) -> str:
        if value:
            check(value)
        return value

    return parse


@dataclass(frozen=True, slots=True)
class Override:
    """One annotation: what it sets, how it is read.

    `raw` ones are taken even if they can't be read, as upstream does.
    """

    key: str
    section: str
    field: str
    parse: Callable[[str], Any] = str
    raw: bool = False


_ports = _checked(keys.check_port_list)
_subnets = _checked(keys.check_subnet_list)

TABLE = tuple(
    Override(*row)
    for row in (
        (f"{CONFIG}skip-inbound-ports", "init", "ignore_inbound_ports", _ports, True),
        (f"{CONFIG}skip-outbound-ports", "init", "ignore_outbound_ports", _ports, True),
        (f"{CONFIG}skip-subnets", "init", "skip_subnets", _subnets, True),
        (keys.SKIP_INBOUND_SUBNETS, "init", "skip_inbound_subnets", _subnets),
        (keys.SKIP_OUTBOUND_SUBNETS, "init", "skip_outbound_subnets", _subnets),
        (f"{CONFIG}inbound-port", "proxy", "inbound_port", _port),
        (f"{CONFIG}outbound-port", "proxy", "outbound_port", _port),
        (f"{CONFIG}admin-port", "proxy", "admin_port", _port),
        (f"{CONFIG}control-port", "proxy", "control_port", _port),
        (f"{CONFIG}proxy-uid", "proxy", "uid", _uid),
        (f"{CONFIG}proxy-gid", "proxy", "gid", _gid),
        (f"{CONFIG}proxy-image", "proxy", "image"),
        (f"{CONFIG}proxy-version", "proxy", "version"),
        (f"{CONFIG}image-pull-policy", "proxy", "pull_policy"),
        (f"{CONFIG}proxy-cpu-request", "proxy", "cpu_request", _quantity),
        (f"{CONFIG}proxy-cpu-limit", "proxy", "cpu_limit", _quantity),
        (f"{CONFIG}proxy-memory-request", "proxy", "memory_request", _quantity),
        (f"{CONFIG}proxy-memory-limit", "proxy", "memory_limit", _quantity),
        (
            f"{CONFIG}proxy-ephemeral-storage-request",
            *("proxy", "ephemeral_storage_request", _quantity),
        ),
        (
            f"{CONFIG}proxy-ephemeral-storage-limit",
            *("proxy", "ephemeral_storage_limit", _quantity),
        ),
        (f"{CONFIG}proxy-cpu-ratio-limit", "proxy", "workers_ratio", keys.parse_ratio),
        (f"{CONFIG}proxy-await", "proxy", "wait", _enabled),
        (f"{CONFIG}proxy-log-level", "proxy", "log_level"),
        (f"{CONFIG}proxy-log-format", "proxy", "log_format"),
        (f"{CONFIG}proxy-admin-shutdown", "proxy", "shutdown_endpoint", _enabled),
        (
            f"{CONFIG}proxy-require-identity-inbound-ports",
            *("proxy", "require_identity_ports"),
        ),
        (
            f"{CONFIG}proxy-metrics-hostname-labels",
            *("proxy", "hostname_labels", parse_bool),
        ),
        (
            f"{CONFIG}enable-external-profiles",
            *("proxy", "external_profiles", parse_bool),
        ),
        (f"{CONFIG}enable-gateway", "proxy", "gateway", parse_bool),
        (
            f"{CONFIG}proxy-outbound-connect-timeout",
            *("proxy", "outbound_connect_timeout", _milliseconds),
        ),
        (
            f"{CONFIG}proxy-inbound-connect-timeout",
            *("proxy", "inbound_connect_timeout", _milliseconds),
        ),
        (
            f"{CONFIG}shutdown-grace-period",
            *("proxy", "shutdown_grace_period", _milliseconds),
        ),
        (
            f"{CONFIG}proxy-outbound-discovery-cache-unused-timeout",
            *("proxy", "outbound_discovery_timeout", _seconds),
        ),
        (
            f"{CONFIG}proxy-inbound-discovery-cache-unused-timeout",
            *("proxy", "inbound_discovery_timeout", _seconds),
        ),
        (
            f"{CONFIG}proxy-disable-outbound-protocol-detect-timeout",
            *("proxy", "no_outbound_detect_timeout", parse_bool),
        ),
        (
            f"{CONFIG}proxy-disable-inbound-protocol-detect-timeout",
            *("proxy", "no_inbound_detect_timeout", parse_bool),
        ),
        (
            f"{CONFIG}default-inbound-policy",
            *("proxy", "default_inbound_policy", _one_of(*INBOUND_POLICIES)),
        ),
        (f"{CONFIG}access-log", "proxy", "access_log"),
        (
            f"{ALPHA}proxy-wait-before-exit-seconds",
            "proxy",
            "wait_before_exit_s",
            _whole,
        ),
        (f"{CONFIG}debug-image", "debug", "image"),
        (f"{CONFIG}debug-image-version", "debug", "version"),
        (f"{CONFIG}debug-image-pull-policy", "debug", "pull_policy"),
    )
)
"""Every annotation that sets one value by itself."""

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
            proxy[workers] = keys.whole_cores(proxy[quantity])


def _read_native_sidecar(reader: _Reader) -> None:
    for key in keys.NATIVE_SIDECAR:
        if key in reader.annotations:
            reader.read(Override(key, "proxy", "native_sidecar", parse_bool))
            return


def _read_header_log(reader: _Reader, *, lenient: bool) -> None:
    if keys.LOG_HTTP_HEADERS in reader.annotations:
        parse = _one_of(*HTTP_HEADER_LOGS) if lenient else str
        reader.read(Override(keys.LOG_HTTP_HEADERS, "proxy", "log_http_headers", parse))


def _read_close_wait(reader: _Reader, *, lenient: bool) -> None:
    """Take the timeout; with `lenient` nothing but "none" can be had."""
    value = reader.annotations.get(keys.CLOSE_WAIT, "")
    if not value:
        return
    try:
        seconds = _span_ns(value) // 10**9
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
