"""Certificates from a template are those that the library builds."""

from __future__ import annotations

import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from identity import ca, leaf
from identity.testing import CA, new_key

ISSUER = CA().issuer().authority
TEMPLATE = leaf.template(ISSUER)
KEYS = [
    new_key(),
    ec.generate_private_key(ec.SECP384R1()),
    ec.generate_private_key(ec.SECP521R1()),
]
CURVES = st.sampled_from([key.public_key() for key in KEYS])
LABEL = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
DNS_NAME = st.lists(LABEL, min_size=1, max_size=5).map(".".join)
SPIFFE_IDS = st.lists(
    st.from_regex(r"spiffe://[a-z.]{1,40}/ns/[a-z]{1,9}", fullmatch=True), max_size=1
)
INSTANTS = st.datetimes(
    dt.datetime(1950, 1, 1),  # noqa: DTZ001  (the strategy adds the zone)
    dt.datetime(2120, 1, 1),  # noqa: DTZ001
    timezones=st.just(dt.UTC),
).map(lambda instant: instant.replace(microsecond=0))
SERIALS = st.one_of(
    st.integers(1, (1 << 128) - 1),
    st.integers(0, 127).map(lambda bits: 1 << bits),
    st.integers(1, 128).map(lambda bits: (1 << bits) - 1),
)


def raw(key: ec.EllipticCurvePublicKey) -> bytes:
    """A public key as it is in certificates."""
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


@st.composite
def holders(draw: st.DrawFn) -> ca.Holder:
    """Somebody to certify, with or without a subject and a SPIFFE id."""
    name = draw(DNS_NAME)
    named = len(name) <= 64 and draw(st.booleans())
    uris = map(x509.UniformResourceIdentifier, draw(SPIFFE_IDS))
    return ca.Holder(
        public_key=draw(CURVES),
        names=[x509.DNSName(name), *uris],
        subject=ca.common_name(name) if named else ca.EMPTY_NAME,
    )


VALIDITIES = st.tuples(INSTANTS, INSTANTS).map(
    lambda both: ca.Validity(not_before=min(both), not_after=max(both))
)


def fields_of(holder: ca.Holder, validity: ca.Validity, serial: int) -> leaf.Fields:
    """The same for the template as for the builder."""
    return leaf.Fields(
        subject=holder.subject.public_bytes(),
        public_key=raw(holder.public_key),
        names=[
            (leaf.DNS if isinstance(name, x509.DNSName) else leaf.URI, str(name.value))
            for name in holder.names
        ],
        validity=leaf.validity_der(validity),
        serial=serial,
    )


@settings(max_examples=1500, deadline=None)
@given(holders(), VALIDITIES, SERIALS)
def test_each_byte_is_the_builder_s(
    holder: ca.Holder, validity: ca.Validity, serial: int
) -> None:
    """Whatever the key, names, times and serial, the library builds the same."""
    built = ca.issue_leaf(ISSUER, holder, validity, serial)
    made = leaf.to_be_signed(TEMPLATE, fields_of(holder, validity, serial))
    assert made == built.tbs_certificate_bytes


@pytest.mark.parametrize("curve", range(len(KEYS)), ids=["P-256", "P-384", "P-521"])
@pytest.mark.parametrize("has_key_id", [True, False])
def test_each_kind_of_issuer_signs(curve: int, *, has_key_id: bool) -> None:
    """Issuers of any curve, with a name for their key or without, sign soundly."""
    key, name = KEYS[curve], ca.common_name("identity.linkerd.cluster.local")
    now = dt.datetime.now(tz=dt.UTC).replace(microsecond=0)
    validity = ca.Validity(not_before=now, not_after=now + dt.timedelta(hours=1))
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(validity.not_before)
        .not_valid_after(validity.not_after)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    )
    if has_key_id:
        key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(key_id, critical=False)
    issuer = ca.Authority(certificate=builder.sign(key, hashes.SHA256()), key=key)
    public_key = KEYS[0].public_key()
    holder = ca.Holder(public_key=public_key, names=[x509.DNSName("a.example")])
    der = leaf.issue(leaf.template(issuer), key, fields_of(holder, validity, 1))
    built = ca.issue_leaf(issuer, holder, validity, 1)
    made = x509.load_der_x509_certificate(der)
    assert made.tbs_certificate_bytes == built.tbs_certificate_bytes
    assert made.signature_algorithm_oid == built.signature_algorithm_oid
    made.verify_directly_issued_by(issuer.certificate)
