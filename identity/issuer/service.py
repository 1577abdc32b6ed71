"""Certifying one request after the other: all checks in order, then a signature."""

from __future__ import annotations

import datetime as dt
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from identity import ca
from identity.issuer import events, policy
from identity.issuer.config import IssuerConfig
from identity.issuer.credentials import Credentials
from identity.issuer.errors import (
    ApiError,
    IssuerInvalid,
    Malformed,
    NotEntitled,
    NotReady,
    ReviewFailed,
)
from identity.issuer.kubernetes import Validator
from identity.issuer.policy import Account, Csr, Request, shown

SERIAL_BYTES = 16

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Certified:
    """A certificate, those above it, and its end."""

    leaf_der: bytes
    chain_der: tuple[bytes, ...]
    not_after: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Certifier:
    """The service's decisions; transport, files and time are given to it.

    `credentials` is asked once per request; `random` makes so many random bytes.
    """

    config: IssuerConfig
    credentials: Callable[[], Credentials | None]
    validator: Validator
    events: events.Events
    clock: Callable[[], dt.datetime]
    random: Callable[[int], bytes]

    async def certify(self, request: Request) -> Certified:
        """The certificate for a request; raises the `Refusal` to send instead."""
        credentials = self.credentials()
        if credentials is None:
            _log.warning("Certificate issuer is not ready")
            raise NotReady("cert issuer not ready yet")
        csr = policy.check_parts(request)
        self._check_issuer(credentials, request.identity)
        policy.check_csr(csr, request.identity)
        account = await self._validate(request)
        policy.check_account(self.config.domain, account, request.identity)
        return self._sign(credentials, csr, account, request.identity)

    def _check_issuer(self, credentials: Credentials, identity: str) -> None:
        try:
            credentials.verify(self.clock())
        except IssuerInvalid as error:
            whose = f"{error} - CSR Identity : {shown(identity)}"
            failed = "could not process CSR because of CA cert validation failure"
            _log.error("%s: %s", failed, whose)
            namespace = self.config.domain.control_namespace
            self.events.send(events.invalid(namespace, whose))
            raise

    async def _validate(self, request: Request) -> Account:
        identity = shown(request.identity)
        _log.debug("Validating token for %s", identity)
        try:
            return await self.validator.validate(request.token)
        except Malformed as error:
            _log.info("invalid token provided for %s: %s", identity, error)
            raise
        except NotEntitled as error:
            _log.info("authentication failed for %s: %s", identity, error)
            raise
        except ApiError as error:
            message = f"error validating token for {identity}: {error}"
            _log.error("%s", message)
            raise ReviewFailed(message) from error

    def _sign(
        self, credentials: Credentials, csr: Csr, account: Account, identity: str
    ) -> Certified:
        """Sign what was checked; of the CSR only the key, and the name as checked."""
        names: list[x509.GeneralName] = [x509.DNSName(identity)]
        if self.config.spiffe:
            spiffe_id = self.config.domain.spiffe_id(account)
            names.append(x509.UniformResourceIdentifier(spiffe_id))
        holder = ca.Holder(
            public_key=policy.certifiable_key(csr),
            names=names,
            subject=policy.certified_subject(csr),
        )
        validity = self._validity(credentials)
        serial = ca.serial_from(self.random(SERIAL_BYTES))
        leaf = ca.issue_leaf(credentials.authority, holder, validity, serial)
        der = leaf.public_bytes(Encoding.DER)
        end = validity.not_after.strftime("%Y-%m-%d %H:%M:%S +0000 UTC")
        digest = hashlib.sha256(der).hexdigest()
        message = f"issued certificate for {identity} until {end}: {digest}"
        _log.info("%s", message)
        self.events.send(events.issued(account, message))
        return Certified(der, credentials.chain_der, validity.not_after)

    def _validity(self, credentials: Credentials) -> ca.Validity:
        """From a little in the past, for clocks that are behind, to the end."""
        skew = self.config.skew
        now = self.clock()
        last = now + self.config.lifetime + skew
        return ca.Validity(
            not_before=(now - skew).replace(microsecond=0),
            not_after=min(last, credentials.not_after).replace(microsecond=0),
        )
