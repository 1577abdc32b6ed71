"""An identity directory: the proxy's two files, and the set for everybody else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from identity import pem, store, trust
from identity.bootstrap import CSR, KEY, write_key_pair
from identity.config import Config
from identity.credentials import (
    BROKEN,
    Answer,
    Credential,
    KeyPair,
    load_certificate,
    spki,
)
from identity.errors import BadKeyPair, CertificateRejected, DirectoryUnusable

if TYPE_CHECKING:
    from identity.keys import KeyMaker

TLS_KEY = "tls.key"
TLS_CRT = "tls.crt"
CA_CRT = "ca.crt"
SET = (TLS_KEY, TLS_CRT, CA_CRT)


def load_pair(config: Config, *, disk: store.Disk, generate: KeyMaker) -> KeyPair:
    """The key and request of the bootstrap; made first if there are none at all.

    Raises `BadKeyPair` when there is one without the other, or they don't match,
    and `DirectoryUnusable`.
    """
    folder = config.directory
    if not os.path.isdir(folder):  # noqa: PTH112  (a text, as everywhere here)
        raise DirectoryUnusable(
            f"{folder} is no directory: mount a volume there; it is never created"
        )
    found = read_plain(folder, (KEY, CSR))
    if not found:
        write_key_pair(folder, config.name, disk=disk, generate=generate)
        found = read_plain(folder, (KEY, CSR))
    try:
        return KeyPair.load(found.get(KEY, b""), found.get(CSR, b""))
    except BadKeyPair as error:
        raise BadKeyPair(
            f"{folder}/{KEY} and {CSR}: {error}; run proxy-identity, or remove both"
        ) from error


def read_plain(folder: str, names: Sequence[str]) -> dict[str, bytes]:
    """The plain files of a folder that are there. Raises `DirectoryUnusable`."""
    found = {}
    for name in names:
        try:
            with open(f"{folder}/{name}", "rb") as stream:  # noqa: PTH123  (as above)
                found[name] = stream.read()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise store.unusable(folder, error) from error
    return found


def publish(config: Config, credential: Credential, *, disk: store.Disk) -> None:
    """Replace the set by a new one. Raises `DirectoryUnusable`."""
    files = {
        TLS_KEY: (credential.key_pem.encode(), store.PRIVATE),
        TLS_CRT: (credential.chain_pem.encode(), store.PUBLIC),
        CA_CRT: (config.anchors.text.encode(), store.PUBLIC),
    }
    store.publish(config.directory, files, disk)


def current(config: Config, now: datetime) -> tuple[Credential, KeyPair] | None:
    """The certificate in the directory, if it could have been accepted just now.

    It is not when it belongs to another name or configuration, or has expired.
    """
    try:
        files = store.read(config.directory, SET)
        if files.get(CA_CRT) != config.anchors.text.encode():
            return None
        key = load_pem_private_key(files[TLS_KEY], None)
        chain = pem.decode(files[TLS_CRT].decode())
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            return None
        leaf = load_certificate(chain[0][1])
        credential = trust.accept(
            Answer(
                leaf_der=chain[0][1],
                intermediates_der=[der for _, der in chain[1:]],
                valid_until=leaf.not_valid_after_utc,
            ),
            key=key,
            name=config.name,
            anchors=config.anchors,
            now=now,
        )
    except (DirectoryUnusable, CertificateRejected, LookupError, TypeError, *BROKEN):
        return None
    return credential, KeyPair(key=key, csr_der=b"")


def same_key(one: KeyPair, other: KeyPair) -> bool:
    """Whether two pairs have the same key."""
    return spki(one.key) == spki(other.key)
