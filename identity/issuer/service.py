"""Certifying one request after the other: all checks in order, then a signature."""

from __future__ import annotations

import datetime as dt
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from identity import ca, leaf
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
    """A certificate, those above it, and its end in seconds since 1970."""

    leaf_der: bytes
    chain_der: tuple[bytes, ...]
    not_after_s: int


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
        names = [(leaf.DNS, identity)]
        if self.config.spiffe:
            names.append((leaf.URI, self.config.domain.spiffe_id(account)))
        period = self._period(credentials)
        fields = leaf.Fields(
            subject=csr.subject,
            public_key=policy.certifiable_key(csr),
            names=names,
            validity=period.der,
            serial=ca.serial_from(self.random(SERIAL_BYTES)),
        )
        der = leaf.issue(credentials.template, credentials.authority.key, fields)
        digest = hashlib.sha256(der).hexdigest()
        message = f"issued certificate for {identity} until {period.end}: {digest}"
        _log.info("%s", message)
        self.events.send(events.issued(account, message))
        return Certified(der, credentials.chain_der, period.not_after_s)

    def _period(self, credentials: Credentials) -> Period:
        """From a little in the past, for clocks that are behind, to the end."""
        return _period(
            int(self.clock().timestamp()),
            self.config.lifetime,
            self.config.skew,
            credentials.not_after,
        )


@dataclass(frozen=True, slots=True)
class Period:
    """A validity in the forms that are needed: for certificates, answers, messages."""

    der: bytes
    not_after_s: int
    end: str


@lru_cache(maxsize=4)
def _period(
    now_s: int, lifetime: dt.timedelta, skew: dt.timedelta, not_after: dt.datetime
) -> Period:
    """The validity of all certificates of the same second."""
    now = dt.datetime.fromtimestamp(now_s, dt.UTC)
    last = min(now + lifetime + skew, not_after)
    validity = ca.Validity(
        not_before=(now - skew).replace(microsecond=0),
        not_after=last.replace(microsecond=0),
    )
    shown_end = last.strftime("%Y-%m-%d %H:%M:%S +0000 UTC")
    return Period(leaf.validity_der(validity), int(last.timestamp()), shown_end)
