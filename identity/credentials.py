"""Key, request, answer, certificate: what is exchanged, as values.

None of their texts shows a key, a request or a token.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
)
from cryptography.utils import CryptographyDeprecationWarning

from identity.errors import BadKeyPair

BROKEN = (
    ValueError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""What cryptography raises for bytes it can't read; only one is a ValueError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A private key, and the request to certify it, as bytes on the wire."""

    key: ec.EllipticCurvePrivateKey = field(repr=False)
    csr_der: bytes = field(repr=False)

    @classmethod
    def load(cls, key_der: bytes, csr_der: bytes) -> KeyPair:
        """A pair from the bytes of two files. Raises `BadKeyPair`.

        Neither the key nor the request is ever part of a message.
        """
        try:
            key = load_der_private_key(key_der, None)
        except (*BROKEN, TypeError) as error:
            raise BadKeyPair("expected a private key as PKCS#8 in DER") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.key_size != 256:
            raise BadKeyPair("expected a private key of the curve P-256")
        try:
            request = x509.load_der_x509_csr(csr_der)
            matches = spki(request) == spki(key)
        except BROKEN as error:
            raise BadKeyPair("expected a request as PKCS#10 in DER") from error
        if not matches:
            raise BadKeyPair("the request is for another key")
        return cls(key=key, csr_der=csr_der)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the service returned, not judged yet."""

    leaf_der: bytes
    intermediates_der: Sequence[bytes]
    valid_until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A certificate in use: key, chain, and when it ends."""

    key_pem: str = field(repr=False)
    chain_pem: str = field(repr=False)
    names: tuple[str, ...]
    expiry: datetime

    def valid(self, now: datetime) -> bool:
        """Whether it has not expired."""
        return now < self.expiry


@contextlib.contextmanager
def any_serial() -> Iterator[None]:
    """Let serial numbers below 1 pass, which old roots have, without the warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        yield


def load_certificate(der: bytes) -> x509.Certificate:
    """A certificate of which every part can be read; ValueError otherwise."""
    try:
        with any_serial():
            certificate = x509.load_der_x509_certificate(der)
        certificate.extensions  # noqa: B018  (parsed when first looked at)
        certificate.public_key()
    except BROKEN as error:
        raise ValueError(str(error)) from error
    return certificate


def spki(
    holder: x509.Certificate
    | x509.CertificateSigningRequest
    | ec.EllipticCurvePrivateKey,
) -> bytes:
    """The public key as bytes, to compare."""
    return holder.public_key().public_bytes(
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    )


def key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    """The private key as TLS servers read it: PKCS#8 in PEM."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
