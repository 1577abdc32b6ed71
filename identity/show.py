"""What is in an identity directory: a report as a value, for people, for programs."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from identity import pem, store, trust
from identity.bootstrap import CSR, KEY
from identity.credentials import BROKEN, load_certificate, spki
from identity.directory import CA_CRT, SET, TLS_CRT, TLS_KEY, read_plain
from identity.errors import CertificateRejected, IdentityError
from identity.schedule import RefreshPolicy
from identity.trust import Anchors


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that can be said; None where there is nothing to say it about.

    `problems` is empty when key, certificate and anchors belong together, and are
    valid now. `renewal` is when `proxy-identity run` with these bounds would renew.
    """

    directory: str
    names: tuple[str, ...] = ()
    subject: str | None = None
    issuer: str | None = None
    serial: str | None = None
    sha256: str | None = None
    not_before: datetime | None = None
    not_after: datetime | None = None
    renewal: datetime | None = None
    key_matches: bool | None = None
    chain_verifies: bool | None = None
    requested: str | None = None
    problems: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """The same for programs: instants as RFC 3339."""
        return {
            name: value.isoformat().replace("+00:00", "Z")
            if isinstance(value, datetime)
            else value
            for name, value in asdict(self).items()
        }


def examine(
    directory: str,
    now: datetime,
    policy: RefreshPolicy = RefreshPolicy(),  # noqa: B008
) -> Report:
    """Read a directory and judge it. Raises `DirectoryUnusable`."""
    files = store.read(directory, SET)
    requested = _requested(read_plain(directory, (KEY, CSR)))
    if TLS_CRT not in files:
        told = "there is no certificate yet: run proxy-identity certify, or run"
        return Report(directory=directory, requested=requested, problems=(told,))
    problems: list[str] = []
    try:
        blocks = [der for _, der in pem.decode(files[TLS_CRT].decode())]
        leaf, *intermediates = map(load_certificate, blocks)
    except ValueError as error:
        told = f"{TLS_CRT} can't be read: {error}"
        return Report(directory=directory, requested=requested, problems=(told,))
    key_matches = _key_matches(files.get(TLS_KEY), leaf, problems)
    chain_verifies = _chain_verifies(
        files.get(CA_CRT), leaf, intermediates, now, problems
    )
    published = store.published_at(directory)
    made = now if published is None else datetime.fromtimestamp(published, UTC)
    return Report(
        directory=directory,
        names=trust.sans(leaf),
        subject=_told(leaf.subject),
        issuer=_told(leaf.issuer),
        serial=f"{leaf.serial_number:x}",
        sha256=leaf.fingerprint(hashes.SHA256()).hex(),
        not_before=leaf.not_valid_before_utc,
        not_after=leaf.not_valid_after_utc,
        renewal=made + policy.wait(leaf.not_valid_after_utc, made),
        key_matches=key_matches,
        chain_verifies=chain_verifies,
        requested=requested,
        problems=tuple(problems),
    )


def _key_matches(
    data: bytes | None, leaf: x509.Certificate, problems: list[str]
) -> bool:
    if data is None:
        problems.append(f"{TLS_KEY} is missing")
        return False
    try:
        key = load_pem_private_key(data, None)
    except (*BROKEN, TypeError):
        problems.append(f"{TLS_KEY} is no private key in PEM")
        return False
    matches = isinstance(key, ec.EllipticCurvePrivateKey) and spki(key) == spki(leaf)
    if not matches:
        problems.append(f"{TLS_KEY} is not the key of {TLS_CRT}")
    return matches


def _chain_verifies(
    data: bytes | None,
    leaf: x509.Certificate,
    intermediates: list[x509.Certificate],
    now: datetime,
    problems: list[str],
) -> bool:
    if data is None:
        problems.append(f"{CA_CRT} is missing")
        return False
    try:
        trust.verify(
            leaf, intermediates, Anchors.parse(data.decode("utf-8", "replace")), now
        )
    except CertificateRejected as error:
        problems.append(str(error))
        return False
    except IdentityError as error:
        problems.append(f"{CA_CRT}: {error}")
        return False
    return True


def _requested(files: dict[str, bytes]) -> str | None:
    """The name in the bootstrap's request, if there is one that can be read."""
    try:
        request = x509.load_der_x509_csr(files[CSR])
        san = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (KeyError, x509.ExtensionNotFound, *BROKEN):
        return None
    names = san.value.get_values_for_type(x509.DNSName)
    return names[0] if names else None


def _told(name: x509.Name) -> str:
    with warnings.catch_warnings():
        # Identities are often longer than the 64 characters of a common name.
        warnings.simplefilter("ignore", UserWarning)
        return name.rfc4514_string()
