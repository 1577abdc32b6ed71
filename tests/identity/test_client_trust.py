"""Which certificates are accepted, and what is said of each that is not."""

from __future__ import annotations

import datetime as dt
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import example, given, settings
from hypothesis import strategies as st

from identity import ca, keys, pem, trust
from identity.credentials import Answer, Credential, KeyPair
from identity.der import INTEGER, SEQUENCE, elements, encode
from identity.errors import (
    BadKeyPair,
    BadTrustAnchors,
    CertificateRejected,
    ServiceUntrusted,
)
from identity.issuer.credentials import Files, load
from identity.testing import CA, Leaf, whole_second
from identity.trust import Anchors

NAME = "web.emojivoto.serviceaccount.identity.linkerd.cluster.local"
NOW = whole_second()
DAY = dt.timedelta(days=1)
SECOND = dt.timedelta(seconds=1)

ROOT = CA()
ISSUER = ROOT.issuer()
ANCHORS = Anchors.parse(ROOT.pem.decode())
KEY = keys.generate()
GOOD = ISSUER.leaf(NAME, key=KEY)


def answer(leaf: Leaf) -> Answer:
    """A leaf as the service returns it."""
    return Answer(
        leaf_der=leaf.der,
        intermediates_der=leaf.chain_der,
        valid_until=leaf.certificate.not_valid_after_utc,
    )


def accept(
    got: Answer, *, anchors: Anchors = ANCHORS, now: dt.datetime = NOW
) -> Credential:
    """Judge an answer to a request of `KEY`."""
    return trust.accept(got, key=KEY, name=NAME, anchors=anchors, now=now)


def refusal(got: Answer, now: dt.datetime = NOW) -> str:
    """What is said of an answer that is not accepted."""
    with pytest.raises(CertificateRejected) as caught:
        accept(got, now=now)
    return str(caught.value)


def sign(
    builder: x509.CertificateBuilder, *extensions: tuple[x509.ExtensionType, bool]
) -> bytes:
    """A leaf of the issuer's with these extensions, DER."""
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    made = builder.sign(ISSUER.authority.key, hashes.SHA256())
    return made.public_bytes(Encoding.DER)


def blank() -> x509.CertificateBuilder:
    """A leaf for `KEY` and `NAME` without other extensions."""
    return (
        x509.CertificateBuilder()
        .subject_name(ca.EMPTY_NAME)
        .issuer_name(ISSUER.certificate.subject)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + DAY)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=True)
    )


def test_a_good_certificate_is_taken(tmp_path: Path) -> None:
    """Key, chain and expiry are what was asked for; openssl agrees."""
    credential = accept(answer(GOOD))

    assert credential.names == (NAME,)
    assert credential.expiry == GOOD.certificate.not_valid_after_utc
    assert credential.chain_pem == GOOD.pem.decode()
    assert credential.valid(NOW)
    assert not credential.valid(credential.expiry)
    (tmp_path / "root").write_bytes(ROOT.pem)
    (tmp_path / "chain").write_text(credential.chain_pem)
    (tmp_path / "key").write_text(credential.key_pem)
    said = [
        subprocess.run(words.split(), check=True, cwd=tmp_path, capture_output=True)
        for words in (
            "openssl verify -CAfile root -untrusted chain chain",
            "openssl pkey -in key -pubout",
            "openssl x509 -in chain -noout -pubkey",
        )
    ]
    assert said[0].stdout == b"chain: OK\n"
    assert said[1].stdout == said[2].stdout


def test_the_earlier_expiry_counts() -> None:
    """valid_until and notAfter may differ: whoever says less is right."""
    early = replace(answer(GOOD), valid_until=NOW + SECOND)
    late = replace(answer(GOOD), valid_until=NOW + 90 * DAY)
    assert accept(early).expiry == NOW + SECOND
    assert accept(late).expiry == GOOD.certificate.not_valid_after_utc


@pytest.mark.parametrize(
    ("got", "said"),
    [
        pytest.param(
            replace(answer(GOOD), valid_until=None),
            "identity certification missing expiration",
            id="without expiry",
        ),
        pytest.param(
            replace(answer(GOOD), valid_until=NOW),
            "certificate already expired: valid until ",
            id="expired by the service's own word",
        ),
        pytest.param(
            replace(answer(GOOD), leaf_der=b""),
            "the certificate is not X.509 in DER: ",
            id="empty",
        ),
        pytest.param(
            replace(answer(GOOD), leaf_der=GOOD.der + GOOD.der),
            "the certificate is not X.509 in DER: ",
            id="two in one",
        ),
        pytest.param(
            replace(answer(GOOD), leaf_der=GOOD.pem),
            "the certificate is not X.509 in DER: ",
            id="PEM",
        ),
        pytest.param(
            replace(answer(GOOD), intermediates_der=[GOOD.chain_der[0], b"x"]),
            "intermediate certificate 2 is not X.509 in DER: ",
            id="broken intermediate",
        ),
        pytest.param(
            answer(ISSUER.leaf(NAME)),
            "the certificate is for another key: expected the one in the request",
            id="another key",
        ),
        pytest.param(
            answer(ISSUER.leaf("other.example", dns=["b.c"], key=KEY)),
            f"the certificate is for 'other.example', 'b.c': expected {NAME!r}",
            id="another name",
        ),
        pytest.param(
            answer(ISSUER.leaf(ips=["10.0.0.1"], key=KEY)),
            f"the certificate is for nobody: expected {NAME!r}",
            id="no name",
        ),
        pytest.param(
            answer(ISSUER.leaf("*" + NAME[3:], key=KEY)),
            f"the certificate is for '*{NAME[3:]}': expected {NAME!r}",
            id="wildcard",
        ),
        pytest.param(
            replace(
                answer(ISSUER.leaf(NAME, key=KEY, not_after=NOW - SECOND)),
                valid_until=NOW + DAY,
            ),
            "the certificate expired at ",
            id="expired",
        ),
        pytest.param(
            answer(ISSUER.leaf(NAME, key=KEY, not_before=NOW + 2 * SECOND)),
            "the certificate is not valid before ",
            id="not yet valid",
        ),
        pytest.param(
            replace(answer(GOOD), intermediates_der=[]),
            "the certificate does not lead to the trust anchors: ",
            id="intermediate missing",
        ),
        pytest.param(
            answer(CA().issuer().leaf(NAME, key=KEY)),
            "the certificate does not lead to the trust anchors: ",
            id="chained elsewhere, same names",
        ),
        pytest.param(
            answer(ROOT.issuer(not_after=NOW - SECOND).leaf(NAME, key=KEY)),
            "the certificate does not lead to the trust anchors: ",
            id="expired issuer",
        ),
        pytest.param(
            replace(
                answer(GOOD),
                leaf_der=sign(
                    blank(),
                    (
                        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]),
                        False,
                    ),
                ),
            ),
            "the certificate does not lead to the trust anchors: ",
            id="not for servers",
        ),
        pytest.param(
            replace(
                answer(GOOD),
                leaf_der=sign(
                    blank(), (x509.BasicConstraints(ca=True, path_length=None), True)
                ),
            ),
            "the certificate does not lead to the trust anchors: ",
            id="an authority",
        ),
    ],
)
def test_refusals(got: Answer, said: str) -> None:
    """Each reason has its own words."""
    assert refusal(got).startswith(said)


def test_refusals_of_dates_tell_both() -> None:
    """Who compares clocks needs to see them."""
    got = answer(ISSUER.leaf(NAME, key=KEY, not_before=NOW + 2 * SECOND))
    start, now = (at.strftime("%F %T UTC") for at in (NOW + 2 * SECOND, NOW))
    assert refusal(got) == (
        f"the certificate is not valid before {start}, and it is {now}: "
        "compare the clocks"
    )


NO_AUTHORITY = x509.BasicConstraints(ca=False, path_length=None)
AUTHORITY = x509.BasicConstraints(ca=True, path_length=None)
SERVES_ONLY = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=False,
    crl_sign=False,
    key_encipherment=False,
    content_commitment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@pytest.mark.parametrize(
    "extensions",
    [
        pytest.param([], id="nothing said"),
        pytest.param([(NO_AUTHORITY, True)], id="no authority by its own word"),
        pytest.param(
            [(AUTHORITY, True), (SERVES_ONLY, True)], id="may not sign certificates"
        ),
    ],
)
def test_a_leaf_signed_by_a_leaf_is_refused(
    extensions: list[tuple[x509.ExtensionType, bool]],
) -> None:
    """Whoever has a workload's certificate is no authority by it."""
    key = keys.generate()
    builder = (
        x509.CertificateBuilder()
        .subject_name(ca.common_name("evil"))
        .issuer_name(ROOT.certificate.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + DAY)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    # Below the root, which allows for one: so only this rule can refuse it.
    signed = builder.sign(ROOT.authority.key, hashes.SHA256())
    middle = signed.public_bytes(Encoding.DER)
    evil = ca.Authority(certificate=signed, key=key)
    leaf = ca.issue_leaf(
        evil,
        ca.Holder(public_key=KEY.public_key(), names=[x509.DNSName(NAME)]),
        ca.Validity(not_before=NOW - DAY, not_after=NOW + DAY),
        1,
    )
    said = refusal(replace(from_der(leaf), intermediates_der=[middle]))
    assert said.startswith("the certificate does not lead to the trust anchors: ")


def from_der(leaf: x509.Certificate) -> Answer:
    """An answer of this leaf, and the issuer above it."""
    return Answer(
        leaf_der=leaf.public_bytes(Encoding.DER),
        intermediates_der=GOOD.chain_der,
        valid_until=NOW + DAY,
    )


# === what peers of the mesh take, and stricter verifiers do not ===


def test_an_intermediate_may_be_the_anchor() -> None:
    """Any configured certificate ends a chain, whether it is sent or not."""
    anchors = Anchors.parse(ISSUER.pem.decode())
    assert accept(answer(GOOD), anchors=anchors).names == (NAME,)
    alone = replace(answer(GOOD), intermediates_der=[])
    assert accept(alone, anchors=anchors).names == (NAME,)


def test_the_root_may_be_the_issuer() -> None:
    """Linkerd's own root certifies directly, and is sent as the intermediate."""
    leaf = ROOT.leaf(NAME, key=KEY)
    root = ROOT.certificate.public_bytes(Encoding.DER)
    assert accept(replace(answer(leaf), intermediates_der=[root])).names == (NAME,)


def test_a_root_with_the_serial_number_0() -> None:
    """Old roots have it, the proxies don't care, and nobody is warned."""
    ((_, content),) = elements(ROOT.certificate.public_bytes(Encoding.DER))
    (_, body), *rest = elements(content)
    version, _, *fields = elements(body)
    changed = [version, (INTEGER, b"\0"), *fields]
    tbs = encode(SEQUENCE, *(encode(*field) for field in changed))
    der = encode(SEQUENCE, tbs, *(encode(*part) for part in rest))
    bundle = pem.encode("CERTIFICATE", der)
    assert accept(answer(GOOD), anchors=Anchors.parse(bundle)).names == (NAME,)
    files = Files(ISSUER.pem, ISSUER.key_pem, bundle.encode())
    assert load(files, NOW, "the service").path[-1].public_bytes(Encoding.DER) == der


def test_several_anchors() -> None:
    """During a rotation of the root there are two: either will do."""
    other = CA("other")
    anchors = Anchors.parse((other.pem + ROOT.pem).decode())
    for issuer in (ISSUER, other.issuer()):
        got = answer(issuer.leaf(NAME, key=KEY))
        assert accept(got, anchors=anchors).names == (NAME,)


def test_certificates_as_linkerd_makes_them() -> None:
    """No key identifiers, a common name of more than 64 characters, serial 1."""
    with pytest.warns(UserWarning, match=r"64"):
        subject = x509.Name(
            [x509.NameAttribute(x509.NameOID.COMMON_NAME, "w" * 70, _validate=False)]
        )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(ISSUER.certificate.subject)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + DAY)
    )
    san = x509.SubjectAlternativeName([x509.DNSName(NAME)])
    der = sign(builder, (san, False))
    assert accept(replace(answer(GOOD), leaf_der=der)).names == (NAME,)


def test_names_with_underscores_and_uris() -> None:
    """A leaf may hold names besides ours, of kinds that web browsers refuse."""
    leaf = ISSUER.leaf("a_b.c", dns=[NAME], uris=["spiffe://td/ns/a/sa/b"], key=KEY)
    assert accept(answer(leaf)).names == ("a_b.c", NAME, "spiffe://td/ns/a/sa/b")


@pytest.mark.parametrize(
    ("pss", "taken"),
    [
        pytest.param(None, True, id="PKCS 1"),
        pytest.param(
            padding.PSS(padding.MGF1(hashes.SHA256()), 32), False, id="PSS, as rustls"
        ),
    ],
)
def test_chains_signed_with_rsa(pss: padding.PSS | None, taken: bool) -> None:  # noqa: FBT001
    """An RSA root may stand above; its newer kind of signature may not."""
    key = rsa.generate_private_key(65537, 2048)
    name = ca.common_name("rsa root")
    root = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(5)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    made = (
        x509.CertificateBuilder()
        .subject_name(ca.EMPTY_NAME)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + DAY)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=True)
        .sign(key, hashes.SHA256(), rsa_padding=pss)
    )
    got = replace(from_der(made), intermediates_der=[])
    anchors = Anchors.parse(root.public_bytes(Encoding.PEM).decode())
    if taken:
        assert accept(got, anchors=anchors).names == (NAME,)
    else:
        with pytest.raises(CertificateRejected, match=r"in a way that proxies refuse"):
            accept(got, anchors=anchors)


@given(st.binary(max_size=300), st.binary(max_size=300), st.integers(0, 2000))
@example(b"\x80", b"", 15)  # a serial number below 0
@settings(max_examples=100, deadline=None)
def test_no_bytes_make_it_fail(leaf: bytes, intermediate: bytes, at: int) -> None:
    """Whatever a service sends is accepted or refused, never a surprise."""
    for der in (leaf, GOOD.der[:at] + leaf + GOOD.der[at + len(leaf) :]):
        got = replace(
            answer(GOOD),
            leaf_der=der,
            intermediates_der=[*GOOD.chain_der, intermediate],
        )
        with pytest.raises(CertificateRejected):
            accept(got)


# === the service's certificate, anchors, keys ===


def test_the_service_is_known_by_its_names() -> None:
    """A DNS name or a URI, exactly; the text says what was there."""
    leaf = ISSUER.leaf("identity.example", uris=["spiffe://td/identity"])
    trust.check_service(leaf.der, "identity.example")
    trust.check_service(leaf.der, "spiffe://td/identity")
    with pytest.raises(ServiceUntrusted) as caught:
        trust.check_service(leaf.der, "xidentity.example")
    assert str(caught.value) == (
        "certificate does not match TLS identity: it holds 'identity.example', "
        "'spiffe://td/identity', expected 'xidentity.example'"
    )
    with pytest.raises(ServiceUntrusted, match=r"it holds no name"):
        trust.check_service(ISSUER.certificate.public_bytes(Encoding.DER), "a.b")
    with pytest.raises(ServiceUntrusted, match=r"broken"):
        trust.check_service(b"junk", "a.b")


def test_anchors_that_only_look_right() -> None:
    """A certificate whole in structure but wrong inside is no anchor either."""
    der = ROOT.certificate.public_bytes(Encoding.DER)
    version = der.index(bytes.fromhex("a003020102"))
    changed = der[: version + 4] + b"\x09" + der[version + 5 :]
    with pytest.raises(BadTrustAnchors, match=r"not an X.509 certificate"):
        Anchors.parse(pem.encode("CERTIFICATE", changed))


def test_a_key_pair_from_its_files() -> None:
    """What the bootstrap wrote is read; no text of it shows a secret."""
    key_der, csr_der = keys.key_der(KEY), keys.csr_der(KEY, NAME)
    pair = KeyPair.load(key_der, csr_der)
    assert pair.csr_der == csr_der
    assert pair.key.private_numbers() == KEY.private_numbers()
    credential = accept(answer(GOOD))
    assert repr(pair) == "KeyPair()"
    assert "BEGIN" not in repr(credential)


@pytest.mark.parametrize(
    ("key_der", "csr_der", "said"),
    [
        pytest.param(b"", b"", "a private key as PKCS#8 in DER", id="empty key"),
        pytest.param(
            rsa.generate_private_key(65537, 2048).private_bytes(
                Encoding.DER, PrivateFormat.PKCS8, NoEncryption()
            ),
            b"",
            "a private key of the curve P-256",
            id="RSA",
        ),
        pytest.param(
            ec.generate_private_key(ec.SECP384R1()).private_bytes(
                Encoding.DER, PrivateFormat.PKCS8, NoEncryption()
            ),
            b"",
            "a private key of the curve P-256",
            id="P-384",
        ),
        pytest.param(
            keys.key_der(KEY), b"junk", "a request as PKCS#10 in DER", id="junk CSR"
        ),
        pytest.param(
            keys.key_der(KEY),
            keys.csr_der(keys.generate(), NAME),
            "the request is for another key",
            id="of two keys",
        ),
    ],
)
def test_key_pairs_that_are_none(key_der: bytes, csr_der: bytes, said: str) -> None:
    """Broken or mixed-up files are told apart, without showing them."""
    with pytest.raises(BadKeyPair, match=said):
        KeyPair.load(key_der, csr_der)
