"""Flags of `inject`: what they set in the chart's values, what annotation they mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from proxyinit.inject import annotations as keys
from proxyinit.inject import opaque, typed
from proxyinit.inject.override_table import TABLE
from proxyinit.inject.values import INBOUND_POLICIES, Values
from proxyinit.pflag import Flag, parse_bool


@dataclass(frozen=True, slots=True)
class Setting:
    """A flag that sets one value: ``init.ignore_inbound_ports`` and its like."""

    flag: Flag
    section: str
    field: str

    @property
    def key(self) -> str:
        """The annotation that says the same."""
        return _KEYS[self.section, self.field]

    @property
    def is_list(self) -> bool:
        """Whether repeating it adds to it; of others the last one counts."""
        return self.flag.metavar in ("PORTS", "CIDRS")


_KEYS = {(row.section, row.field): row.key for row in TABLE} | {
    ("proxy", "native_sidecar"): keys.NATIVE_SIDECAR[0],
    ("proxy", "opaque_ports"): keys.OPAQUE_PORTS,
}


_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9-]{1,15}")


def namespace(text: str) -> str:
    """A namespace's name. Raises ValueError."""
    if not _NAMESPACE.fullmatch(text):
        raise ValueError("expected a namespace, such as linkerd")
    return text


def _opaque_ports(text: str) -> str:
    """Names are for the pods to have; what can be no name has to be a port."""
    for item, why in opaque.parse(text, {})[1]:
        if not _PORT_NAME.fullmatch(item):
            raise ValueError(f"{why}, got {item!r}")
    return text


_SHORT = {"proxy-version": "v"}
_DEFAULTS: dict[object, object] = {parse_bool: False}

SETTINGS = tuple(
    Setting(
        Flag(name, text, read, _SHORT.get(name, ""), meta, _DEFAULTS.get(read)),
        section, field,
    )
    for name, section, field, meta, read, text in (
        ("proxy-image", "proxy", "image", "NAME", str, "Image of the proxy."),
        ("image-pull-policy", "proxy", "pull_policy", "POLICY",
         typed.one_of("Always", "IfNotPresent", "Never"), "When to pull images."),
        ("inbound-port", "proxy", "inbound_port", "PORT", typed.port,
         "Port that inbound connections are redirected to."),
        ("outbound-port", "proxy", "outbound_port", "PORT", typed.port,
         "Port that outbound connections are redirected to."),
        ("control-port", "proxy", "control_port", "PORT", typed.port,
         "The proxy's control port."),
        ("admin-port", "proxy", "admin_port", "PORT", typed.port,
         "The proxy's port for probes and metrics."),
        ("skip-inbound-ports", "init", "ignore_inbound_ports", "PORTS",
         typed.port_list,
         "Inbound ports that go past the proxy: a comma list with ranges."),
        ("skip-outbound-ports", "init", "ignore_outbound_ports", "PORTS",
         typed.port_list,
         "Outbound ports that go past the proxy: a comma list with ranges."),
        ("skip-subnets", "init", "skip_subnets", "CIDRS", typed.subnet_list,
         "Sources whose connections go past the proxy."),
        ("skip-inbound-subnets", "init", "skip_inbound_subnets", "CIDRS",
         typed.subnet_list,
         "The same, added to --skip-subnets; needs our image."),
        ("skip-outbound-subnets", "init", "skip_outbound_subnets", "CIDRS",
         typed.subnet_list,
         "Destinations that are reached past the proxy; needs our image."),
        ("proxy-uid", "proxy", "uid", "UID", typed.uid, "User that the proxy runs as."),
        ("proxy-gid", "proxy", "gid", "GID", typed.gid,
         "Group that the proxy runs as; below 0: none."),
        ("proxy-log-level", "proxy", "log_level", "LEVEL", str,
         "The proxy's log level."),
        ("proxy-cpu-request", "proxy", "cpu_request", "CPU", typed.quantity,
         "CPU that the proxy asks for."),
        ("proxy-cpu-limit", "proxy", "cpu_limit", "CPU", typed.quantity,
         "CPU that the proxy may use."),
        ("proxy-memory-request", "proxy", "memory_request", "MEMORY", typed.quantity,
         "Memory that the proxy asks for."),
        ("proxy-memory-limit", "proxy", "memory_limit", "MEMORY", typed.quantity,
         "Memory that the proxy may use."),
        ("enable-external-profiles", "proxy", "external_profiles", "", parse_bool,
         "Look up service profiles of names outside the cluster."),
        ("default-inbound-policy", "proxy", "default_inbound_policy", "POLICY",
         typed.one_of(*INBOUND_POLICIES), f"One of {', '.join(INBOUND_POLICIES)}."),
        ("native-sidecar", "proxy", "native_sidecar", "", parse_bool,
         "Run the proxy as an init container that stays."),
        ("wait-before-exit-seconds", "proxy", "wait_before_exit_s", "SECONDS",
         typed.whole, "Let the proxy stay for so long once its pod is to end."),
        ("require-identity-on-inbound-ports", "proxy", "require_identity_ports",
         "PORTS", str, "Ports that take meshed clients only."),
        ("opaque-ports", "proxy", "opaque_ports", "PORTS", _opaque_ports,
         "Ports whose connections the proxy does not look into; on Services too."),
        ("proxy-version", "proxy", "version", "TAG", str,
         "Version of the proxy's image."),
    )
)  # fmt: skip

DEPRECATED = {
    "proxy-memory": "proxy-memory-request",
    "proxy-cpu": "proxy-cpu-request",
}
"""Old spellings, and what they mean."""

REGISTRY = "cr.l5d.io/linkerd"
"""Linkerd's own; as --registry it changes nothing."""


@dataclass(frozen=True, slots=True)
class Flagged:
    """Values with the flags in them, and the annotations that say the same."""

    values: Values
    overrides: dict[str, str]


def flagged(base: Values, given: Mapping[str, Any], *, known: bool) -> Flagged:
    """Apply flags to values: `given` has what was typed, by the flag's name.

    What equals the base needs no annotation; unless the base is not `known` to be
    what the cluster has.
    """
    changes: dict[str, dict[str, Any]] = {}
    overrides = {}
    for setting in SETTINGS:
        if setting.flag.name not in given:
            continue
        value = given[setting.flag.name]
        changes.setdefault(setting.section, {})[setting.field] = value
        equal = getattr(getattr(base, setting.section), setting.field) == value
        if not (equal and known) and not (setting.field == "gid" and value < 0):
            overrides[setting.key] = keys.text(value)
    sections = {
        name: replace(getattr(base, name), **fields) for name, fields in changes.items()
    }
    return Flagged(replace(base, **sections), overrides)


def with_registry(base: Values, registry: str) -> Flagged:
    """Values whose images come from another registry, under the names they have."""
    if registry.rstrip("/") in ("", REGISTRY):
        return Flagged(base, {})
    overrides = {}
    sections = {}
    for section in ("proxy", "init", "debug"):
        found = getattr(base, section)
        if not found.image:
            continue
        image = f"{registry.rstrip('/')}/{found.image.rpartition('/')[2]}"
        sections[section] = replace(found, image=image)
        if (section, "image") in _KEYS and image != found.image:
            overrides[_KEYS[section, "image"]] = image
    return Flagged(replace(base, **sections), overrides)


def duration_text(nanoseconds: int) -> str:
    """A duration as Go writes it: 30s, 1h0m0s, 1.5s, 250ms."""
    sign = "-" if nanoseconds < 0 else ""
    rest = abs(nanoseconds)
    for unit, size in (("ns", 10**3), ("µs", 10**6), ("ms", 10**9)):
        if 0 < rest < size:
            return f"{sign}{_decimal(rest, size // 1000)}{unit}"
    minutes, seconds = divmod(rest, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    said = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{said}{_decimal(seconds, 10**9)}s"


def _decimal(value: int, unit: int) -> str:
    whole, part = divmod(value, unit)
    digits = f"{part:0{len(str(unit)) - 1}d}".rstrip("0") if part else ""
    return f"{whole}.{digits}" if digits else str(whole)
