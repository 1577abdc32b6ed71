"""The bytes of key.p8 and csr.der, judged by openssl and by cryptography."""

from __future__ import annotations

import subprocess
import warnings
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from identity import der, keys

NAME = "web.emojivoto.serviceaccount.identity.linkerd.cluster.local"
LONG = ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 61])


def openssl(*arguments: str, stdin: bytes = b"") -> str:
    """What openssl says; it must not fail."""
    ran = subprocess.run(
        ["openssl", *arguments],  # noqa: S607  (the witness is the system's)
        input=stdin,
        capture_output=True,
        check=True,
    )
    return (ran.stdout + ran.stderr).decode()


@given(st.integers(1, 2**255))
@settings(max_examples=30, deadline=None)
def test_the_key_is_what_cryptography_writes(scalar: int) -> None:
    """PKCS#8 of any key: 138 bytes, equal to another implementation's."""
    key = ec.derive_private_key(scalar, ec.SECP256R1())
    written = key.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )

    assert keys.key_der(key) == written
    assert len(written) == 138


def test_openssl_takes_the_key() -> None:
    """An independent program reads the key and finds it sound."""
    key = keys.key_der(keys.generate())
    assert "Key is valid" in openssl("pkey", "-inform", "DER", "-check", stdin=key)


@pytest.mark.parametrize("name", [NAME, "a.b", "a.b.", LONG], ids=len)
def test_openssl_takes_the_csr(name: str) -> None:
    """The request verifies, and names the identity twice, however long it is."""
    request = keys.csr_der(keys.generate(), name)

    text = openssl("req", "-inform", "DER", "-noout", "-text", "-verify", stdin=request)

    assert "verify OK" in text
    assert f"Subject: CN = {name}\n" in text
    assert f"DNS:{name}\n" in text
    assert "Signature Algorithm: ecdsa-with-SHA256" in text


def test_the_csr_has_exactly_what_go_writes() -> None:
    """Version 0, a printable common name, one extension that is not critical."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a common name over 64 characters
        request = x509.load_der_x509_csr(keys.csr_der(keys.generate(), LONG))
        (name,) = request.subject
    (extension,) = request.extensions

    assert (name.oid, name.value) == (x509.NameOID.COMMON_NAME, LONG)
    assert name._type.name == "PrintableString"  # noqa: SLF001  (no other witness)
    assert not extension.critical
    assert extension.value == x509.SubjectAlternativeName([x509.DNSName(LONG)])
    assert request.is_signature_valid
    assert (
        openssl(
            "asn1parse",
            "-inform",
            "DER",
            stdin=request.public_bytes(serialization.Encoding.DER),
        )
        .splitlines()[2]
        .endswith("INTEGER           :00")
    )


# === DER and the structure of certificates ===


@given(st.binary(max_size=70_000), st.integers(0, 0x1E))
@settings(max_examples=50, deadline=None)
def test_elements_are_read_back(data: bytes, tag: int) -> None:
    """What is encoded is decoded, at every size of the length."""
    assert der.elements(der.encode(tag, data) * 2) == [(tag, data)] * 2


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("30", id="no length"),
        pytest.param("3005aabb", id="shorter than it says"),
        pytest.param("308005", id="indefinite length"),
        pytest.param("30810100", id="long form of a short length"),
        pytest.param("3082000100", id="leading zero"),
        pytest.param("30850000000001aa", id="length of five bytes"),
        pytest.param("1f8101", id="tag of several bytes"),
        pytest.param("3082", id="length cut off"),
    ],
)
def test_what_is_not_der(data: str) -> None:
    """DER has one way to say a thing; other ways are refused."""
    with pytest.raises(ValueError, match=r"."):
        der.elements(bytes.fromhex(data))


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A certificate in DER made by openssl."""
    path = tmp_path_factory.mktemp("ca")
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *("-nodes", "-keyout", str(path / "k"), "-out", str(path / "c")),
        *("-subj", "/CN=root", "-outform", "DER"),
    )
    return Path(path / "c").read_bytes()


def test_certificates_have_the_structure_of_one(certificate: bytes) -> None:
    """A certificate passes; cut short, lengthened or a CSR instead does not."""
    der.check_certificate(certificate)
    request = keys.csr_der(keys.generate(), NAME)
    cut = [certificate[:size] for size in range(len(certificate))]
    for wrong in (request, certificate * 2, certificate + b"\0", *cut):
        with pytest.raises(ValueError, match=r"."):
            der.check_certificate(wrong)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_any_changed_byte_leads_to_a_verdict(
    certificate: bytes, data: st.DataObject
) -> None:
    """A certificate with one byte changed passes or is refused; nothing else."""
    at = data.draw(st.integers(0, len(certificate) - 1))
    value = data.draw(st.integers(0, 255))
    changed = certificate[:at] + bytes((value,)) + certificate[at + 1 :]
    try:
        der.check_certificate(changed)
    except ValueError:
        assert changed != certificate
