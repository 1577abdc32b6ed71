"""Certificates as values: a root, an issuer below it, leaves below that.

Everything that varies is an argument: keys, the two instants and the serial. The
fields are those of `step certificate create` for authorities, and those of
Linkerd's identity service for leaves.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ROOT_PATH_LENGTH = 1
"""One issuer may stand below the root, and none below the issuer."""

EMPTY_NAME = x509.Name([])

_LEAF_KEY_USAGE = x509.KeyUsage(
    digital_signature=True,
    key_encipherment=True,
    content_commitment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)
_CA_KEY_USAGE = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    key_encipherment=False,
    content_commitment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)
_LEAF_USES = x509.ExtendedKeyUsage(
    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
)
_SHA256 = hashes.SHA256()


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A CA certificate and its private key; who holds it can certify."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Whom a leaf is for. `names` keep their order: peers take the first."""

    public_key: ec.EllipticCurvePublicKey
    names: Sequence[x509.GeneralName]
    subject: x509.Name = EMPTY_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """The first and the last instant at which a certificate is good; whole seconds."""

    not_before: dt.datetime
    not_after: dt.datetime


def serial_from(random: bytes) -> int:
    """A serial number from 16 random bytes; never 0, which RFC 5280 forbids."""
    return int.from_bytes(random) or 1


def common_name(name: str) -> x509.Name:
    """A subject of one common name, of at most 64 characters."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def create_root(
    name: str, key: ec.EllipticCurvePrivateKey, validity: Validity, serial: int
) -> Authority:
    """A self-signed trust anchor."""
    subject = common_name(name)
    builder = _ca_builder(subject, key, validity, serial, ROOT_PATH_LENGTH)
    certificate = builder.issuer_name(subject).sign(key, _SHA256)
    return Authority(certificate=certificate, key=key)


def create_issuer(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    validity: Validity,
    serial: int,
    *,
    parent: Authority,
) -> Authority:
    """A CA that certifies workloads; its life ends with its parent's at the latest."""
    clamped = Validity(
        not_before=validity.not_before,
        not_after=min(validity.not_after, parent.certificate.not_valid_after_utc),
    )
    builder = _ca_builder(common_name(name), key, clamped, serial, 0)
    certificate = (
        builder.issuer_name(parent.certificate.subject)
        .add_extension(authority_key_id(parent.certificate), critical=False)
        .sign(parent.key, _SHA256)
    )
    return Authority(certificate=certificate, key=key)


def issue_leaf(
    authority: Authority, holder: Holder, validity: Validity, serial: int
) -> x509.Certificate:
    """A workload's certificate, for both ends of a TLS connection.

    Without a subject its names are critical, as RFC 5280 wants. There are no basic
    constraints and no subject key identifier, as Linkerd's service has none.
    """
    issuer = authority.certificate
    builder = (
        _builder(holder.subject, holder.public_key, validity, serial)
        .issuer_name(issuer.subject)
        .add_extension(_LEAF_KEY_USAGE, critical=True)
        .add_extension(_LEAF_USES, critical=False)
    )
    if (key_id := subject_key_id(issuer)) is not None:
        builder = builder.add_extension(key_id, critical=False)
    san = x509.SubjectAlternativeName(holder.names)
    return builder.add_extension(san, critical=holder.subject == EMPTY_NAME).sign(
        authority.key, _SHA256
    )


def subject_key_id(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier | None:
    """How a leaf names its issuer's key: only if the issuer itself names it."""
    try:
        found = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except x509.ExtensionNotFound:
        return None
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(found.value)


def authority_key_id(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    """How a CA names its parent's key: by the parent's name for it, else its hash."""
    named = subject_key_id(issuer)
    if named is not None:
        return named
    key = issuer.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise TypeError(f"expected an elliptic curve key, found {type(key).__name__}")
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)


def _ca_builder(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    validity: Validity,
    serial: int,
    path_length: int,
) -> x509.CertificateBuilder:
    constraints = x509.BasicConstraints(ca=True, path_length=path_length)
    key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        _builder(subject, key.public_key(), validity, serial)
        .add_extension(_CA_KEY_USAGE, critical=True)
        .add_extension(constraints, critical=True)
        .add_extension(key_id, critical=False)
    )


def _builder(
    subject: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    validity: Validity,
    serial: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(public_key)
        .serial_number(serial)
        .not_valid_before(validity.not_before)
        .not_valid_after(validity.not_after)
    )
