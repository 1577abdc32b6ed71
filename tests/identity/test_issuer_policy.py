"""Who gets a certificate: each check of a request, and its message."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import (
    CertificateIssuerPrivateKeyTypes,
)
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from identity import ca, keys
from identity import csr as csr_module
from identity.issuer import policy
from identity.issuer.errors import Malformed, NotEntitled, Refusal, SigningFailed
from identity.issuer.policy import Account, Csr, Domain, Request
from identity.testing import csr_der, new_key
from identity.testing.calls import NAME

DOMAIN = Domain("linkerd", "cluster.local")
ACCOUNT = Account("serviceaccount", "emojivoto", "web")
LONG = f"{'a' * 60}.emojivoto.serviceaccount.identity.linkerd.cluster.local"


def make_csr(
    *names: x509.GeneralName,
    subject: str = "",
    key: CertificateIssuerPrivateKeyTypes | None = None,
    organization: str = "",
) -> bytes:
    """A signing request with any alternative names and subject, DER."""
    attributes = []
    if organization:
        oid = x509.NameOID.ORGANIZATION_NAME
        attributes.append(x509.NameAttribute(oid, organization))
    if subject:
        attributes.append(x509.NameAttribute(x509.NameOID.COMMON_NAME, subject))
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name(attributes)
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName(names), critical=False
        )
    signer = key or new_key()
    algorithm = (
        None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    )
    return builder.sign(signer, algorithm).public_bytes(Encoding.DER)


def parsed(csr: bytes, identity: str = NAME) -> Csr:
    """A signing request, taken apart."""
    return policy.check_parts(Request(identity, b"token", csr))


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        pytest.param(Request("", b"", b""), "missing identity", id="identity first"),
        pytest.param(Request("a", b"", b""), "missing token", id="then the token"),
        pytest.param(
            Request("a", b"t", b""),
            "missing certificate signing request",
            id="then the CSR",
        ),
    ],
)
def test_missing_parts_are_named_in_order(request_: Request, message: str) -> None:
    """The first part that is missing is the one complained about."""
    with pytest.raises(Malformed) as refusal:
        policy.check_parts(request_)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    "csr",
    [
        pytest.param(b"garbage", id="no DER at all"),
        pytest.param(b"\x30\x03\x02\x01\x00", id="DER of something else"),
        pytest.param(csr_der(NAME, new_key())[:-1], id="cut off"),
        pytest.param(csr_der(NAME, new_key()) + b"\0", id="with a byte too many"),
        pytest.param(b"\x30" * 1000, id="nested without end"),
        pytest.param(bytes(1 << 20), id="a mebibyte of nothing"),
    ],
)
def test_what_is_no_csr_is_malformed(csr: bytes) -> None:
    """Bytes that are no PKCS#10 request are refused as malformed."""
    with pytest.raises(Malformed, match=r"^invalid certificate signing request"):
        parsed(csr)


DNS = x509.DNSName(NAME)
NOBODY = ca.EMPTY_NAME.public_bytes()


@pytest.mark.parametrize(
    ("csr", "message"),
    [
        pytest.param(
            make_csr(), "CSR must have exactly one DNSName", id="no name at all"
        ),
        pytest.param(
            make_csr(DNS, x509.DNSName("b.example")),
            "CSR must have exactly one DNSName",
            id="two names",
        ),
        pytest.param(
            make_csr(DNS, DNS), "CSR must have exactly one DNSName", id="one name twice"
        ),
        pytest.param(
            make_csr(x509.DNSName("b.example")),
            f"CSR name does not match requested identity: csr=b.example; req={NAME}",
            id="another name",
        ),
        pytest.param(
            make_csr(x509.DNSName(NAME.upper())),
            "CSR name does not match requested identity: "
            f"csr={NAME.upper()}; req={NAME}",
            id="the name in capitals",
        ),
        pytest.param(
            make_csr(DNS, subject="b.example"),
            "invalid CommonName: b.example",
            id="another common name",
        ),
        pytest.param(
            make_csr(DNS, x509.RFC822Name("a@b.example")),
            "cannot validate email addresses",
            id="an email address beside",
        ),
        pytest.param(
            make_csr(DNS, x509.IPAddress(ip_address("10.0.0.1"))),
            "cannot validate IP addresses",
            id="an IP address beside",
        ),
        pytest.param(
            make_csr(DNS, x509.UniformResourceIdentifier("spiffe://a/b")),
            "cannot validate URIs",
            id="a URI beside",
        ),
    ],
)
def test_names_that_are_not_the_identity_alone_are_refused(
    csr: bytes, message: str
) -> None:
    """A CSR may hold the requested identity, once, and nothing else."""
    with pytest.raises(NotEntitled) as refusal:
        policy.check_csr(parsed(csr), NAME)
    assert str(refusal.value) == message


def test_a_csr_that_was_not_signed_by_its_key_is_refused() -> None:
    """Who does not hold the key gets no certificate for it."""
    good = csr_der(NAME, new_key())
    bad = good[:-1] + bytes([good[-1] ^ 1])
    with pytest.raises(NotEntitled, match="not signed with the key"):
        policy.check_csr(parsed(bad), NAME)


@pytest.mark.parametrize(
    "csr",
    [
        pytest.param(csr_der(NAME, new_key()), id="without a subject"),
        pytest.param(
            make_csr(DNS, key=ec.generate_private_key(ec.SECP384R1())), id="P-384"
        ),
        pytest.param(make_csr(DNS, organization="o"), id="another attribute"),
    ],
)
def test_good_requests_pass(csr: bytes) -> None:
    """What names the identity alone passes, with a key of any curve."""
    found = parsed(csr)
    policy.check_csr(found, NAME)
    key = found.parsed.public_key()
    assert policy.certifiable_key(found) == key.public_bytes(
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    )


@pytest.mark.parametrize(
    ("csr", "name"),
    [
        pytest.param(csr_der(NAME, new_key()), NAME, id="without a subject"),
        pytest.param(make_csr(DNS, subject=NAME), NAME, id="a name in UTF-8"),
        pytest.param(keys.csr_der(keys.generate(), NAME), NAME, id="as proxies do"),
        pytest.param(keys.csr_der(keys.generate(), LONG), LONG, id="a long name"),
    ],
)
def test_usual_requests_are_read_as_all_others(csr: bytes, name: str) -> None:
    """Taken at a glance or apart, a request says the same."""
    glance, apart = parsed(csr, name), parsed(csr, "another")
    assert glance.public_key
    assert not apart.public_key
    assert policy.certifiable_key(glance) == policy.certifiable_key(apart)
    assert glance.subject == apart.subject
    assert glance.common_names == apart.common_names
    assert glance.dns_names == apart.dns_names == (name,)


@pytest.mark.parametrize(
    "csr",
    [
        pytest.param(make_csr(DNS, organization="o"), id="another attribute"),
        pytest.param(make_csr(DNS, x509.DNSName("b.example")), id="another name"),
        pytest.param(make_csr(DNS, subject="b.example"), id="another common name"),
        pytest.param(
            make_csr(DNS, key=ec.generate_private_key(ec.SECP384R1())), id="P-384"
        ),
        pytest.param(
            make_csr(DNS, key=rsa.generate_private_key(65537, 2048)), id="RSA"
        ),
    ],
)
def test_what_says_more_is_not_usual(csr: bytes) -> None:
    """Anything beyond the identity and a P-256 key is looked at closely."""
    assert not parsed(csr).public_key


def test_names_of_more_than_64_characters_pass(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """A long common name, which Linkerd's proxies send, is no reason to complain."""
    found = parsed(keys.csr_der(keys.generate(), LONG), LONG)
    policy.check_csr(found, LONG)
    assert found.subject == csr_module.common_name(LONG)
    assert not recwarn.list


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(rsa.generate_private_key(65537, 2048), id="RSA"),
        pytest.param(ed25519.Ed25519PrivateKey.generate(), id="Ed25519"),
    ],
)
def test_other_kinds_of_keys_are_not_certified(
    key: CertificateIssuerPrivateKeyTypes,
) -> None:
    """Only elliptic curve keys are certified; it is said last, as upstream does."""
    found = parsed(make_csr(DNS, key=key))
    policy.check_csr(found, NAME)
    with pytest.raises(SigningFailed, match=r"^CSR must contain an ECDSA public key"):
        policy.certifiable_key(found)


@pytest.mark.parametrize(
    ("csr", "subject"),
    [
        pytest.param(csr_der(NAME, new_key()), NOBODY, id="none stays none"),
        pytest.param(
            make_csr(DNS, organization="evil corp"), NOBODY, id="others are dropped"
        ),
        pytest.param(
            make_csr(DNS, subject=NAME, organization="evil corp"),
            NOBODY,
            id="and the name with them",
        ),
        pytest.param(
            make_csr(DNS, subject=NAME),
            ca.common_name(NAME).public_bytes(),
            id="the name stays",
        ),
    ],
)
def test_of_the_subject_only_the_checked_name_is_taken(
    csr: bytes, subject: bytes
) -> None:
    """Attributes that nobody checked do not get into a certificate."""
    assert parsed(csr).subject == subject


@pytest.mark.parametrize(
    ("username", "message"),
    [
        pytest.param(
            "system:node:x",
            "Username must be in form system:TYPE:NS:SA: system:node:x",
            id="a node, three parts",
        ),
        pytest.param(
            "admin", "Username must be in form system:TYPE:NS:SA: admin", id="a person"
        ),
        pytest.param(
            "other:serviceaccount:a:b",
            "Username must be in form system:TYPE:NS:SA: other:serviceaccount:a:b",
            id="not of the system",
        ),
        pytest.param(
            "system:serviceaccount:a:b.c", "Not a label: b.c", id="a dot in the name"
        ),
        pytest.param("system:serviceaccount::b", "Not a label: ", id="no namespace"),
        pytest.param("system:serviceaccount:a:B", "Not a label: B", id="a capital"),
        pytest.param(
            "system:serviceaccount:a:b\n", "Not a label: b\n", id="a newline behind"
        ),
    ],
)
def test_user_names_that_are_no_service_account_are_refused(
    username: str, message: str
) -> None:
    """Exactly four parts, all of them labels, make an account."""
    with pytest.raises(Malformed) as refusal:
        policy.parse_username(username)
    assert str(refusal.value) == message


def test_the_identity_is_the_one_that_peers_compute() -> None:
    """An account's name and SPIFFE id have their documented forms."""
    account = policy.parse_username("system:serviceaccount:emojivoto:web")
    assert account == ACCOUNT
    assert DOMAIN.identity(account) == NAME
    assert DOMAIN.spiffe_id(account) == "spiffe://cluster.local/ns/emojivoto/sa/web"


def test_a_token_of_another_account_is_refused() -> None:
    """The check that all security rests on: the token has to prove the name."""
    other = Account("serviceaccount", "emojivoto", "voting")
    found = f"voting{NAME.removeprefix('web')}"
    with pytest.raises(NotEntitled) as refusal:
        policy.check_account(DOMAIN, other, NAME)
    assert str(refusal.value) == (
        "requested identity did not match provided token: "
        f"requested={NAME}; found={found}"
    )
    policy.check_account(DOMAIN, ACCOUNT, NAME)


LABEL = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)


@given(LABEL, LABEL, LABEL, LABEL)
def test_no_two_accounts_share_an_identity(
    one: str, two: str, three: str, four: str
) -> None:
    """Different namespaces or names give different identities: labels hold no dots."""
    first = Account("serviceaccount", one, two)
    second = Account("serviceaccount", three, four)
    same = DOMAIN.identity(first) == DOMAIN.identity(second)
    assert same is (first == second)


@pytest.mark.parametrize(
    "domain",
    [
        pytest.param(Domain("", "cluster.local"), id="no namespace"),
        pytest.param(Domain("a.b", "cluster.local"), id="a namespace with a dot"),
        pytest.param(Domain("linkerd", "Cluster.local"), id="a capital"),
        pytest.param(Domain("linkerd", "cluster..local"), id="an empty label"),
        pytest.param(Domain("linkerd", "a" * 64), id="a label too long"),
        pytest.param(Domain("linkerd", ".".join(["a" * 60] * 5)), id="too long in all"),
    ],
)
def test_trust_domains_have_to_be_names(domain: Domain) -> None:
    """A domain that would give identities that are no DNS names is refused."""
    with pytest.raises(ValueError, match="Not a"):
        policy.check_domain(domain)


@given(st.binary(max_size=400), st.text(max_size=40), st.binary(max_size=40))
def test_random_requests_are_refused_and_nothing_else(
    csr: bytes, identity: str, token: bytes
) -> None:
    """Whatever the bytes, the answer is a refusal and not another error."""
    with pytest.raises(Refusal):
        policy.check_csr(policy.check_parts(Request(identity, token, csr)), identity)


@given(st.integers(0, 250), st.integers(0, 255))
def test_a_csr_with_one_byte_changed_is_refused(at: int, byte: int) -> None:
    """No change of a byte gets past structure, names and signature together."""
    csr = bytearray(GOOD)
    at %= len(csr)
    if csr[at] == byte:
        return
    csr[at] = byte
    with pytest.raises(Refusal):
        policy.check_csr(parsed(bytes(csr)), NAME)


GOOD = csr_der(NAME, new_key())


def test_requests_show_no_secret() -> None:
    """A request can be logged: the token and the CSR are not part of its text."""
    shown = repr(Request(NAME, b"secret-token", b"csr"))
    assert "secret" not in shown
    assert "csr" not in shown.replace("csr_der", "")
