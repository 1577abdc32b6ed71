"""Leaf certificates from a template: what all of them share is encoded only once.

The X.509 builder encodes every field of every certificate anew, and checks what can't
change between two of them. The parts that are the same come from one certificate
that it made; a test compares what is made here with its work, byte by byte.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from identity import ca
from identity.der import (
    BIT_STRING,
    BOOLEAN,
    GENERALIZED_TIME,
    INTEGER,
    OCTET_STRING,
    OID,
    SEQUENCE,
    UTC_TIME,
    context,
    elements,
    encode,
)

DNS, URI = context(2, constructed=False), context(6, constructed=False)
"""The kinds of names that a leaf may have, by their tags."""

NO_SUBJECT = encode(SEQUENCE)

_SAN = encode(OID, bytes.fromhex("551d11"))
_CRITICAL = encode(BOOLEAN, b"\xff")
_FIRST_YEAR_OF_LONG_DATES = 2050
_ECDSA_SHA256 = ec.ECDSA(hashes.SHA256())


@dataclass(frozen=True, slots=True)
class Template:
    """What an authority's leaves share, DER; of the extensions all but the names."""

    version: bytes
    issuer: bytes
    extensions: bytes
    algorithm: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """What differs from leaf to leaf, DER; `names` are tags with their ASCII text."""

    subject: bytes
    public_key: bytes
    names: Sequence[tuple[int, str]]
    validity: bytes
    serial: int


def template(authority: ca.Authority) -> Template:
    """The template of an authority, taken from a leaf that the builder makes."""
    end = authority.certificate.not_valid_after_utc
    specimen = ca.issue_leaf(
        authority,
        ca.Holder(public_key=authority.key.public_key(), names=[x509.DNSName("a")]),
        ca.Validity(not_before=end, not_after=end),
        1,
    )
    version, _, algorithm, issuer, _, _, _, (_, extensions) = elements(
        _content(specimen.tbs_certificate_bytes)
    )
    *shared, _ = elements(_content(extensions))
    return Template(
        version=encode(*version),
        issuer=encode(*algorithm) + encode(*issuer),
        extensions=b"".join(encode(*extension) for extension in shared),
        algorithm=encode(*algorithm),
    )


def issue(made_of: Template, key: ec.EllipticCurvePrivateKey, fields: Fields) -> bytes:
    """A signed certificate, DER, as `ca.issue_leaf` makes it."""
    body = to_be_signed(made_of, fields)
    signature = encode(BIT_STRING, b"\0", key.sign(body, _ECDSA_SHA256))
    return encode(SEQUENCE, body, made_of.algorithm, signature)


def to_be_signed(made_of: Template, fields: Fields) -> bytes:
    """A certificate, DER, before its signature."""
    names = b"".join(encode(tag, text.encode("ascii")) for tag, text in fields.names)
    critical = _CRITICAL if fields.subject == NO_SUBJECT else b""
    san = encode(OCTET_STRING, encode(SEQUENCE, names))
    extensions = made_of.extensions + encode(SEQUENCE, _SAN, critical, san)
    serial = fields.serial
    return encode(
        SEQUENCE,
        made_of.version,
        encode(INTEGER, serial.to_bytes(serial.bit_length() // 8 + 1, "big")),
        made_of.issuer,
        fields.validity,
        fields.subject,
        fields.public_key,
        encode(context(3), encode(SEQUENCE, extensions)),
    )


def validity_der(validity: ca.Validity) -> bytes:
    """The two instants of a certificate, in UTC and whole seconds."""
    return encode(SEQUENCE, _time(validity.not_before), _time(validity.not_after))


def _time(instant: dt.datetime) -> bytes:
    """RFC 5280: two digits of the year up to 2049, four from then on."""
    text = instant.strftime("%m%d%H%M%SZ").encode("ascii")
    if instant.year < _FIRST_YEAR_OF_LONG_DATES:
        return encode(UTC_TIME, b"%02d" % (instant.year % 100), text)
    return encode(GENERALIZED_TIME, b"%04d" % instant.year, text)


def _content(der: bytes) -> bytes:
    """What is in the only element."""
    ((_, content),) = elements(der)
    return content
