"""How to reach the Kubernetes API: from inside a pod, or by a kubeconfig."""

from __future__ import annotations

import base64
import binascii
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from identity.issuer.errors import IssuerError

MOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts a pod's own token and the API server's CA."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """An API server and how a client proves who it is.

    Files are named and not read: the kubelet replaces them while we run. `owned` are
    the temporary files made for values that came without a file.
    """

    server: str
    ca: Path
    token_file: Path | None = None
    token: str = field(default="", repr=False)
    client_certificate: tuple[Path, Path] | None = None
    owned: tuple[object, ...] = field(default=(), repr=False)


def in_cluster(environment: Mapping[str, str], mount: Path = MOUNT) -> Access:
    """Access as pods have it. Raises `IssuerError` outside of one."""
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise IssuerError(
            "not in a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not "
            "set; outside of a cluster name a file with --kubeconfig"
        )
    shown = f"[{host}]" if ":" in host else host
    return Access(
        server=f"https://{shown}:{port}",
        ca=mount / "ca.crt",
        token_file=mount / "token",
    )


def from_kubeconfig(path: Path) -> Access:
    """Access as the file's current context has it. Raises `IssuerError`.

    Server, CA, and a token or a client certificate are understood, as values or as
    files beside the kubeconfig. Programs that make tokens (`exec`) are not run.
    """
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise IssuerError(f"can't read the kubeconfig: {error}") from error
    except (yaml.YAMLError, ValueError):  # their messages quote lines of the file
        raise IssuerError(f"{path}: expected a kubeconfig in YAML") from None
    try:
        current = _named(config["contexts"], config["current-context"], "context")
        cluster = _named(config["clusters"], current["cluster"], "cluster")
        user = _named(config["users"], current["user"], "user")
        return _access(cluster, user, path.parent)
    except (KeyError, TypeError, binascii.Error) as error:
        what = f"{path}: expected a kubeconfig; missing or malformed"
        raise IssuerError(f"{what}: {_reason(error)}") from None


def _access(cluster: Mapping[str, Any], user: Mapping[str, Any], base: Path) -> Access:
    for key in ("insecure-skip-tls-verify", "tls-server-name", "proxy-url"):
        if cluster.get(key):
            raise IssuerError(f"the kubeconfig's {key} is not supported: remove it")
    for key in ("exec", "auth-provider", "username"):
        if user.get(key):
            raise IssuerError(
                f"the kubeconfig's user has {key!r}, which is not supported: use a "
                "token, a tokenFile or a client certificate"
            )
    owned: list[object] = []

    def file_of(values: Mapping[str, Any], key: str) -> Path | None:
        if f"{key}-data" in values:
            held = tempfile.NamedTemporaryFile(prefix="kubeconfig-")  # noqa: SIM115  (lives as long as the Access)
            held.write(base64.b64decode(values[f"{key}-data"], validate=True))
            held.flush()
            owned.append(held)
            return Path(held.name)
        return base / values[key] if key in values else None

    ca = file_of(cluster, "certificate-authority")
    if ca is None:
        raise KeyError("certificate-authority")
    certificate = file_of(user, "client-certificate")
    private = file_of(user, "client-key")
    return Access(
        server=str(cluster["server"]).rstrip("/"),
        ca=ca,
        token_file=base / user["tokenFile"] if "tokenFile" in user else None,
        token=str(user.get("token", "")),
        client_certificate=(certificate, private) if certificate and private else None,
        owned=tuple(owned),
    )


def _named(items: Any, name: str, kind: str) -> Mapping[str, Any]:
    for item in items:
        if item["name"] == name:
            found: Mapping[str, Any] = item[kind]
            return found
    raise KeyError(f"{kind} {name}")


def _reason(error: Exception) -> str:
    """What is missing; other errors might quote a secret."""
    return str(error) if isinstance(error, KeyError) else "a value of another type"
