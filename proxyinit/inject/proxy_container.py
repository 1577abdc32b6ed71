"""``linkerd-proxy``: the sidecar's container."""

from __future__ import annotations

from proxyinit.inject import containers, names
from proxyinit.inject.containers import Container, FromPod
from proxyinit.inject.values import Proxy, Values


def proxy(values: Values, pod: FromPod, environment: list[Container]) -> Container:
    """``linkerd-proxy``, the sidecar; its environment is `env.environment`'s."""
    own = values.proxy
    made: Container = {
        "env": environment,
        "image": containers.image(values),
        "imagePullPolicy": containers.policy(values),
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
        "resources": containers.resources(own),
    }
    if own.native_sidecar:
        made["restartPolicy"] = "Always"
    made["securityContext"] = own.security_context or _context(own, pod)
    if own.native_sidecar and own.wait:
        made["startupProbe"] = {
            "failureThreshold": own.startup_failures,
            "httpGet": {"path": "/ready", "port": own.admin_port},
            "initialDelaySeconds": own.startup_delay_s,
            "periodSeconds": own.startup_period_s,
        }
    made["terminationMessagePolicy"] = "FallbackToLogsOnError"
    made["volumeMounts"] = _mounts(values, pod)
    return made


def _context(own: Proxy, pod: FromPod) -> Container:
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
        "seccompProfile": containers.SECCOMP,
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


def _mounts(values: Values, pod: FromPod) -> list[Container]:
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
    return [*made, *containers.token_mounts(pod)]
