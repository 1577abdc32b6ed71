"""From an issuer up to a trust anchor: RFC 5280's checks of certificate authorities.

Any certificate among the anchors may be trusted, self-signed or not. The library's
own verifier can't be asked: it judges end entities only, never a CA.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TypeAlias, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509.oid import ExtendedKeyUsageOID as Uses

from identity.credentials import BROKEN

Path: TypeAlias = tuple[x509.Certificate, ...]
"""An issuer first, a trust anchor last; one alone when the issuer is an anchor."""

_MAX_PATH = 8
_Kind = TypeVar("_Kind", bound=x509.ExtensionType)


class NoPath(Exception):
    """No chain leads to a trust anchor; the message says where the best one ends."""


def find_path(
    issuer: x509.Certificate,
    others: Sequence[x509.Certificate],
    anchors: Sequence[x509.Certificate],
    now: dt.datetime,
) -> Path:
    """A chain from the issuer to an anchor, all of it able to certify now.

    Raises `NoPath`.
    """
    return _climb((issuer,), others, anchors, now)


def check_times(path: Path, now: dt.datetime) -> None:
    """Raise `NoPath` unless every certificate of the path is valid now."""
    for certificate in path:
        first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if not first <= now <= last:
            raise NoPath(
                "x509: certificate has expired or is not yet valid: "
                f"{certificate.subject.rfc4514_string()} - Current Time : {now} - "
                f"Invalid before {first} - Invalid After {last}"
            )


def check_authority(certificate: x509.Certificate, authorities_below: int) -> None:
    """Raise `NoPath` unless the certificate may certify what the mesh needs."""
    name = certificate.subject.rfc4514_string()
    constraints = _extension(certificate, x509.BasicConstraints)
    if constraints is None or not constraints.ca:
        raise NoPath(f"{name} is no certificate authority")
    limit = constraints.path_length
    if limit is not None and limit < authorities_below:
        raise NoPath(f"{name} allows {limit} authorities below it, not more")
    usage = _extension(certificate, x509.KeyUsage)
    if usage is not None and not usage.key_cert_sign:
        raise NoPath(f"{name} may not sign certificates (key usage)")
    uses = _extension(certificate, x509.ExtendedKeyUsage)
    allowed = {Uses.SERVER_AUTH, Uses.ANY_EXTENDED_KEY_USAGE}
    if uses is not None and not allowed.intersection(uses):
        raise NoPath(f"{name} is not for TLS servers (extended key usage)")


def _climb(
    path: Path,
    others: Sequence[x509.Certificate],
    anchors: Sequence[x509.Certificate],
    now: dt.datetime,
) -> Path:
    try:
        check_times(path[-1:], now)
        check_authority(path[-1], len(path) - 1)
        issuer = path[-1].issuer.rfc4514_string()
    except BROKEN as error:
        raise NoPath(f"x509: a certificate can't be read: {error}") from error
    if path[-1] in anchors:
        return path
    failure = NoPath(f"x509: certificate signed by unknown authority: {issuer}")
    if len(path) == _MAX_PATH:
        raise failure
    for parent in (*anchors, *others):
        if parent in path or not _signed_by(path[-1], parent):
            continue
        try:
            return _climb((*path, parent), others, anchors, now)
        except NoPath as error:
            failure = error
    raise failure


def _signed_by(child: x509.Certificate, parent: x509.Certificate) -> bool:
    try:
        child.verify_directly_issued_by(parent)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _extension(certificate: x509.Certificate, kind: type[_Kind]) -> _Kind | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
