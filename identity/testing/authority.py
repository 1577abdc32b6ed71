"""A certificate authority in memory, which also certifies what it should not."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from identity import ca

_DAY = dt.timedelta(days=1)


def whole_second(instant: dt.datetime | None = None) -> dt.datetime:
    """The instant, or now, in UTC and without its fraction, as X.509 counts."""
    at = instant or dt.datetime.now(tz=dt.UTC)
    return at.astimezone(dt.UTC).replace(microsecond=0)


def new_key() -> ec.EllipticCurvePrivateKey:
    """A P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as unencrypted PKCS#8 PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def csr_der(
    name: str, key: ec.EllipticCurvePrivateKey, *, common_name: bool = False
) -> bytes:
    """A signing request for one DNS name, with or without a subject."""
    subject = ca.common_name(name) if common_name else ca.EMPTY_NAME
    san = x509.SubjectAlternativeName([x509.DNSName(name)])
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject)
        .add_extension(san, critical=False)
        .sign(key, hashes.SHA256())
    )
    return request.public_bytes(serialization.Encoding.DER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A certificate with its key, and the authorities between it and the root."""

    certificate: x509.Certificate
    chain: tuple[x509.Certificate, ...]
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def der(self) -> bytes:
        """The certificate alone, DER."""
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def chain_der(self) -> tuple[bytes, ...]:
        """The certificates above it, DER, nearest first, without the root."""
        return tuple(c.public_bytes(serialization.Encoding.DER) for c in self.chain)

    @property
    def pem(self) -> bytes:
        """The certificate and those above it, PEM, as servers present them."""
        return b"".join(
            c.public_bytes(serialization.Encoding.PEM)
            for c in (self.certificate, *self.chain)
        )

    @property
    def key_pem(self) -> bytes:
        """The private key, PEM."""
        return key_pem(self.key)

    def write(self, folder: Path, stem: str = "tls") -> tuple[Path, Path]:
        """Write `<stem>.crt` and `<stem>.key`, which `ssl` loads; their paths."""
        paths = folder / f"{stem}.crt", folder / f"{stem}.key"
        paths[0].write_bytes(self.pem)
        paths[1].write_bytes(self.key_pem)
        return paths


class CA:
    """An authority: a root when made by itself, below another by `issuer`.

    Validity is ten days around now unless said otherwise, so that a test can make
    certificates that have expired, or are not valid yet, under an authority that
    is good.
    """

    def __init__(
        self,
        name: str = "root.linkerd.cluster.local",
        *,
        not_before: dt.datetime | None = None,
        not_after: dt.datetime | None = None,
    ) -> None:
        self.parent: CA | None = None
        validity = _validity(not_before, not_after)
        self.authority = ca.create_root(name, new_key(), validity, new_serial())

    @property
    def certificate(self) -> x509.Certificate:
        """The authority's own certificate."""
        return self.authority.certificate

    @property
    def pem(self) -> bytes:
        """The authority's own certificate, PEM: a trust anchor, if it is a root."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The authority's private key, PEM."""
        return key_pem(self.authority.key)

    @property
    def chain(self) -> tuple[x509.Certificate, ...]:
        """This authority and those above it, without the root."""
        above = () if self.parent is None else self.parent.chain
        return () if self.parent is None else (self.certificate, *above)

    def issuer(
        self,
        name: str = "identity.linkerd.cluster.local",
        *,
        not_before: dt.datetime | None = None,
        not_after: dt.datetime | None = None,
    ) -> CA:
        """An authority that this one certifies."""
        validity = _validity(not_before, not_after)
        made = CA.__new__(CA)
        made.parent = self
        made.authority = ca.create_issuer(
            name, new_key(), validity, new_serial(), parent=self.authority
        )
        return made

    def leaf(  # noqa: PLR0913  (each option is one way to go wrong)
        self,
        name: str = "",
        *,
        uris: Sequence[str] = (),
        dns: Sequence[str] = (),
        ips: Sequence[str] = (),
        not_before: dt.datetime | None = None,
        not_after: dt.datetime | None = None,
        key: ec.EllipticCurvePrivateKey | None = None,
        public_key: ec.EllipticCurvePublicKey | None = None,
    ) -> Leaf:
        """A leaf for `name`, then `dns`, `uris` and `ips`; any may be missing.

        With `public_key` alone the leaf's `key` is a fresh one, that does not
        belong to the certificate.
        """
        own = key or new_key()
        certificate = ca.issue_leaf(
            self.authority,
            ca.Holder(
                public_key=public_key or own.public_key(),
                names=[
                    *(x509.DNSName(n) for n in (*([name] if name else []), *dns)),
                    *(x509.UniformResourceIdentifier(uri) for uri in uris),
                    *(x509.IPAddress(ip_address(ip)) for ip in ips),
                ],
            ),
            _validity(not_before, not_after, _DAY),
            new_serial(),
        )
        return Leaf(certificate=certificate, chain=self.chain, key=own)

    def write(self, folder: Path, stem: str = "tls") -> tuple[Path, Path]:
        """Write `<stem>.crt` and `<stem>.key`, as an issuer's folder holds them."""
        chain = self.chain or (self.certificate,)
        paths = folder / f"{stem}.crt", folder / f"{stem}.key"
        paths[0].write_bytes(
            b"".join(c.public_bytes(serialization.Encoding.PEM) for c in chain)
        )
        paths[1].write_bytes(self.key_pem)
        return paths


def new_serial() -> int:
    """A random serial number of 128 bits."""
    return ca.serial_from(os.urandom(16))


def _validity(
    not_before: dt.datetime | None,
    not_after: dt.datetime | None,
    either_way: dt.timedelta = 10 * _DAY,
) -> ca.Validity:
    now = whole_second()
    return ca.Validity(
        not_before=whole_second(not_before or now - either_way),
        not_after=whole_second(not_after or now + either_way),
    )
