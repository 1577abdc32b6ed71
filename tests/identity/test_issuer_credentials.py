"""The issuer's files: what is accepted, what is refused, and how they change."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from identity import ca, pem
from identity.issuer.credentials import Files, load, locate, read
from identity.issuer.errors import CredentialsError, IssuerInvalid
from identity.issuer.events import Event
from identity.issuer.reload import Reloader
from identity.testing import CA, new_key, project, whole_second
from identity.testing.authority import new_serial

NOW = whole_second()
HOUR = dt.timedelta(hours=1)
WHO = "identity.linkerd.cluster.local"


def files(issuer: CA, root: CA) -> Files:
    """The contents of an issuer's files."""
    chain = issuer.chain or (issuer.certificate,)
    crt = b"".join(c.public_bytes(Encoding.PEM) for c in chain)
    return Files(crt, issuer.key_pem, root.pem)


def sec1(issuer: CA) -> bytes:
    """An issuer's key as `step` writes it, behind its curve as openssl writes that."""
    parameters = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n"
    return (
        parameters
        + b"-----END EC PARAMETERS-----\n"
        + issuer.authority.key.private_bytes(
            Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def test_an_issuer_with_its_chain_is_loaded() -> None:
    """The issuer signs; it and what follows in its file go out; the earliest ends."""
    root = CA(not_after=NOW + 9 * HOUR)
    middle = root.issuer("middle", not_after=NOW + 7 * HOUR)
    # A CA below one that allows none: made by hand, with room below the root.
    deep = CA("root two")
    issuer = deep.issuer()
    loaded = load(files(issuer, deep), NOW, WHO)
    assert loaded.authority.certificate == issuer.certificate
    assert loaded.chain_der == (issuer.certificate.public_bytes(Encoding.DER),)
    both = files(issuer, deep)
    longer = replace(both, certificate=both.certificate + middle.pem)
    extra = load(longer, NOW, WHO)
    assert extra.chain_der[1:] == (middle.certificate.public_bytes(Encoding.DER),)
    assert extra.not_after == NOW + 7 * HOUR


def test_a_root_may_issue_itself() -> None:
    """The issuer that `linkerd install` makes is its own trust anchor."""
    root = CA()
    loaded = load(files(root, root), NOW, WHO)
    assert loaded.chain_der == (root.certificate.public_bytes(Encoding.DER),)


def test_an_intermediate_may_be_the_anchor() -> None:
    """Any certificate of the bundle is trusted, self-signed or not."""
    issuer = CA().issuer()
    loaded = load(files(issuer, issuer), NOW, WHO)
    assert loaded.path == (issuer.certificate,)


def test_keys_as_step_writes_them_are_read() -> None:
    """A key in SEC1 is read, and a block of curve parameters before it is skipped."""
    root = CA()
    issuer = root.issuer()
    made = replace(files(issuer, root), key=sec1(issuer))
    assert load(made, NOW, WHO).authority.key.key_size == 256


def not_a_ca(root: CA) -> CA:
    """An issuer whose certificate is one of a workload."""
    issuer = root.issuer()
    leaf = root.leaf("a.b", key=issuer.authority.key)
    issuer.authority = ca.Authority(
        certificate=leaf.certificate, key=issuer.authority.key
    )
    return issuer


def encrypted(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A key that nobody can read without a password."""
    return key.private_bytes(
        Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"password"),
    )


RSA_KEY = rsa.generate_private_key(65537, 2048).private_bytes(
    Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
)


def garbled(key: bytes) -> bytes:
    """A key of which a part is missing: PEM, but not DER."""
    lines = key.splitlines(keepends=True)
    return b"".join([lines[0], *lines[2:]])


P256, BROKEN_CURVE = bytes.fromhex("2a8648ce3d030107"), b"*" * 8
V3, V8 = bytes.fromhex("a003020102"), bytes.fromhex("a003020107")
KEY_ID, CONSTRAINTS = bytes.fromhex("551d0e"), bytes.fromhex("551d13")


def damaged(pem_file: bytes, part: bytes, other: bytes) -> bytes:
    """A certificate in which a part of its DER is another one of the same length."""
    der = x509.load_pem_x509_certificate(pem_file).public_bytes(Encoding.DER)
    assert part in der
    return pem.encode("CERTIFICATE", der.replace(part, other)).encode()


Change = Callable[[Files, CA, CA], Files]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            lambda f, _, __: replace(f, anchors=b"junk"),
            "Failed to read trust anchors: not a PEM certificate",
            id="anchors that are none",
        ),
        pytest.param(
            lambda f, _, __: replace(f, anchors=b""),
            "Failed to read trust anchors: no certificates found",
            id="no anchors",
        ),
        pytest.param(
            lambda f, _, __: replace(f, certificate=b"junk"),
            "failed to read CA from disk: the certificate file holds no PEM",
            id="a certificate that is none",
        ),
        pytest.param(
            lambda f, _, __: replace(f, key=b"junk"),
            "failed to read CA from disk: the key file is not PEM-encoded",
            id="a key that is none",
        ),
        pytest.param(
            lambda f, _, __: replace(f, key=f.certificate),
            "failed to read CA from disk: unsupported block type: 'CERTIFICATE'",
            id="a certificate in place of the key",
        ),
        pytest.param(
            lambda f, _, __: replace(f, key=garbled(f.key)),
            "failed to read CA from disk: the key file holds no private key",
            id="a key with a part missing",
        ),
        pytest.param(
            lambda f, i, _: replace(f, key=encrypted(i.authority.key)),
            "failed to read CA from disk: unsupported block type: "
            "'ENCRYPTED PRIVATE KEY'",
            id="a key with a password",
        ),
        pytest.param(
            lambda f, _, __: replace(f, key=RSA_KEY),
            "failed to read CA from disk: the issuer's key must be an ECDSA key",
            id="an RSA key",
        ),
        pytest.param(
            lambda f, _, r: replace(f, key=r.key_pem),
            "failed to read CA from disk: tls: Public and private key do not match",
            id="the key of another",
        ),
        pytest.param(
            lambda f, _, __: replace(f, anchors=CA("stranger").pem),
            f"failed to verify issuer credentials for '{WHO}' with trust anchors: "
            "x509: certificate signed by unknown authority",
            id="anchors of another mesh",
        ),
        pytest.param(
            lambda _, __, r: files(not_a_ca(r), r),
            f"failed to verify issuer credentials for '{WHO}' with trust anchors: "
            " is no certificate authority",
            id="a workload's certificate",
        ),
        pytest.param(
            lambda _, __, r: files(r.issuer(not_after=NOW - HOUR), r),
            f"failed to verify issuer credentials for '{WHO}' with trust anchors: "
            "x509: certificate has expired or is not yet valid",
            id="one that has expired",
        ),
        pytest.param(
            lambda _, __, r: files(r.issuer(not_before=NOW + HOUR), r),
            f"failed to verify issuer credentials for '{WHO}' with trust anchors: "
            "x509: certificate has expired or is not yet valid",
            id="one that is not valid yet",
        ),
        pytest.param(
            lambda _, i, r: files(i.issuer("below"), r),
            f"failed to verify issuer credentials for '{WHO}' with trust anchors: "
            "CN=identity.linkerd.cluster.local allows 0 authorities below it",
            id="one below an issuer that allows none",
        ),
        pytest.param(
            lambda f, _, __: replace(
                f, certificate=damaged(f.certificate, P256, BROKEN_CURVE)
            ),
            "failed to read CA from disk: the certificate can't be used: Curve 1.2.42",
            id="one with a key of no kind",
        ),
        pytest.param(
            lambda f, _, __: replace(f, certificate=damaged(f.certificate, V3, V8)),
            "failed to read CA from disk: the certificate file holds no PEM",
            id="one of a version there is not",
        ),
        pytest.param(
            lambda f, _, __: replace(f, anchors=damaged(f.anchors, V3, V8)),
            "Failed to read trust anchors: 7 is not a valid X509 version",
            id="an anchor of a version there is not",
        ),
        pytest.param(
            lambda f, _, __: replace(
                f, certificate=damaged(f.certificate, KEY_ID, CONSTRAINTS)
            ),
            f"failed to verify issuer credentials for '{WHO}' with trust anchors: "
            "x509: a certificate can't be read: Duplicate 2.5.29.19",
            id="one with an extension twice",
        ),
    ],
)
def test_what_can_not_issue_is_refused(change: Change, message: str) -> None:
    """Each broken file has a message of its own, which does not show the key."""
    root = CA()
    issuer = root.issuer()
    with pytest.raises(CredentialsError) as refusal:
        load(change(files(issuer, root), issuer, root), NOW, WHO)
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize(
    "uses",
    [
        pytest.param([ExtendedKeyUsageOID.CLIENT_AUTH], id="clients only"),
        pytest.param([ExtendedKeyUsageOID.CODE_SIGNING], id="code"),
    ],
)
def test_an_issuer_for_other_uses_is_refused(uses: list[x509.ObjectIdentifier]) -> None:
    """With an extended key usage, servers must be among it."""
    root, key = CA(), new_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(ca.common_name("issuer"))
        .issuer_name(root.certificate.subject)
        .public_key(key.public_key())
        .serial_number(new_serial())
        .not_valid_before(NOW - HOUR)
        .not_valid_after(NOW + HOUR)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    )
    issuer = root.issuer()
    issuer.authority = ca.Authority(
        certificate=builder.sign(root.authority.key, hashes.SHA256()), key=key
    )
    with pytest.raises(CredentialsError, match="is not for TLS servers"):
        load(files(issuer, root), NOW, WHO)


def test_an_issuer_is_checked_at_each_use() -> None:
    """Credentials that were good when loaded are refused once they have expired."""
    root = CA()
    loaded = load(files(root.issuer(not_after=NOW + HOUR), root), NOW, WHO)
    loaded.verify(NOW + HOUR)
    with pytest.raises(IssuerInvalid, match=r" - Current Time : .* - Invalid After "):
        loaded.verify(NOW + HOUR + dt.timedelta(seconds=1))


def test_another_way_to_an_anchor_is_taken_when_one_expires() -> None:
    """Two roots of the same key: the issuer outlives the first of them."""
    root = CA()
    early = ca.create_root(
        "root.linkerd.cluster.local",
        root.authority.key,
        ca.Validity(not_before=NOW - HOUR, not_after=NOW + HOUR),
        new_serial(),
    )
    issuer = root.issuer()
    bundle = early.certificate.public_bytes(Encoding.PEM) + root.pem
    loaded = load(replace(files(issuer, root), anchors=bundle), NOW, WHO)
    assert loaded.path[-1] == early.certificate
    loaded.verify(NOW + 2 * HOUR)


def test_an_anchor_that_can_not_be_read_hides_no_other() -> None:
    """Of a bundle only the anchor counts to which a path leads."""
    root = CA()
    broken = damaged(root.pem, KEY_ID, CONSTRAINTS)
    content = files(root.issuer(), root)
    loaded = load(replace(content, anchors=broken + root.pem), NOW, WHO)
    assert loaded.path[-1] == root.certificate
    with pytest.raises(CredentialsError, match="a certificate can't be read"):
        load(replace(content, anchors=broken), NOW, WHO)


class Sink:
    """Keeps events."""

    def __init__(self) -> None:
        self.sent: list[Event] = []

    def send(self, event: Event) -> None:
        """Keep one."""
        self.sent.append(event)


class Mounted:
    """An issuer's folder with a reloader that watches it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = CA()
        self.sink = Sink()
        locations = locate(
            folder / "issuer", "kubernetes.io/tls", folder / "roots" / "ca-bundle.crt"
        )
        self.locations = locations
        self.reloader = Reloader(locations, "linkerd", WHO, self.sink)

    def write(self, content: Files) -> None:
        """Replace the files as the kubelet does."""
        named = {"tls.crt": content.certificate, "tls.key": content.key}
        project(self.folder / "issuer", named)
        project(self.folder / "roots", {"ca-bundle.crt": content.anchors})

    @property
    def current(self) -> x509.Certificate:
        """The issuer in use."""
        assert self.reloader.current is not None
        return self.reloader.current.authority.certificate

    def polls(self, count: int, now: dt.datetime = NOW) -> list[bool]:
        """The answers of some polls."""
        return [self.reloader.poll(now) for _ in range(count)]

    @property
    def reasons(self) -> list[str]:
        """What the events are about."""
        return [event.reason for event in self.sink.sent]


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    """A mounted issuer that is in use."""
    made = Mounted(tmp_path)
    made.write(files(made.root.issuer(), made.root))
    made.reloader.start(NOW)
    return made


def test_file_names_depend_on_the_scheme(tmp_path: Path) -> None:
    """Linkerd's own Secrets have other names in them than Kubernetes'."""
    ours = locate(tmp_path, "linkerd.io/tls", tmp_path)
    others = locate(tmp_path, "anything", tmp_path)
    assert (ours.certificate.name, ours.key.name) == ("crt.pem", "key.pem")
    assert (others.certificate.name, others.key.name) == ("tls.crt", "tls.key")


def test_a_new_issuer_is_used_after_two_polls(mounted: Mounted) -> None:
    """Contents are judged once they have settled, and an event tells of it."""
    new = mounted.root.issuer()
    mounted.write(files(new, mounted.root))
    assert mounted.polls(3) == [False, True, False]
    assert mounted.current == new.certificate
    assert mounted.reasons == ["IssuerUpdated"]


def test_a_bad_issuer_keeps_the_old_and_is_told_once(mounted: Mounted) -> None:
    """What can't be used is reported, not used; and a good one still comes through."""
    old = mounted.current
    bad = replace(files(mounted.root.issuer(), mounted.root), key=RSA_KEY)
    mounted.write(bad)
    assert not any(mounted.polls(5))
    assert mounted.current == old
    assert mounted.reasons == ["IssuerUpdateSkipped"]
    assert mounted.sink.sent[0].message.startswith(
        "Skipping issuer update as certs could not be read from disk: "
        "failed to read CA from disk: the issuer's key must be an ECDSA key"
    )
    new = mounted.root.issuer()
    mounted.write(files(new, mounted.root))
    assert any(mounted.polls(2))
    assert mounted.current == new.certificate


def test_an_issuer_that_becomes_valid_is_used_without_a_change(
    mounted: Mounted,
) -> None:
    """A certificate of the future is tried again until its time has come."""
    new = mounted.root.issuer(not_before=NOW + HOUR)
    mounted.write(files(new, mounted.root))
    assert not any(mounted.polls(4))
    assert mounted.reasons == ["IssuerUpdateSkipped"]
    assert mounted.polls(1, NOW + HOUR) == [True]
    assert mounted.current == new.certificate


def test_files_that_are_missing_for_a_moment_are_no_news(mounted: Mounted) -> None:
    """A file that is away during one poll only is nothing to tell."""
    key = mounted.locations.key.read_bytes()
    plain = mounted.locations.key
    plain.unlink()
    assert mounted.polls(1) == [False]
    plain.write_bytes(key)
    assert mounted.polls(3) == [False, False, False]
    assert mounted.reasons == []
    plain.unlink()
    assert mounted.polls(2) == [False, False]
    assert mounted.reasons == ["IssuerUpdateSkipped"]


def test_a_half_written_pair_is_not_used(mounted: Mounted) -> None:
    """New certificate, old key: the old pair stays until the new is whole."""
    new = mounted.root.issuer()
    old = mounted.current
    whole = files(new, mounted.root)
    mounted.write(replace(whole, key=read(mounted.locations).key))
    mounted.polls(3)
    assert mounted.current == old
    mounted.write(whole)
    mounted.polls(2)
    assert mounted.current == new.certificate


def test_new_trust_anchors_alone_are_noticed(mounted: Mounted) -> None:
    """A bundle that no longer trusts the issuer is refused; one that does is used."""
    content = read(mounted.locations)
    mounted.write(replace(content, anchors=CA("stranger").pem))
    mounted.polls(2)
    assert mounted.reasons == ["IssuerUpdateSkipped"]
    mounted.write(replace(content, anchors=content.anchors + CA("next").pem))
    mounted.polls(2)
    assert mounted.reasons == ["IssuerUpdateSkipped", "IssuerUpdated"]
