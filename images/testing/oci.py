"""The configuration of a container, as a node's runtime derives it from a pod. Pure.

Source: the OCI runtime specification 1.0, and what containerd's CRI writes for a
container with a ``securityContext``.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DEFAULT_CAPABILITIES = (
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"),
    *("NET_BIND_SERVICE", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID"),
    "SYS_CHROOT",
)
"""What a container gets of which the pod's spec drops nothing."""

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Mount:
    """A folder of the node in a container."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class Security:
    """A container's securityContext; as Linkerd's charts set it for linkerd-init.

    `capabilities` is the result of what is added and dropped.
    """

    user: int = 65534
    group: int = 65534
    capabilities: tuple[str, ...] = ("NET_ADMIN", "NET_RAW")
    escalation: bool = False
    read_only: bool = True


@dataclass(frozen=True)
class Spec:
    """What to run: a root folder, a command line, and the pod's part."""

    root: str
    command: Sequence[str]
    namespace: str
    """Path of the pod's network namespace."""
    security: Security = Security()
    environment: Mapping[str, str] | None = None
    mounts: Sequence[Mount] = ()
    host_pid: bool = False
    """Whether it sees the processes of the node."""


def configuration(
    spec: Spec, name: str, seccomp: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The content of ``config.json``; `seccomp` is the profile of a runtime."""
    capabilities = sorted(f"CAP_{word}" for word in spec.security.capabilities)
    environment = {
        "PATH": "/usr/local/bin:/usr/sbin:/usr/bin",
        **(spec.environment or {}),
    }
    linux: dict[str, Any] = {
        "namespaces": [
            *({"type": kind} for kind in ("ipc", "uts", "mount")),
            *([] if spec.host_pid else [{"type": "pid"}]),
            {"type": "network", "path": spec.namespace},
        ],
        "cgroupsPath": f"/{name}",
        "resources": {"devices": [{"allow": False, "access": "rwm"}]},
        "maskedPaths": list(_MASKED),
        "readonlyPaths": list(_READ_ONLY),
    }
    if seccomp is not None:
        linux["seccomp"] = filtered(seccomp, capabilities)
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": spec.security.user, "gid": spec.security.group},
            "args": list(spec.command),
            "env": [f"{key}={value}" for key, value in environment.items()],
            "cwd": "/",
            "noNewPrivileges": not spec.security.escalation,
            "capabilities": {
                "bounding": capabilities,
                "effective": capabilities,
                "permitted": capabilities,
                "inheritable": [],
                "ambient": [],
            },
        },
        "root": {"path": spec.root, "readonly": spec.security.read_only},
        "hostname": "pod",
        "mounts": [*_SYSTEM_MOUNTS, *map(_bind, spec.mounts)],
        "linux": linux,
    }


def _bind(mount: Mount) -> dict[str, Any]:
    access = "ro" if mount.read_only else "rw"
    return {
        "destination": mount.target,
        "type": "bind",
        "source": mount.source,
        "options": ["rbind", "rprivate", access],
    }


def filtered(profile: Mapping[str, Any], capabilities: Sequence[str]) -> dict[str, Any]:
    """The seccomp filter that a profile means for this machine and these capabilities.

    Profiles are in the form that Docker, Podman and CRI-O share: rules that hold
    for some architectures, or where a capability is granted or not.
    """
    machine = platform.machine()
    mine = ARCHITECTURES.get(machine, machine)

    def holds(rule: Mapping[str, Any]) -> bool:
        includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
        return (
            set(includes.get("caps") or ()) <= set(capabilities)
            and not set(excludes.get("caps") or ()) & set(capabilities)
            and mine in (includes.get("arches") or [mine])
            and mine not in (excludes.get("arches") or [])
        )

    kept = ("names", "action", "args", "errnoRet")
    return {
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile.get("defaultErrnoRet", 1),
        "architectures": [f"SCMP_ARCH_{machine.upper()}"],
        "syscalls": [
            {key: rule[key] for key in kept if rule.get(key)}
            for rule in profile["syscalls"]
            if holds(rule)
        ],
    }


_NO_PROGRAMS = ["nosuid", "noexec", "nodev"]
_SYSTEM_MOUNTS: tuple[dict[str, Any], ...] = (
    {
        "destination": "/proc",
        "type": "proc",
        "source": "proc",
        "options": _NO_PROGRAMS,
    },
    {
        "destination": "/dev",
        "type": "tmpfs",
        "source": "tmpfs",
        "options": ["nosuid", "strictatime", "mode=755", "size=65536k"],
    },
    {
        "destination": "/dev/shm",  # noqa: S108  (the sandbox's, in a pod)
        "type": "tmpfs",
        "source": "shm",
        "options": [*_NO_PROGRAMS, "mode=1777", "size=65536k"],
    },
    {
        "destination": "/sys",
        "type": "sysfs",
        "source": "sysfs",
        "options": [*_NO_PROGRAMS, "ro"],
    },
)
_MASKED = (
    *("/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats"),
    *("/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi"),
    "/sys/firmware",
)
_READ_ONLY = (
    *("/proc/asound", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"),
    "/proc/sysrq-trigger",
)
