"""The files of an authority: its certificate and its key, read and written."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from identity.ca import Authority
from identity.credentials import BROKEN, any_serial
from identity.errors import IdentityError
from identity.store import PRIVATE, Disk


class UnusableParent(IdentityError):
    """The files of the authority that is to sign can't be used."""


class FilesInTheWay(IdentityError):
    """Files that would be written exist, or can't be written."""


@dataclass(frozen=True, slots=True)
class Files:
    """Where a certificate and its key go."""

    certificate: Path
    key: Path


def read_authority(files: Files) -> Authority:
    """An authority from its PEM files. Raises `UnusableParent`.

    Nothing that the key's parser says is passed on: it has seen the secret.
    """
    try:
        with any_serial():
            certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        public_key = certificate.public_key()
        key_pem = files.key.read_bytes()
    except OSError as error:
        raise UnusableParent(f"can't read the root: {error}") from error
    except BROKEN as error:
        what = f"{files.certificate}: expected a certificate in PEM"
        raise UnusableParent(what) from error
    try:
        key = serialization.load_pem_private_key(key_pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        what = f"{files.key}: expected a private key in PEM, not encrypted"
        raise UnusableParent(what) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UnusableParent(f"{files.key}: expected an elliptic curve key")
    if key.public_key() != public_key:
        both = f"{files.certificate} and {files.key}"
        raise UnusableParent(f"{both} don't belong together")
    return Authority(certificate=certificate, key=key)


def write(made: Authority, files: Files, *, force: bool) -> None:
    """Write both files, mode 0600; neither is left half written.

    Raises `FilesInTheWay`.
    """
    contents = {
        files.key: made.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        ),
        files.certificate: made.certificate.public_bytes(serialization.Encoding.PEM),
    }
    there = [str(path) for path in contents if os.path.lexists(path)]
    if there and not force:
        names = " and ".join(there)
        raise FilesInTheWay(f"{names}: will not replace what exists (--force does)")
    disk = Disk()
    new = {path: f"{path}.new" for path in contents}
    try:
        for path, content in contents.items():
            disk.remove(new[path])
            disk.create(new[path], content, PRIVATE)
        for path, temporary in new.items():
            disk.rename(temporary, str(path))
    except OSError as error:
        for temporary in new.values():
            disk.remove(temporary)
        raise FilesInTheWay(f"can't write: {error}") from error
