"""The containers that injection adds, as the objects that go into a pod's spec.

Keys of objects are in alphabetical order, as upstream's patches have them; empty
texts and zeros that upstream writes are written too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proxyinit.inject import names
from proxyinit.inject.decision import token_mount
from proxyinit.inject.errors import Unrenderable
from proxyinit.inject.values import NEEDS_ROOT, Init, Proxy, Values
from proxyinit.inject.workload import Workload, mapping

Container = dict[str, Any]

NOBODY = 65534
"""The user of containers that need none; 0 in the values means this one too."""

_INIT_COMMAND = "/usr/lib/linkerd/linkerd2-proxy-init"
_VALIDATOR_COMMAND = "/usr/lib/linkerd/linkerd2-network-validator"
_ADDED = ("NET_ADMIN", "NET_RAW")
_SECCOMP = {"type": "RuntimeDefault"}
_DEFAULT_VALIDATOR_CONTEXT = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsGroup": NOBODY,
    "runAsNonRoot": True,
    "runAsUser": NOBODY,
    "seccompProfile": _SECCOMP,
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


def init(values: Values, pod: FromPod) -> Container:
    """``linkerd-init``, which redirects. Raises `Unrenderable`."""
    own = values.init
    if own.close_wait_s > 0 and not own.run_as_root:
        raise Unrenderable(NEEDS_ROOT)
    made: Container = {"args": init_arguments(values)}
    command = own.command or (() if own.image else (_INIT_COMMAND,))
    if command:
        made["command"] = list(command)
    return made | {
        "image": _init_image(values),
        "imagePullPolicy": _init_pull_policy(values),
        "name": names.INIT,
        "resources": resources(values.proxy),
        "securityContext": _init_context(own, pod),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"mountPath": own.mount_path, "name": own.mount_name},
            *_token_mounts(pod),
        ],
    }


def init_arguments(values: Values) -> list[str]:
    """The arguments of proxy-init, in upstream's order, ours behind them."""
    own, proxy = values.init, values.proxy
    arguments = []
    if own.iptables_mode == "nft":
        arguments += ["--firewall-bin-path", "iptables-nft"]
        arguments += ["--firewall-save-bin-path", "iptables-nft-save"]
    if values.disable_ipv6:
        arguments += ["--ipv6=false"]
    inbound = f"{proxy.control_port},{proxy.admin_port}"
    if own.ignore_inbound_ports:
        inbound += f",{own.ignore_inbound_ports}"
    settings = (
        ("--incoming-proxy-port", str(proxy.inbound_port)),
        ("--outgoing-proxy-port", str(proxy.outbound_port)),
        ("--proxy-uid", str(proxy.uid)),
        ("--proxy-gid", str(proxy.gid) if proxy.gid >= 0 else ""),
        ("--inbound-ports-to-ignore", inbound),
        ("--outbound-ports-to-ignore", own.ignore_outbound_ports),
        (
            "--timeout-close-wait-secs",
            str(own.close_wait_s) if own.close_wait_s > 0 else "",
        ),
        ("--log-format", own.log_format),
        ("--log-level", own.log_level),
        ("--subnets-to-ignore", own.skip_subnets),
        ("--inbound-subnets-to-ignore", own.skip_inbound_subnets),
        ("--outbound-subnets-to-ignore", own.skip_outbound_subnets),
    )
    for flag, value in settings:
        if value:
            arguments += [flag, value]
    return arguments


def _init_image(values: Values) -> str:
    own = values.init
    if not own.image:
        return _image(values)
    return f"{own.image}:{own.version or values.linkerd_version}"


def _init_pull_policy(values: Values) -> str:
    own = values.init
    return own.pull_policy or values.image_pull_policy if own.image else _policy(values)


def _init_context(own: Init, pod: FromPod) -> Container:
    elevated = own.close_wait_s > 0 or own.privileged
    user, group = own.run_as_user or NOBODY, own.run_as_group or NOBODY
    capabilities: Container = {"add": [*_ADDED, *pod.add]}
    if drop := [name for name in pod.drop if name not in _ADDED]:
        capabilities["drop"] = drop
    return {
        "allowPrivilegeEscalation": elevated,
        "capabilities": capabilities,
        "privileged": elevated,
        "readOnlyRootFilesystem": True,
        "runAsGroup": 0 if own.run_as_root else group,
        "runAsNonRoot": not own.run_as_root,
        "runAsUser": 0 if own.run_as_root else user,
        "seccompProfile": _SECCOMP,
    }


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
        "image": _image(values),
        "imagePullPolicy": _policy(values),
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


def proxy(values: Values, pod: FromPod, environment: list[Container]) -> Container:
    """``linkerd-proxy``, the sidecar; its environment is `env.environment`'s."""
    own = values.proxy
    made: Container = {
        "env": environment,
        "image": _image(values),
        "imagePullPolicy": _policy(values),
    }
    if not own.native_sidecar and (lifecycle := _lifecycle(own)):
        made["lifecycle"] = lifecycle
    made |= {
        "livenessProbe": {
            "httpGet": {"path": "/live", "port": own.admin_port},
            "initialDelaySeconds": own.liveness_delay_s,
            "timeoutSeconds": own.liveness_timeout_s,
        },
        "name": names.PROXY,
        "ports": [
            {"containerPort": own.inbound_port, "name": "linkerd-proxy"},
            {"containerPort": own.admin_port, "name": "linkerd-admin"},
        ],
        "readinessProbe": {
            "httpGet": {"path": "/ready", "port": own.admin_port},
            "initialDelaySeconds": own.readiness_delay_s,
            "timeoutSeconds": own.readiness_timeout_s,
        },
        "resources": resources(own),
    }
    if own.native_sidecar:
        made["restartPolicy"] = "Always"
    made["securityContext"] = own.security_context or _proxy_context(own, pod)
    if own.native_sidecar and own.wait:
        made["startupProbe"] = {
            "failureThreshold": own.startup_failures,
            "httpGet": {"path": "/ready", "port": own.admin_port},
            "initialDelaySeconds": own.startup_delay_s,
            "periodSeconds": own.startup_period_s,
        }
    made["terminationMessagePolicy"] = "FallbackToLogsOnError"
    made["volumeMounts"] = _proxy_mounts(values, pod)
    return made


def _proxy_context(own: Proxy, pod: FromPod) -> Container:
    made: Container = {"allowPrivilegeEscalation": False}
    if pod.has_capabilities:
        both = {"add": list(pod.add), "drop": list(pod.drop)}
        made["capabilities"] = {name: found for name, found in both.items() if found}
    made |= {"readOnlyRootFilesystem": True}
    if own.gid >= 0:
        made["runAsGroup"] = own.gid
    return made | {
        "runAsNonRoot": True,
        "runAsUser": own.uid,
        "seccompProfile": _SECCOMP,
    }


def _lifecycle(own: Proxy) -> Container:
    """What happens before the other containers start, and before the proxy stops."""
    made: Container = {}
    if own.wait:
        port = f"--port={own.admin_port}"
        command = ["/usr/lib/linkerd/linkerd-await", "--timeout=2m", port]
        made["postStart"] = {"exec": {"command": command}}
    if own.wait_before_exit_s > 0:
        command = ["/bin/sleep", str(own.wait_before_exit_s)]
        made["preStop"] = {"exec": {"command": command}}
    return made


def _proxy_mounts(values: Values, pod: FromPod) -> list[Container]:
    made = [
        {
            "mountPath": "/var/run/linkerd/identity/end-entity",
            "name": names.VOLUME_IDENTITY,
        }
    ]
    if values.proxy.tracing:
        path = "/var/run/linkerd/podinfo"
        made.append({"mountPath": path, "name": names.VOLUME_PODINFO})
    if values.token_projection:
        path = "/var/run/secrets/tokens"
        made.append({"mountPath": path, "name": names.VOLUME_TOKEN})
    return [*made, *_token_mounts(pod)]


def _token_mounts(pod: FromPod) -> list[Container]:
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


def _image(values: Values) -> str:
    return f"{values.proxy.image}:{values.proxy_version}"


def _policy(values: Values) -> str:
    return values.proxy.pull_policy or values.image_pull_policy
