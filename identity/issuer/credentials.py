"""The issuer's certificate, key and trust anchors: from bytes to a checked value."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from identity import ca, leaf, pem
from identity.credentials import BROKEN, any_serial
from identity.errors import BadTrustAnchors
from identity.issuer import path
from identity.issuer.errors import CredentialsError, IssuerInvalid

LINKERD_SCHEME = "linkerd.io/tls"
_PUBLIC = serialization.PublicFormat.SubjectPublicKeyInfo
_KEY_BLOCKS = ("EC PRIVATE KEY", "RSA PRIVATE KEY", "PRIVATE KEY")


@dataclass(frozen=True, slots=True)
class Locations:
    """Where the three files are."""

    certificate: Path
    key: Path
    anchors: Path


def locate(folder: Path, scheme: str, anchors: Path) -> Locations:
    """The files of an issuer's folder: their names depend on who made the Secret."""
    names = (
        ("crt.pem", "key.pem") if scheme == LINKERD_SCHEME else ("tls.crt", "tls.key")
    )
    return Locations(folder / names[0], folder / names[1], anchors)


@dataclass(frozen=True, slots=True)
class Files:
    """What the three files hold."""

    certificate: bytes
    key: bytes = field(repr=False)
    anchors: bytes

    @property
    def digest(self) -> bytes:
        """The same for the same contents, and no secret."""
        parts = (self.certificate, self.key, self.anchors)
        return b"".join(hashlib.sha256(part).digest() for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """An issuer that verifies against the trust anchors.

    `chain_der` is what goes out with each leaf: the issuer, then the certificates
    that followed it in its file. `not_after` is the earliest end among those.
    From `first` to `last` all of `path` is valid.
    """

    authority: ca.Authority
    template: leaf.Template
    chain_der: tuple[bytes, ...]
    not_after: dt.datetime
    path: path.Path
    first: dt.datetime
    last: dt.datetime
    anchors: tuple[x509.Certificate, ...]
    others: tuple[x509.Certificate, ...]

    def verify(self, now: dt.datetime) -> None:
        """Raise `IssuerInvalid` unless the issuer is good at this time."""
        if self.first <= now <= self.last:
            return
        try:  # another way up may still be good
            issuer = self.authority.certificate
            path.find_path(issuer, self.others, self.anchors, now)
        except path.NoPath as error:
            raise IssuerInvalid(str(error)) from error


def read_anchors(location: Path) -> bytes:
    """The bundle of trust anchors; raises `CredentialsError`."""
    try:
        return location.read_bytes()
    except OSError as error:
        message = f"could not read identity trust anchors PEM: {error}"
        raise CredentialsError(message) from error


def read(locations: Locations) -> Files:
    """Read the files; raises `CredentialsError`."""
    anchors = read_anchors(locations.anchors)
    try:
        certificate = locations.certificate.read_bytes()
        return Files(certificate, locations.key.read_bytes(), anchors)
    except OSError as error:
        message = f"failed to read CA from disk: {error}"
        raise CredentialsError(message) from error


def parse_anchors(bundle: bytes) -> tuple[x509.Certificate, ...]:
    """The trust anchors of a bundle; raises `CredentialsError`."""
    try:
        ders = pem.certificates(bundle.decode("ascii", "replace"))
        with any_serial():
            return tuple(map(x509.load_der_x509_certificate, ders))
    except (BadTrustAnchors, *BROKEN) as error:
        raise CredentialsError(f"Failed to read trust anchors: {error}") from error


def load(files: Files, now: dt.datetime, name: str) -> Credentials:
    """Checked credentials; `name` is the service's identity, for messages.

    The key has to be elliptic and of the certificate, the certificate a CA, and a
    path has to lead from it to an anchor now. Raises `CredentialsError`.
    """
    anchors = parse_anchors(files.anchors)
    certificate, *others = _parse_certificates(files.certificate)
    key = _parse_key(files.key)
    try:
        public_key = certificate.public_key()
    except BROKEN as error:
        raise _unreadable(f"the certificate can't be used: {error}") from error
    if _spki(key.public_key()) != _spki(public_key):
        raise _unreadable("tls: Public and private key do not match")
    try:
        found = path.find_path(certificate, others, anchors, now)
    except path.NoPath as error:
        whose = f"issuer credentials for '{name}' with trust anchors"
        raise CredentialsError(f"failed to verify {whose}: {error}") from error
    authority = ca.Authority(certificate=certificate, key=key)
    return Credentials(
        authority=authority,
        template=leaf.template(authority),
        chain_der=tuple(c.public_bytes(Encoding.DER) for c in (certificate, *others)),
        not_after=min(c.not_valid_after_utc for c in (certificate, *others)),
        path=found,
        first=max(c.not_valid_before_utc for c in found),
        last=min(c.not_valid_after_utc for c in found),
        anchors=anchors,
        others=tuple(others),
    )


def _parse_certificates(content: bytes) -> list[x509.Certificate]:
    try:
        with any_serial():
            return x509.load_pem_x509_certificates(content)
    except BROKEN as error:
        raise _unreadable("the certificate file holds no PEM certificates") from error


def _parse_key(content: bytes) -> ec.EllipticCurvePrivateKey:
    """The first private key of a PEM file. What is wrong with it is told in our words.

    No message of the parser, and no cause, is passed on: it has seen the secret.
    """
    try:
        blocks = pem.decode(content.decode("ascii", "replace"))
    except ValueError:
        raise _unreadable("the key file is not PEM-encoded") from None
    labels = [label for label, _ in blocks if label != "EC PARAMETERS"]
    if not labels:
        raise _unreadable("the key file is not PEM-encoded")
    if labels[0] not in _KEY_BLOCKS:
        raise _unreadable(f"unsupported block type: '{labels[0]}'")
    der = next(der for label, der in blocks if label == labels[0])
    try:
        key = serialization.load_der_private_key(der, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise _unreadable("the key file holds no private key") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        kind = type(key).__name__
        raise _unreadable(f"the issuer's key must be an ECDSA key, it is {kind}")
    return key


def _unreadable(why: str) -> CredentialsError:
    return CredentialsError(f"failed to read CA from disk: {why}")


def _spki(key: object) -> bytes:
    """A public key as bytes that can be compared."""
    if isinstance(key, ec.EllipticCurvePublicKey):
        return key.public_bytes(Encoding.DER, _PUBLIC)
    return b"no elliptic curve key"
