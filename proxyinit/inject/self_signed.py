"""A certificate of our own making, and the caBundle that makes the API server trust it.

The key never leaves the process. Each replica adds its authority to the bundle that it
finds, so replicas don't lock each other out; authorities that have expired are dropped,
and of the rest the newest are kept.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from identity import ca
from identity.issuer.errors import ApiError
from proxyinit.inject.api import Conflict
from proxyinit.inject.certificates import KeyPair
from proxyinit.inject.errors import InjectError

CONFIGURATION = "linkerd-proxy-injector-webhook-config"
SERVICE = "linkerd-proxy-injector"
LIFETIME = dt.timedelta(days=90)
RENEWED_AFTER = LIFETIME * 0.7
MOST_KEPT = 12
"""Authorities in a bundle: a few replicas, and those before the last few restarts."""

_PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_SKEW = dt.timedelta(hours=1)
_ATTEMPTS = 10


class BundleRefused(InjectError):
    """The caBundle can't be written; the API server would not trust us."""


class Client(Protocol):
    """The part of an API client that is needed here."""

    def get(self, path: str) -> Any:
        """An object; raises `ApiError`."""

    def merge(self, path: str, patch: Mapping[str, Any]) -> Any:
        """Change an object by a merge patch; raises `ApiError`."""


@dataclass(frozen=True, slots=True)
class SelfSigned:
    """A pair to serve with, and the authority that it can be verified with."""

    pair: KeyPair
    authority: x509.Certificate


def generate(namespace: str, now: dt.datetime) -> SelfSigned:
    """Certify the service of a namespace; the authority's key is forgotten."""
    name = f"{SERVICE}.{namespace}.svc"
    start = now.replace(microsecond=0)
    validity = ca.Validity(not_before=start - _SKEW, not_after=start + LIFETIME)
    root = ca.create_root(
        name[:64], ec.generate_private_key(ec.SECP256R1()), validity, _serial()
    )
    key = ec.generate_private_key(ec.SECP256R1())
    holder = ca.Holder(public_key=key.public_key(), names=[x509.DNSName(name)])
    leaf = ca.issue_leaf(root, holder, validity, _serial())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pair = KeyPair(leaf.public_bytes(Encoding.PEM), private)
    return SelfSigned(pair, root.certificate)


def bundle(
    found: Sequence[x509.Certificate], own: x509.Certificate, now: dt.datetime
) -> bytes:
    """A bundle with ours in it, in PEM: what has expired goes, and the oldest.

    Oldest first, so that every replica writes the same.
    """
    others = {
        each.public_bytes(Encoding.DER): each
        for each in found
        if each.not_valid_after_utc > now and each != own
    }
    newest = sorted(others.values(), key=_age)[-MOST_KEPT + 1 :]
    kept = sorted([*newest, own], key=_age)
    return b"".join(each.public_bytes(Encoding.PEM) for each in kept)


def _age(certificate: x509.Certificate) -> tuple[dt.datetime, int]:
    return certificate.not_valid_before_utc, certificate.serial_number


def publish(client: Client, own: x509.Certificate, now: dt.datetime) -> None:
    """Add our authority to the bundle of every webhook of ours that lacks it.

    When somebody else writes at the same time, it is tried again. Raises
    `BundleRefused`.
    """
    path = f"{_PATH}/{CONFIGURATION}"
    for attempt in range(_ATTEMPTS):
        try:
            configuration = client.get(path)
            webhooks = [
                _trusting(webhook, own, now) for webhook in configuration["webhooks"]
            ]
            if webhooks == configuration["webhooks"]:
                return
            version = configuration["metadata"]["resourceVersion"]
            metadata = {"resourceVersion": version}
            client.merge(path, {"metadata": metadata, "webhooks": webhooks})
        except Conflict as error:
            if attempt + 1 < _ATTEMPTS:
                continue
            raise BundleRefused(f"{CONFIGURATION} changes all the time") from error
        except ApiError as error:
            raise BundleRefused(
                f"can't write the caBundle of {CONFIGURATION}: {error}; the account "
                "needs get and patch on it"
            ) from error
        except (KeyError, TypeError) as error:
            raise BundleRefused(f"{CONFIGURATION} is malformed: {error}") from error
        return


def _trusting(
    webhook: Mapping[str, Any], own: x509.Certificate, now: dt.datetime
) -> dict[str, Any]:
    config = webhook["clientConfig"]
    found = _certificates(config.get("caBundle") or "")
    encoded = base64.b64encode(bundle(found, own, now)).decode()
    return {**webhook, "clientConfig": {**config, "caBundle": encoded}}


def _certificates(encoded: str) -> list[x509.Certificate]:
    """The certificates of a bundle; none of one that nobody could use."""
    try:
        return x509.load_pem_x509_certificates(base64.b64decode(encoded))
    except (binascii.Error, ValueError):
        return []


def _serial() -> int:
    return ca.serial_from(os.urandom(16))
