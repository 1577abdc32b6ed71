"""``linkerd-init``: the init container that runs proxy-init, and its arguments."""

from __future__ import annotations

from proxyinit.inject import containers, names
from proxyinit.inject.containers import NOBODY, Container, FromPod
from proxyinit.inject.errors import Unrenderable
from proxyinit.inject.values import NEEDS_ROOT, Init, Values

_COMMAND = "/usr/lib/linkerd/linkerd2-proxy-init"
_ADDED = ("NET_ADMIN", "NET_RAW")


def init(values: Values, pod: FromPod) -> Container:
    """``linkerd-init``, which redirects. Raises `Unrenderable`."""
    own = values.init
    if own.close_wait_s > 0 and not own.run_as_root:
        raise Unrenderable(NEEDS_ROOT)
    made: Container = {"args": arguments(values)}
    command = own.command or (() if own.image else (_COMMAND,))
    if command:
        made["command"] = list(command)
    return made | {
        "image": _image(values),
        "imagePullPolicy": _pull_policy(values),
        "name": names.INIT,
        "resources": containers.resources(values.proxy),
        "securityContext": _context(own, pod),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"mountPath": own.mount_path, "name": own.mount_name},
            *containers.token_mounts(pod),
        ],
    }


def arguments(values: Values) -> list[str]:
    """The arguments of proxy-init, in upstream's order, ours behind them."""
    own, proxy = values.init, values.proxy
    made = []
    if own.iptables_mode == "nft":
        made += ["--firewall-bin-path", "iptables-nft"]
        made += ["--firewall-save-bin-path", "iptables-nft-save"]
    if values.disable_ipv6:
        made += ["--ipv6=false"]
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
            made += [flag, value]
    return made


def _image(values: Values) -> str:
    own = values.init
    if not own.image:
        return containers.image(values)
    return f"{own.image}:{own.version or values.linkerd_version}"


def _pull_policy(values: Values) -> str:
    own = values.init
    if not own.image:
        return containers.policy(values)
    return own.pull_policy or values.image_pull_policy


def _context(own: Init, pod: FromPod) -> Container:
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
        "seccompProfile": containers.SECCOMP,
    }
