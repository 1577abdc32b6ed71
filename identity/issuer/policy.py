"""Who gets which certificate: the checks of a request, in Linkerd's order.

Each function raises the `Refusal` that its callers send on. Messages are those of
Linkerd's service, because dashboards and people know them.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from identity import csr
from identity.der import PRINTABLE_STRING, UTF8_STRING
from identity.issuer.errors import Malformed, NotEntitled, SigningFailed
from identity.leaf import NO_SUBJECT

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_MAX_SUBDOMAIN = 253
_MAX_SHOWN = 300

_UNPARSABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""What `cryptography` raises for requests that are none."""

_NOT_VALIDATED: tuple[tuple[type[x509.GeneralName], str], ...] = (
    (x509.RFC822Name, "email addresses"),
    (x509.IPAddress, "IP addresses"),
    (x509.UniformResourceIdentifier, "URIs"),
)


@dataclass(frozen=True, slots=True)
class Request:
    """What a workload sends."""

    identity: str
    token: bytes = field(repr=False)
    csr_der: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Csr:
    """A signing request, taken apart: what it asks for.

    `kinds` are those of its alternative names, unless they are the usual; `subject`
    and `public_key` are those of the certificate, DER, the latter if it is known.
    """

    parsed: x509.CertificateSigningRequest = field(repr=False)
    subject: bytes
    common_names: tuple[str, ...]
    dns_names: tuple[str, ...]
    kinds: tuple[type[x509.GeneralName], ...] = ()
    public_key: bytes = b""


@dataclass(frozen=True, slots=True)
class Account:
    """An account that a token proves; `kind` is `serviceaccount` in practice."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Domain:
    """The part of an identity that all workloads of a mesh share."""

    control_namespace: str
    trust_domain: str

    def identity(self, account: Account) -> str:
        """The DNS-like name under which peers know the account."""
        return (
            f"{account.name}.{account.namespace}.{account.kind}"
            f".identity.{self.control_namespace}.{self.trust_domain}"
        )

    def spiffe_id(self, account: Account) -> str:
        """The SPIFFE id of the account, in the layout that other meshes use."""
        path = f"ns/{account.namespace}/sa/{account.name}"
        return f"spiffe://{self.trust_domain}/{path}"


def check_domain(domain: Domain) -> None:
    """Raise ValueError unless identities made with the domain are DNS names."""
    if not _LABEL.fullmatch(domain.control_namespace):
        raise ValueError(f"Not a label: {domain.control_namespace}")
    labels = domain.trust_domain.split(".")
    if len(domain.trust_domain) > _MAX_SUBDOMAIN or not all(
        _LABEL.fullmatch(label) for label in labels
    ):
        raise ValueError(f"Not a subdomain: {domain.trust_domain}")


def check_parts(request: Request) -> Csr:
    """The signing request, if nothing is missing and it can be read."""
    if not request.identity:
        raise Malformed("missing identity")
    if not request.token:
        raise Malformed("missing token")
    if not request.csr_der:
        raise Malformed("missing certificate signing request")
    try:
        parsed = x509.load_der_x509_csr(request.csr_der)
        return _usual(parsed, request.identity) or _any(parsed)
    except _UNPARSABLE as error:
        reason = f"invalid certificate signing request: {shown(str(error))}"
        raise Malformed(reason) from error


def check_csr(request: Csr, identity: str) -> None:
    """Let a request pass that is for the identity alone, signed with its own key."""
    if len(request.dns_names) != 1:
        raise NotEntitled("CSR must have exactly one DNSName")
    if request.dns_names[0] != identity:
        names = f"csr={shown(request.dns_names[0])}; req={shown(identity)}"
        raise NotEntitled(f"CSR name does not match requested identity: {names}")
    for common_name in request.common_names:
        if common_name not in ("", identity):
            raise NotEntitled(f"invalid CommonName: {shown(common_name)}")
    for kind, called in _NOT_VALIDATED:
        if kind in request.kinds:
            raise NotEntitled(f"cannot validate {called}")
    if not _is_signed(request.parsed):
        raise NotEntitled("CSR is not signed with the key that it is for")


def parse_username(username: str) -> Account:
    """The account of a Kubernetes user name such as system:serviceaccount:ns:sa."""
    parts = username.split(":")
    if len(parts) != 4 or parts[0] != "system":
        form = "Username must be in form system:TYPE:NS:SA"
        raise Malformed(f"{form}: {shown(username)}")
    for part in parts[1:]:
        if not _LABEL.fullmatch(part):
            raise Malformed(f"Not a label: {shown(part)}")
    return Account(kind=parts[1], namespace=parts[2], name=parts[3])


def check_account(domain: Domain, account: Account, identity: str) -> None:
    """Let pass who asks for the name that the token proves: the heart of it all."""
    found = domain.identity(account)
    if found != identity:
        raise NotEntitled(
            "requested identity did not match provided token: "
            f"requested={shown(identity)}; found={found}"
        )


def certifiable_key(request: Csr) -> bytes:
    """The public key to certify, DER: elliptic, of any curve."""
    if request.public_key:
        return request.public_key
    try:
        key = request.parsed.public_key()
    except _UNPARSABLE as error:
        raise SigningFailed("CSR must contain an ECDSA public key") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        kind = type(key).__name__
        raise SigningFailed(f"CSR must contain an ECDSA public key: {kind}")
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def shown(text: str) -> str:
    """Text from outside at a length that fits into a message."""
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _usual(parsed: x509.CertificateSigningRequest, identity: str) -> Csr | None:
    """A request that says the identity and nothing else, byte by byte; or None.

    That is what everybody sends who means well, and it needs no closer look: its key
    is judged with its signature.
    """
    said = parsed.tbs_certrequest_bytes
    at = said.find(csr.P256)
    public_key = said[at : at + csr.P256_SIZE]
    if at < 0 or not identity.isascii():
        return None
    for kind in (PRINTABLE_STRING, UTF8_STRING):
        subject = csr.common_name(identity, kind)
        if said == csr.request_info(subject, public_key, identity):
            return Csr(parsed, subject, (identity,), (identity,), public_key=public_key)
    if said == csr.request_info(NO_SUBJECT, public_key, identity):
        return Csr(parsed, NO_SUBJECT, (), (identity,), public_key=public_key)
    return None


def _any(parsed: x509.CertificateSigningRequest) -> Csr:
    """What any request asks for."""
    with warnings.catch_warnings():
        # Names of more than 64 characters are common here, and fine. What else
        # the library has to remark is judged by the checks, not by warnings.
        warnings.simplefilter("ignore")
        subject = parsed.subject
        names = _alternative_names(parsed)
        common_names = subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return Csr(
        parsed,
        _certified(subject),
        common_names=tuple(str(name.value) for name in common_names),
        dns_names=tuple(n.value for n in names if isinstance(n, x509.DNSName)),
        kinds=tuple(map(type, names)),
    )


def _certified(subject: x509.Name) -> bytes:
    """The subject of the certificate: the checked common name alone, or nothing.

    The name as it was parsed is used again, since one of more than 64 characters
    can't be built anew.
    """
    only = list(subject)
    if len(only) == 1 and only[0].oid == x509.NameOID.COMMON_NAME and only[0].value:
        return subject.public_bytes()
    return NO_SUBJECT


def _alternative_names(
    parsed: x509.CertificateSigningRequest,
) -> tuple[x509.GeneralName, ...]:
    try:
        found = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    return tuple(found.value)


def _is_signed(parsed: x509.CertificateSigningRequest) -> bool:
    try:
        return parsed.is_signature_valid
    except (*_UNPARSABLE, InvalidSignature):
        return False
