"""Certificates, judged by openssl and not only by the library that made them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from identity import ca
from identity.testing import CA, new_key, whole_second
from identity.testing.calls import NAME
from identity.testing.witness import as_text, openssl, section


def test_openssl_verifies_leaf_issuer_and_root(tmp_path: Path) -> None:
    """A leaf, its issuer and the root form a chain for openssl, in strict mode."""
    root = CA()
    leaf = root.issuer().leaf(NAME)
    (tmp_path / "root.pem").write_bytes(root.pem)
    crt, _ = leaf.write(tmp_path)
    said = openssl(
        *("verify", "-purpose", "sslserver", "-CAfile", tmp_path / "root.pem"),
        *("-untrusted", crt, crt),
    )
    assert said.strip().endswith("OK")


@pytest.mark.parametrize(
    ("is_root", "path_length", "extensions"),
    [
        pytest.param(True, 1, 3, id="a root has no AKI and lets one CA stand below"),
        pytest.param(False, 0, 4, id="an issuer lets no CA stand below"),
    ],
)
def test_authorities_have_the_fields_of_step(
    tmp_path: Path, *, is_root: bool, path_length: int, extensions: int
) -> None:
    """Usage, constraints and key identifiers are those that `step` writes."""
    root = CA()
    made = root if is_root else root.issuer()
    text = as_text(made.certificate, tmp_path)
    assert section(text, "X509v3 Key Usage") == "critical|Certificate Sign, CRL Sign"
    constraints = section(text, "X509v3 Basic Constraints")
    assert constraints == f"critical|CA:TRUE, pathlen:{path_length}"
    assert "Signature Algorithm: ecdsa-with-SHA256" in text
    assert "Extended Key Usage" not in text
    assert "Subject Alternative Name" not in text
    assert ("Authority Key Identifier" in text) is not is_root
    assert len(made.certificate.extensions) == extensions


def test_a_leaf_has_the_fields_of_upstream(tmp_path: Path) -> None:
    """Extensions and their order: usage, extended usage, AKI, critical SAN."""
    issuer = CA().issuer()
    certificate = issuer.leaf(NAME, uris=["spiffe://td/ns/a/sa/b"]).certificate
    text = as_text(certificate, tmp_path)
    usage = section(text, "X509v3 Key Usage")
    assert usage == "critical|Digital Signature, Key Encipherment"
    uses = section(text, "X509v3 Extended Key Usage")
    assert uses == "|TLS Web Server Authentication, TLS Web Client Authentication"
    san = section(text, "X509v3 Subject Alternative Name")
    assert san == f"critical|DNS:{NAME}, URI:spiffe://td/ns/a/sa/b"
    assert [e.oid.dotted_string for e in certificate.extensions] == [
        *("2.5.29.15", "2.5.29.37", "2.5.29.35", "2.5.29.17")
    ]
    usage_der = certificate.extensions[0].value.public_bytes()
    assert usage_der.hex() == "030205a0"


def test_an_issuer_ends_with_its_parent() -> None:
    """Nothing that an authority signs outlives the authority."""
    end = whole_second() + dt.timedelta(hours=1)
    root = CA(not_after=end)
    issuer = root.issuer(not_after=end + dt.timedelta(days=9))
    assert issuer.certificate.not_valid_after_utc == end


def test_a_leaf_names_no_key_that_its_issuer_does_not_name() -> None:
    """Without a subject key identifier above there is no authority one below."""
    key, now = new_key(), whole_second()
    name = ca.common_name("bare")
    bare = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    leaf = ca.issue_leaf(
        ca.Authority(certificate=bare, key=key),
        ca.Holder(public_key=new_key().public_key(), names=[x509.DNSName(NAME)]),
        ca.Validity(not_before=now, not_after=now),
        serial=7,
    )
    assert [e.oid.dotted_string for e in leaf.extensions] == [
        *("2.5.29.15", "2.5.29.37", "2.5.29.17")
    ]


def test_keys_are_not_shown() -> None:
    """An authority and a leaf can be printed without telling a secret."""
    authority = CA().authority
    assert "key=" not in repr(authority)


@pytest.mark.parametrize(
    ("random", "serial"),
    [
        pytest.param(bytes(16), 1, id="zero is no serial number"),
        pytest.param(b"\xff" * 16, 2**128 - 1, id="all 128 bits are used"),
    ],
)
def test_serials_come_from_the_bytes_given(random: bytes, serial: int) -> None:
    """A serial number is the random bytes as a number, and positive."""
    assert ca.serial_from(random) == serial
