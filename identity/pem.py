"""PEM text: base64 between BEGIN and END lines, and certificates written so."""

from __future__ import annotations

from binascii import Error, a2b_base64, b2a_base64

from identity.der import check_certificate
from identity.errors import BadTrustAnchors

_BEGIN = "-----BEGIN "
_END = "-----END "
_DASHES = "-----"


def decode(text: str) -> list[tuple[str, bytes]]:
    """The labels and contents of all blocks; text around them is skipped.

    Raises ValueError for a block that is cut off, or not base64.
    """
    found = []
    label = None
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith(_BEGIN) and stripped.endswith(_DASHES):
            if label is not None:
                raise ValueError(f"line {number}: {label} has no END line")
            label = stripped[len(_BEGIN) : -len(_DASHES)]
            lines = []
        elif label is not None and stripped == f"{_END}{label}{_DASHES}":
            try:
                found.append((label, a2b_base64("".join(lines), strict_mode=True)))
            except Error as error:
                raise ValueError(f"line {number}: {label} is not base64") from error
            label = None
        elif label is not None:
            lines.append(stripped)
    if label is not None:
        raise ValueError(f"{label} has no END line")
    return found


def encode(label: str, der: bytes) -> str:
    """One block, lines of 64 characters, ending with exactly one newline."""
    base64 = b2a_base64(der, newline=False).decode("ascii")
    lines = [base64[at : at + 64] for at in range(0, len(base64), 64)]
    return "\n".join((f"{_BEGIN}{label}{_DASHES}", *lines, f"{_END}{label}-----\n"))


def certificates(text: str) -> tuple[bytes, ...]:
    """The certificates of a bundle in DER, in order.

    Raises `BadTrustAnchors` unless there is at least one and nothing but
    certificates. A private key among the anchors is a mistake worth stopping for.
    """
    if not text.strip():
        raise BadTrustAnchors("no certificates found")
    try:
        blocks = decode(text)
        for label, der in blocks:
            if label != "CERTIFICATE":
                raise ValueError(f"found a block of {label!r}")  # noqa: TRY301
            check_certificate(der)
    except ValueError as error:
        raise BadTrustAnchors(f"not a PEM certificate: {error}") from error
    if not blocks:
        raise BadTrustAnchors("not a PEM certificate: there is no BEGIN line")
    return tuple(der for _, der in blocks)
