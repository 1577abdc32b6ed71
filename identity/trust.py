"""Whom to believe: the service's certificate, and the one it issues to us.

Pure functions of bytes and an instant. Chains end at any configured anchor, self
signed or not; names are compared exactly, without wildcards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, SignatureAlgorithmOID
from cryptography.x509.verification import (
    Criticality,
    ExtensionPolicy,
    Policy,
    PolicyBuilder,
    Store,
    VerificationError,
)

from identity import pem
from identity.credentials import (
    Answer,
    Credential,
    key_pem,
    load_certificate,
    spki,
)
from identity.errors import BadTrustAnchors, CertificateRejected, ServiceUntrusted

_SIGNATURES = frozenset(
    (
        SignatureAlgorithmOID.ECDSA_WITH_SHA256,
        SignatureAlgorithmOID.ECDSA_WITH_SHA384,
        SignatureAlgorithmOID.ECDSA_WITH_SHA512,
        SignatureAlgorithmOID.ED25519,
        SignatureAlgorithmOID.RSA_WITH_SHA256,
        SignatureAlgorithmOID.RSA_WITH_SHA384,
        SignatureAlgorithmOID.RSA_WITH_SHA512,
    )
)
"""What the proxies of the mesh take in a chain; RSA-PSS is not among them."""


def _must_be_authority(
    _: Policy, __: x509.Certificate, found: x509.BasicConstraints
) -> None:
    if not found.ca:
        raise ValueError("a certificate in the chain is no authority's")


def _may_sign(_: Policy, __: x509.Certificate, found: x509.KeyUsage | None) -> None:
    if found is not None and not found.key_cert_sign:
        raise ValueError("an authority in the chain may not sign certificates")


def _must_be_workload(
    _: Policy, __: x509.Certificate, found: x509.BasicConstraints | None
) -> None:
    if found is not None and found.ca:
        raise ValueError("it is an authority's, not a workload's")


def _may_serve(
    _: Policy, __: x509.Certificate, found: x509.ExtendedKeyUsage | None
) -> None:
    if found is not None and ExtendedKeyUsageOID.SERVER_AUTH not in found:
        raise ValueError("it may not be used by a server")


# Not the web's rules: Linkerd's certificates lack the identifiers of keys that
# those ask for, and peers do not ask for them either.
_AUTHORITY = (
    ExtensionPolicy.permit_all()
    .require_present(x509.BasicConstraints, Criticality.AGNOSTIC, _must_be_authority)
    .may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _may_sign)
)
_WORKLOAD = (
    ExtensionPolicy.permit_all()
    .may_be_present(x509.BasicConstraints, Criticality.AGNOSTIC, _must_be_workload)
    .may_be_present(x509.ExtendedKeyUsage, Criticality.AGNOSTIC, _may_serve)
)


@dataclass(frozen=True, slots=True)
class Anchors:
    """The certificates that are trusted, and their text with one newline at the end."""

    certificates: tuple[x509.Certificate, ...]
    text: str

    @classmethod
    def parse(cls, text: str) -> Anchors:
        """Anchors from PEM. Raises `BadTrustAnchors`."""
        blocks = pem.certificates(text)
        try:
            found = tuple(map(load_certificate, blocks))
        except ValueError as error:
            raise BadTrustAnchors(f"not an X.509 certificate: {error}") from error
        joined = "".join(pem.encode("CERTIFICATE", der) for der in blocks)
        return cls(found, joined)


def accept(
    answer: Answer,
    *,
    key: ec.EllipticCurvePrivateKey,
    name: str,
    anchors: Anchors,
    now: datetime,
) -> Credential:
    """Judge an answer; each refusal has its own message.

    Raises `CertificateRejected`. The expiry of what is accepted is the answer's or
    the certificate's, whichever is earlier.
    """
    if answer.valid_until is None:
        raise CertificateRejected("identity certification missing expiration")
    if answer.valid_until <= now:
        raise CertificateRejected(
            f"certificate already expired: valid until {_told(answer.valid_until)}, "
            f"and it is {_told(now)}"
        )
    leaf = _load(answer.leaf_der, "the certificate")
    intermediates = [
        _load(der, f"intermediate certificate {number}")
        for number, der in enumerate(answer.intermediates_der, 1)
    ]
    if spki(leaf) != spki(key):
        raise CertificateRejected(
            "the certificate is for another key: expected the one in the request"
        )
    names = sans(leaf)
    if name not in names:
        held = ", ".join(map(repr, names)) or "nobody"
        raise CertificateRejected(f"the certificate is for {held}: expected {name!r}")
    verify(leaf, intermediates, anchors, now)
    return Credential(
        key_pem=key_pem(key),
        chain_pem="".join(
            pem.encode("CERTIFICATE", der)
            for der in (answer.leaf_der, *answer.intermediates_der)
        ),
        names=names,
        expiry=min(answer.valid_until, leaf.not_valid_after_utc),
    )


def verify(
    leaf: x509.Certificate,
    intermediates: Sequence[x509.Certificate],
    anchors: Anchors,
    now: datetime,
) -> None:
    """Check that a workload's certificate leads to an anchor and is valid now.

    Raises `CertificateRejected`.
    """
    if now < leaf.not_valid_before_utc:
        raise CertificateRejected(
            f"the certificate is not valid before {_told(leaf.not_valid_before_utc)}, "
            f"and it is {_told(now)}: compare the clocks"
        )
    if now > leaf.not_valid_after_utc:
        raise CertificateRejected(
            f"the certificate expired at {_told(leaf.not_valid_after_utc)}, "
            f"and it is {_told(now)}"
        )
    for certificate in (leaf, *intermediates):
        if certificate.signature_algorithm_oid not in _SIGNATURES:
            raise CertificateRejected(
                "a certificate of the chain is signed in a way that proxies refuse: "
                f"{certificate.signature_algorithm_oid.dotted_string}"
            )
    verifier = (
        PolicyBuilder()
        .store(Store(list(anchors.certificates)))
        .time(now)
        .extension_policies(ca_policy=_AUTHORITY, ee_policy=_WORKLOAD)
        .build_client_verifier()
    )
    try:
        verifier.verify(leaf, list(intermediates))
    except (VerificationError, ValueError) as error:
        raise CertificateRejected(
            f"the certificate does not lead to the trust anchors: {error}"
        ) from error


def check_service(leaf_der: bytes, expected: str) -> None:
    """Check that a certificate, whose chain was verified, is the service's.

    Raises `ServiceUntrusted`.
    """
    try:
        names = sans(load_certificate(leaf_der))
    except ValueError as error:
        raise ServiceUntrusted(f"the peer's certificate is broken: {error}") from error
    if expected not in names:
        held = ", ".join(map(repr, names)) or "no name"
        raise ServiceUntrusted(
            f"certificate does not match TLS identity: it holds {held}, "
            f"expected {expected!r}"
        )


def sans(certificate: x509.Certificate) -> tuple[str, ...]:
    """The DNS and URI names that a certificate is for, in its order."""
    try:
        found = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except x509.ExtensionNotFound:
        return ()
    return tuple(
        name.value
        for name in found.value
        if isinstance(name, x509.DNSName | x509.UniformResourceIdentifier)
    )


def _load(der: bytes, what: str) -> x509.Certificate:
    try:
        return load_certificate(der)
    except ValueError as error:
        raise CertificateRejected(f"{what} is not X.509 in DER: {error}") from error


def _told(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%d %H:%M:%S UTC")
