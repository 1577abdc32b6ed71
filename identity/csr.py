"""The private key and the signing request as bytes: pure functions of numbers.

Byte for byte what Go's ``crypto/x509``, and so upstream, writes: the proxy reads
these files with a parser of its own.
"""

from __future__ import annotations

from identity.der import (
    BIT_STRING,
    INTEGER,
    OCTET_STRING,
    OID,
    PRINTABLE_STRING,
    SEQUENCE,
    SET,
    context,
    encode,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_EC_P256 = encode(
    SEQUENCE,
    encode(OID, bytes.fromhex("2a8648ce3d0201")),  # 1.2.840.10045.2.1 ecPublicKey
    encode(OID, bytes.fromhex("2a8648ce3d030107")),  # 1.2.840.10045.3.1.7 P-256
)
P256 = bytes((SEQUENCE, 0x59)) + _EC_P256 + bytes((BIT_STRING, 0x42, 0x00, 0x04))
"""How a P-256 public key begins, DER and uncompressed; x and y follow."""

P256_SIZE = len(P256) + 64

_ECDSA_SHA256 = encode(SEQUENCE, encode(OID, bytes.fromhex("2a8648ce3d040302")))
_COMMON_NAME = encode(OID, bytes.fromhex("550403"))
_SUBJECT_ALT_NAME = encode(OID, bytes.fromhex("551d11"))
_EXTENSION_REQUEST = encode(OID, bytes.fromhex("2a864886f70d01090e"))
_ZERO = encode(INTEGER, b"\x00")
_ONE = encode(INTEGER, b"\x01")
_DNS_NAME = context(2, constructed=False)


def key_der(scalar: int, point: bytes) -> bytes:
    """A P-256 private key as PKCS#8, unencrypted, with its public point: 138 bytes.

    `point` is uncompressed: 0x04, x, y.
    """
    key = encode(
        SEQUENCE,
        _ONE,
        encode(OCTET_STRING, scalar.to_bytes(32, "big")),
        encode(context(1), encode(BIT_STRING, b"\x00", point)),
    )
    return encode(SEQUENCE, _ZERO, _EC_P256, encode(OCTET_STRING, key))


def csr_der(name: str, point: bytes, sign: Callable[[bytes], bytes]) -> bytes:
    """A PKCS#10 request for one DNS name: as common name and as the only SAN.

    `name` is a checked local name; `sign` returns the ECDSA-SHA256 signature in
    DER. The common name may have more than the 64 characters that RFC 5280 grants.
    """
    info = request_info(common_name(name), P256 + point[1:], name)
    signature = encode(BIT_STRING, b"\x00", sign(info))
    return encode(SEQUENCE, info, _ECDSA_SHA256, signature)


def common_name(name: str, kind: int = PRINTABLE_STRING) -> bytes:
    """A subject of one common name, as the kind of string that the tag says."""
    text = encode(kind, name.encode("ascii"))
    return encode(SEQUENCE, encode(SET, encode(SEQUENCE, _COMMON_NAME, text)))


def request_info(subject: bytes, public_key: bytes, name: str) -> bytes:
    """What a request for one DNS name says, before its signature; all DER."""
    names = encode(SEQUENCE, encode(_DNS_NAME, name.encode("ascii")))
    san = encode(SEQUENCE, _SUBJECT_ALT_NAME, encode(OCTET_STRING, names))
    attribute = encode(SEQUENCE, _EXTENSION_REQUEST, encode(SET, encode(SEQUENCE, san)))
    return encode(SEQUENCE, _ZERO, subject, public_key, encode(context(0), attribute))
