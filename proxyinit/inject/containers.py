"""What the containers share that injection adds; and the smaller ones of them.

Keys of objects are in alphabetical order, as upstream's patches have them; empty
texts and zeros that upstream writes are written too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proxyinit.inject import names
from proxyinit.inject.decision import token_mount
from proxyinit.inject.values import Proxy, Values
from proxyinit.inject.workload import Workload, mapping

Container = dict[str, Any]

NOBODY = 65534
"""The user of containers that need none; 0 in the values means this one too."""

SECCOMP = {"type": "RuntimeDefault"}
"""What all of them may call of the kernel."""

_VALIDATOR_COMMAND = "/usr/lib/linkerd/linkerd2-network-validator"
_DEFAULT_VALIDATOR_CONTEXT = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsGroup": NOBODY,
    "runAsNonRoot": True,
    "runAsUser": NOBODY,
    "seccompProfile": SECCOMP,
}


@dataclass(frozen=True, slots=True)
class FromPod:
    """What the added containers take over from the pod's first container.

    `add` and `drop` are its capabilities; `mount` is the volume that it has the pod's
    token from, and whether it is mounted to be read only.
    """

    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    mount: tuple[str, bool] | None = None

    @property
    def has_capabilities(self) -> bool:
        """Whether there is anything to take over."""
        return bool(self.add or self.drop)


def from_pod(workload: Workload) -> FromPod:
    """Look at the first regular container, as it is before injection."""
    if not workload.containers:
        return FromPod()
    first = workload.containers[0]
    capabilities = mapping(mapping(first, "securityContext"), "capabilities")
    mount = token_mount(first)
    return FromPod(
        add=_words(capabilities.get("add")),
        drop=_words(capabilities.get("drop")),
        mount=None
        if mount is None
        else (str(mount.get("name")), mount.get("readOnly") is True),
    )


def _words(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def validator(values: Values) -> Container:
    """``linkerd-network-validator``, which proves a redirect that others made."""
    own = values.validator
    ipv4_only = values.disable_ipv6
    connect = "1.1.1.1:20001" if ipv4_only else "[fd00::1]:20001"
    # 4140 whatever the proxy's port is: so it is upstream, and nothing listens yet.
    listen = "0.0.0.0:4140" if ipv4_only else "[::]:4140"
    return {
        "args": [
            *("--log-format", own.log_format),
            *("--log-level", own.log_level),
            *("--connect-addr", own.connect_addr or connect),
            *("--listen-addr", own.listen_addr or listen),
            *("--timeout", own.timeout),
        ],
        "command": [_VALIDATOR_COMMAND],
        "image": image(values),
        "imagePullPolicy": policy(values),
        "name": names.VALIDATOR,
        "resources": resources(values.proxy),
        "securityContext": own.security_context or _DEFAULT_VALIDATOR_CONTEXT,
    }


def debug(values: Values) -> Container:
    """``linkerd-debug``, with the tools to look at traffic."""
    own = values.debug
    probe = {"exec": {"command": ["true"]}}
    return {
        "image": f"{own.image}:{own.version or values.linkerd_version}",
        "imagePullPolicy": own.pull_policy or values.image_pull_policy,
        "livenessProbe": probe,
        "name": names.DEBUG,
        "readinessProbe": probe,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def token_mounts(pod: FromPod) -> list[Container]:
    """Where the pod's own token is mounted, if it is."""
    if pod.mount is None:
        return []
    name, read_only = pod.mount
    path = names.SERVICE_ACCOUNT_MOUNT
    return [{"mountPath": path, "name": name, "readOnly": read_only}]


def resources(own: Proxy) -> Mapping[str, Any] | None:
    """Requests and limits; None when nothing is set, and the key stays."""
    made = {}
    for kind in ("limit", "request"):
        found = {
            name: value
            for name, value in (
                ("cpu", getattr(own, f"cpu_{kind}")),
                ("ephemeral-storage", getattr(own, f"ephemeral_storage_{kind}")),
                ("memory", getattr(own, f"memory_{kind}")),
            )
            if value
        }
        if found:
            made[f"{kind}s"] = found
    return made or None


def image(values: Values) -> str:
    """The proxy's image, which others run from as well."""
    return f"{values.proxy.image}:{values.proxy_version}"


def policy(values: Values) -> str:
    """When the proxy's image is pulled."""
    return values.proxy.pull_policy or values.image_pull_policy
