"""The volumes that injection adds to a pod."""

from __future__ import annotations

from typing import Any

from proxyinit.inject import names

Volume = dict[str, Any]

AUDIENCE = "identity.l5d.io"
TOKEN_LIFETIME_S = 86400


def xtables(name: str) -> Volume:
    """Where iptables keeps its lock: the root file system is read-only.

    Upstream has the name fixed here and configurable where it is mounted, so that a
    name of one's own leads nowhere; here both are the same.
    """
    return {"emptyDir": {}, "name": name}


def identity() -> Volume:
    """Where the proxy's key and request are: in memory."""
    return {"emptyDir": {"medium": "Memory"}, "name": names.VOLUME_IDENTITY}


def podinfo() -> Volume:
    """The pod's labels, for traces."""
    item = {"fieldRef": {"fieldPath": "metadata.labels"}, "path": "labels"}
    return {"downwardAPI": {"items": [item]}, "name": names.VOLUME_PODINFO}


def token() -> Volume:
    """A token of the pod's account for the identity service alone."""
    source = {
        "serviceAccountToken": {
            "audience": AUDIENCE,
            "expirationSeconds": TOKEN_LIFETIME_S,
            "path": names.VOLUME_TOKEN,
        }
    }
    return {"name": names.VOLUME_TOKEN, "projected": {"sources": [source]}}
