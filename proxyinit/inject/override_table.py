"""Annotations that set one value of the chart each: which, and how they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from proxyinit.inject import annotations as keys
from proxyinit.inject import typed
from proxyinit.inject.annotations import ALPHA, CONFIG
from proxyinit.inject.values import INBOUND_POLICIES
from proxyinit.pflag import parse_bool


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


TABLE = tuple(
    Override(*row)
    for row in (
        (
            f"{CONFIG}skip-inbound-ports",
            "init",
            "ignore_inbound_ports",
            typed.port_list,
            True,
        ),
        (
            f"{CONFIG}skip-outbound-ports",
            "init",
            "ignore_outbound_ports",
            typed.port_list,
            True,
        ),
        (f"{CONFIG}skip-subnets", "init", "skip_subnets", typed.subnet_list, True),
        (keys.SKIP_INBOUND_SUBNETS, "init", "skip_inbound_subnets", typed.subnet_list),
        (
            keys.SKIP_OUTBOUND_SUBNETS,
            "init",
            "skip_outbound_subnets",
            typed.subnet_list,
        ),
        (f"{CONFIG}inbound-port", "proxy", "inbound_port", typed.port),
        (f"{CONFIG}outbound-port", "proxy", "outbound_port", typed.port),
        (f"{CONFIG}admin-port", "proxy", "admin_port", typed.port),
        (f"{CONFIG}control-port", "proxy", "control_port", typed.port),
        (f"{CONFIG}proxy-uid", "proxy", "uid", typed.uid),
        (f"{CONFIG}proxy-gid", "proxy", "gid", typed.gid),
        (f"{CONFIG}proxy-image", "proxy", "image"),
        (f"{CONFIG}proxy-version", "proxy", "version"),
        (f"{CONFIG}image-pull-policy", "proxy", "pull_policy"),
        (f"{CONFIG}proxy-cpu-request", "proxy", "cpu_request", typed.quantity),
        (f"{CONFIG}proxy-cpu-limit", "proxy", "cpu_limit", typed.quantity),
        (f"{CONFIG}proxy-memory-request", "proxy", "memory_request", typed.quantity),
        (f"{CONFIG}proxy-memory-limit", "proxy", "memory_limit", typed.quantity),
        (
            f"{CONFIG}proxy-ephemeral-storage-request",
            *("proxy", "ephemeral_storage_request", typed.quantity),
        ),
        (
            f"{CONFIG}proxy-ephemeral-storage-limit",
            *("proxy", "ephemeral_storage_limit", typed.quantity),
        ),
        (f"{CONFIG}proxy-cpu-ratio-limit", "proxy", "workers_ratio", typed.parse_ratio),
        (f"{CONFIG}proxy-await", "proxy", "wait", typed.enabled),
        (f"{CONFIG}proxy-log-level", "proxy", "log_level"),
        (f"{CONFIG}proxy-log-format", "proxy", "log_format"),
        (f"{CONFIG}proxy-admin-shutdown", "proxy", "shutdown_endpoint", typed.enabled),
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
            *("proxy", "outbound_connect_timeout", typed.milliseconds),
        ),
        (
            f"{CONFIG}proxy-inbound-connect-timeout",
            *("proxy", "inbound_connect_timeout", typed.milliseconds),
        ),
        (
            f"{CONFIG}shutdown-grace-period",
            *("proxy", "shutdown_grace_period", typed.milliseconds),
        ),
        (
            f"{CONFIG}proxy-outbound-discovery-cache-unused-timeout",
            *("proxy", "outbound_discovery_timeout", typed.seconds),
        ),
        (
            f"{CONFIG}proxy-inbound-discovery-cache-unused-timeout",
            *("proxy", "inbound_discovery_timeout", typed.seconds),
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
            *("proxy", "default_inbound_policy", typed.one_of(*INBOUND_POLICIES)),
        ),
        (f"{CONFIG}access-log", "proxy", "access_log"),
        (
            f"{ALPHA}proxy-wait-before-exit-seconds",
            "proxy",
            "wait_before_exit_s",
            typed.whole,
        ),
        (f"{CONFIG}debug-image", "debug", "image"),
        (f"{CONFIG}debug-image-version", "debug", "version"),
        (f"{CONFIG}debug-image-pull-policy", "debug", "pull_policy"),
    )
)
"""Every annotation that sets one value by itself."""
