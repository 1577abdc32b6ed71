"""JSON Web Tokens, taken apart and judged: RFC 7515's compact form, RFC 7519's claims.

PyJWT has the keys and the algorithms. Its decoder is not used: it looks at a token
character by character in Python, and at the header twice, which costs a certifying
service more than verifying the signature does. Whatever passes here passes there.
"""

from __future__ import annotations

import json
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Mapping
from math import isfinite
from typing import Any, NamedTuple

from identity.issuer.config import AUDIENCE
from identity.issuer.errors import Malformed

NO_TOKEN = "the token is no JSON Web Token"  # noqa: S105  (a message)

_FROM_URL = bytes.maketrans(b"-_", b"+/")
_TO_URL = bytes.maketrans(b"+/", b"-_")
_loads = json.JSONDecoder().decode


class Token(NamedTuple):
    """The parts of a token; only `header` and `payload` are still encoded."""

    signed: bytes
    header: bytes
    payload: bytes
    signature: bytes


class Header(NamedTuple):
    """What a token says of its signature; nothing is believed of it yet."""

    key_id: str
    algorithm: object


def split(token: bytes) -> Token:
    """The parts of a token. Raises `Malformed`."""
    signed, _, signature = token.rpartition(b".")
    header, dot, payload = signed.partition(b".")
    if not dot:
        raise Malformed(NO_TOKEN)
    return Token(signed, header, payload, _bytes(signature))


def parse_header(encoded: bytes) -> Header:
    """The header, if it asks for nothing that is not done here. Raises `Malformed`."""
    content = _object(encoded)
    key_id = content.get("kid", "")
    # An extension that is critical, or a payload that is not base64: we know of none.
    if not isinstance(key_id, str) or "crit" in content or "b64" in content:
        raise Malformed(NO_TOKEN)
    return Header(key_id, content.get("alg"))


def check_claims(payload: bytes, *, issuer: str, now_s: float, leeway_s: float) -> str:
    """The subject of claims whose signature has been verified. Raises `Malformed`.

    Expiry, issuer, audience and subject all have to be there.
    """
    claims = _object(payload)
    expiry, audience = claims.get("exp"), claims.get("aud")
    found, subject = claims.get("iss"), claims.get("sub")
    if expiry is None or audience is None or found is None or subject is None:
        raise Malformed("the token lacks a claim")
    for begin in ("iat", "nbf"):
        if begin in claims and _seconds(claims[begin]) > now_s + leeway_s:
            raise Malformed("the token is not valid yet")
    if _seconds(expiry) <= now_s - leeway_s:
        raise Malformed("the token has expired")
    if found != issuer:
        raise Malformed("the token has another issuer")
    audiences = audience if isinstance(audience, list) else [audience]
    if AUDIENCE not in audiences:
        raise Malformed(f"the token is not for the audience {AUDIENCE}")
    texts = (subject, claims.get("jti", ""), *audiences)
    if not all(isinstance(text, str) for text in texts):
        raise Malformed(NO_TOKEN)
    return str(subject)


def _seconds(value: object) -> int:
    """Whole seconds since 1970, of a JSON number."""
    if type(value) is int:
        return value
    if type(value) is not float or not isfinite(value):
        raise Malformed(NO_TOKEN)
    return int(value)


def _object(encoded: bytes) -> Mapping[str, Any]:
    try:
        content = _loads(_bytes(encoded).decode())
    except (ValueError, RecursionError):
        raise Malformed(NO_TOKEN) from None
    if not isinstance(content, dict):
        raise Malformed(NO_TOKEN)
    return content


def _bytes(encoded: bytes) -> bytes:
    """What base64url without padding stands for, in the one way it can be written."""
    padded = encoded.translate(_FROM_URL) + b"=" * (-len(encoded) % 4)
    try:
        decoded = a2b_base64(padded)
    except Error:
        raise Malformed(NO_TOKEN) from None
    # The decoder skips what is no base64; written again, nothing may be missing.
    if b2a_base64(decoded, newline=False).translate(_TO_URL).rstrip(b"=") != encoded:
        raise Malformed(NO_TOKEN)
    return decoded
