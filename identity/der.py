"""The little of DER that a key, a CSR and a look at a certificate need.

Written by hand because the bootstrap runs at every start of every pod: the X.509
part of `cryptography` would add half to its start-up time, and it refuses names
of more than 64 characters, which identities often have.
"""

from __future__ import annotations

BOOLEAN = 0x01
INTEGER = 0x02
BIT_STRING = 0x03
OCTET_STRING = 0x04
OID = 0x06
UTF8_STRING = 0x0C
PRINTABLE_STRING = 0x13
UTC_TIME = 0x17
GENERALIZED_TIME = 0x18
SEQUENCE = 0x30
SET = 0x31

_CONSTRUCTED = 0x20
_MAX_DEPTH = 16
"""Certificates nest 10 deep; what nests deeper is no certificate."""


def context(number: int, *, constructed: bool = True) -> int:
    """The tag ``[number]`` of a structure's own."""
    return 0x80 | number | (_CONSTRUCTED if constructed else 0)


def encode(tag: int, *parts: bytes) -> bytes:
    """One element: tag, length, and the parts one after the other."""
    body = b"".join(parts)
    size = len(body)
    if size < 0x80:
        return bytes((tag, size)) + body
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + body


def elements(data: bytes) -> list[tuple[int, bytes]]:
    """The tags and contents of consecutive elements; ValueError if it is no DER."""
    found = []
    at = 0
    while at < len(data):
        tag = data[at]
        if tag & 0x1F == 0x1F or at + 2 > len(data):
            raise ValueError("a tag or length is cut off, or of a kind X.509 lacks")
        size = data[at + 1]
        at += 2
        if size >= 0x80:
            count = size & 0x7F
            length = data[at : at + count]
            size = int.from_bytes(length, "big")
            # DER has one way to write a length: the shortest.
            if not 0 < count == len(length) <= 4 or size < 0x80 or not length[0]:
                raise ValueError("a length is not as DER writes it")
            at += count
        if at + size > len(data):
            raise ValueError("an element is longer than what holds it")
        found.append((tag, data[at : at + size]))
        at += size
    return found


_CERTIFICATE = (SEQUENCE, SEQUENCE, BIT_STRING)
_TBS = (INTEGER, SEQUENCE, SEQUENCE, SEQUENCE, SEQUENCE, SEQUENCE)
"""Serial number, algorithm, issuer, validity, subject, public key."""


def check_certificate(der: bytes) -> None:
    """Raise ValueError unless this has the structure of one X.509 certificate.

    Every element inside has to be whole, and the fields have to be there and of
    their kinds. Signatures and extensions are for others to judge.
    """
    outer = elements(der)
    if len(outer) != 1 or outer[0][0] != SEQUENCE:
        raise ValueError("expected one DER sequence and nothing after it")
    fields = elements(outer[0][1])
    if tuple(tag for tag, _ in fields) != _CERTIFICATE:
        raise ValueError("expected a body, an algorithm and a signature")
    body = elements(fields[0][1])
    if body and body[0][0] == context(0):  # the version; absent means 1
        del body[0]
    if tuple(tag for tag, _ in body[: len(_TBS)]) != _TBS:
        raise ValueError("fields of the certificate are missing or out of order")
    times = [tag for tag, _ in elements(body[3][1])]
    if len(times) != 2 or not {UTC_TIME, GENERALIZED_TIME}.issuperset(times):
        raise ValueError("expected two dates between which it is valid")
    _check_nesting(der, 0)


def _check_nesting(data: bytes, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deep for a certificate")
    for tag, content in elements(data):
        if tag & _CONSTRUCTED:
            _check_nesting(content, depth + 1)
