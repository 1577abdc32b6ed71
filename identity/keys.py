"""Making a key, and the two files that the proxy reads: key.p8 and csr.der."""

from __future__ import annotations

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from identity import csr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    KeyMaker = Callable[[], ec.EllipticCurvePrivateKey]


def generate() -> ec.EllipticCurvePrivateKey:
    """A new P-256 key, from the system's randomness."""
    return ec.generate_private_key(ec.SECP256R1())


def key_der(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The key as the proxy reads it: PKCS#8 in DER."""
    return csr.key_der(key.private_numbers().private_value, _point(key))


def csr_der(key: ec.EllipticCurvePrivateKey, name: str) -> bytes:
    """A request to certify the key for a checked local name: PKCS#10 in DER."""
    return csr.csr_der(
        name, _point(key), lambda data: key.sign(data, ec.ECDSA(hashes.SHA256()))
    )


def _point(key: ec.EllipticCurvePrivateKey) -> bytes:
    numbers = key.public_key().public_numbers()
    return b"\x04" + numbers.x.to_bytes(32, "big") + numbers.y.to_bytes(32, "big")
