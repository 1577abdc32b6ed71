"""How containers, volumes and paths are called that injection adds."""

from __future__ import annotations

INIT = "linkerd-init"
VALIDATOR = "linkerd-network-validator"
PROXY = "linkerd-proxy"
DEBUG = "linkerd-debug"

VOLUME_XTABLES = "linkerd-proxy-init-xtables-lock"
VOLUME_IDENTITY = "linkerd-identity-end-entity"
VOLUME_TOKEN = "linkerd-identity-token"  # noqa: S105  (a volume's name)
VOLUME_PODINFO = "linkerd-podinfo"

SERVICE_ACCOUNT_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where Kubernetes mounts a pod's own token."""
