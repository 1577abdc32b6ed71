"""The real programs, the service and its clients, and all they find in one folder.

The folder holds the root (``ca.crt``), the issuer (``issuer/``), the service's own
certificate (``service.crt``), the cluster's public keys (``jwks.json``), and for each
workload a mounted token (``tokens/<workload>/``) and an identity directory named
like the workload. Paths in arguments are relative: start the programs inside.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from identity import ca
from identity.ca_files import Files, read_authority
from identity.issuer.policy import Account as Holder
from identity.issuer.policy import Domain
from identity.testing.authority import key_pem, new_key, new_serial, whole_second
from identity.testing.projected import project
from identity.testing.tokens import ISSUER as TOKEN_ISSUER
from identity.testing.tokens import Account, Signer

DOMAIN = Domain("linkerd", "cluster.local")
SERVICE = Account("linkerd", "linkerd-identity")
SERVICE_PORT = 8080
ADMIN_PORT = 9990
PROXY_UID = 2102
"""The user of Linkerd's proxy, who owns the identity directories."""

ROOT = ("ca", "root")
ISSUER = ("ca", "issuer", "--cert", "issuer/tls.crt", "--key", "issuer/tls.key")
"""The commands of ``proxy-identity`` that make the two authorities."""


def identity_of(account: Account) -> str:
    """The name that the service certifies for an account."""
    return DOMAIN.identity(Holder("serviceaccount", account.namespace, account.name))


def prepare(folder: Path) -> None:
    """Make the folders in which programs of every user find their files."""
    folder.chmod(0o755)
    for name in ("issuer", "tokens"):
        (folder / name).mkdir()


def write_service_certificate(
    folder: Path, lifetime: dt.timedelta = dt.timedelta(hours=1)
) -> None:
    """Certify the service itself, with the issuer that is in the folder."""
    files = Files(folder / "issuer/tls.crt", folder / "issuer/tls.key")
    issuer = read_authority(files)
    key = new_key()
    name = identity_of(SERVICE)
    now = whole_second()
    leaf = ca.issue_leaf(
        issuer,
        ca.Holder(public_key=key.public_key(), names=[x509.DNSName(name)]),
        ca.Validity(not_before=now, not_after=now + lifetime),
        new_serial(),
    )
    chain = [made.public_bytes(Encoding.PEM) for made in (leaf, issuer.certificate)]
    (folder / "service.crt").write_bytes(b"".join(chain))
    _write_private(folder / "service.key", key_pem(key))


def write_tokens(folder: Path, workloads: Mapping[str, Account]) -> None:
    """Publish a cluster's keys; a token and a directory for each workload."""
    signer = Signer("ES256")
    (folder / "jwks.json").write_text(json.dumps(signer.jwks()), encoding="ascii")
    for workload, account in workloads.items():
        token = signer.token(account).encode()
        project(folder / "tokens" / workload, {"token": token})
        make_directory(folder / workload)


def make_directory(path: Path) -> None:
    """An empty identity directory, of the proxy's user."""
    path.mkdir(mode=0o700)
    os.chown(path, PROXY_UID, PROXY_UID)


def service_arguments(lifetime: str, skew: str) -> tuple[str, ...]:
    """The arguments of ``proxy-identity`` that start the service."""
    return (
        "issuer",
        *("--addr", f":{SERVICE_PORT}"),
        *("--controller-namespace", DOMAIN.control_namespace),
        *("--identity-trust-domain", DOMAIN.trust_domain),
        *("--identity-scheme", "kubernetes.io/tls"),
        *("--identity-issuance-lifetime", lifetime),
        *("--identity-clock-skew-allowance", skew),
        *("--issuer", "issuer"),
        *("--trust-anchors", "ca.crt"),
        *("--tls-cert", "service.crt"),
        *("--tls-key", "service.key"),
        *("--token-validator", "jwks"),
        *("--jwks", "jwks.json"),
        *("--token-issuer", TOKEN_ISSUER),
    )


def client_environment(
    folder: Path, workload: str, account: Account, service: str
) -> dict[str, str]:
    """The variables that Linkerd's charts give a pod; `service` is an address."""
    host = f"[{service}]" if ":" in service else service
    settings = {
        "DIR": workload,
        "LOCAL_NAME": identity_of(account),
        "TRUST_ANCHORS": (folder / "ca.crt").read_text(encoding="ascii"),
        "TOKEN_FILE": f"tokens/{workload}/token",
        "SVC_ADDR": f"{host}:{SERVICE_PORT}",
        "SVC_NAME": identity_of(SERVICE),
    }
    return {f"LINKERD2_PROXY_IDENTITY_{name}": text for name, text in settings.items()}


def _write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
