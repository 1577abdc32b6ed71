"""Keeping a certificate fresh, for ever: attempt, publish, tell, wait, again."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NoReturn, Protocol

from identity import anchors, directory, hooks, keys
from identity.clock import Clock
from identity.config import Config
from identity.credentials import Credential, KeyPair
from identity.errors import (
    AttemptFailed,
    BadKeyPair,
    BadTrustAnchors,
    DirectoryUnusable,
    IdentityError,
)
from identity.metrics import Metrics
from identity.schedule import Appointment
from identity.store import Disk

if TYPE_CHECKING:
    from identity.keys import KeyMaker

STEP_S = 5.0
"""How long to wait without looking at the clocks: it may be a suspend that ended."""

_log = logging.getLogger(__name__)


class Certify(Protocol):
    """Gets a pair certified; `identity.client.Certifier` over the network."""

    async def certify(
        self, config: Config, pair: KeyPair, credential: Credential | None = None
    ) -> Credential:
        """A new certificate. Raises `IdentityError`."""


@dataclass(kw_only=True)
class Agent:
    """One identity. `credential` is what is published, whether valid or not.

    The trust anchors of `config` are replaced by what `anchors_file` holds, if any.
    """

    config: Config
    certifier: Certify
    clock: Clock
    metrics: Metrics
    anchors_file: str | None = None
    disk: Disk = field(default_factory=Disk)
    generate: KeyMaker = keys.generate
    random: random.Random = field(default_factory=random.Random)
    hooks: Sequence[hooks.Hook] = ()
    rotate_key: bool = False
    credential: Credential | None = None
    failures: int = 0
    _hide: bool = False
    _refused: str = ""
    _telling: list[asyncio.Task[None]] = field(default_factory=list)

    def ready(self) -> bool:
        """Whether there is a certificate that has not expired."""
        return self.credential is not None and self.credential.valid(self.clock.now())

    async def run(self) -> NoReturn:
        """Certify and renew until cancelled; no failure ends it."""
        try:
            wait = self._adopt()
            while True:
                await self._wait(wait)
                wait = await self._step()
        finally:
            for task in self._telling:
                task.cancel()
            await asyncio.gather(*self._telling, return_exceptions=True)

    async def certify(self, within: timedelta) -> Credential:
        """Certify once, with retries for so long. Raises the last failure."""
        self._adopt()
        failure: IdentityError | None = None
        try:
            async with asyncio.timeout(within.total_seconds()):
                while True:
                    try:
                        credential = await self._attempt()
                    except (DirectoryUnusable, BadKeyPair):
                        raise  # waiting does not mend these
                    except IdentityError as error:
                        failure = error
                        wait = self._failed(error)
                        await self.clock.sleep(wait.total_seconds())
                    else:
                        _log.info(
                            "Certified identity %s, valid until %s",
                            self.config.name,
                            told(credential.expiry),
                        )
                        return credential
        except TimeoutError:
            seconds = within.total_seconds()
            reason = failure or "the first attempt was still under way"
            raise IdentityError(
                f"not certified within {seconds:g} s: {reason}"
            ) from None

    def _adopt(self) -> timedelta:
        """Go on with the certificate of an earlier run; how long it may wait."""
        now = self.clock.now()
        found = directory.current(self.config, now)
        if found is None:
            return timedelta()
        self.credential, pair = found
        self.metrics.accepted(self.credential.expiry, now)
        try:
            if not self.rotate_key and not directory.same_key(pair, self._pair()):
                return timedelta()
        except IdentityError:
            return timedelta()
        _log.info(
            "Found a certificate for %s, valid until %s",
            self.config.name,
            told(self.credential.expiry),
        )
        return self._renewal(now)

    async def _step(self) -> timedelta:
        """One attempt in an endless row; how long to wait for the next."""
        try:
            credential = await self._attempt()
        except IdentityError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001  (the outermost loop never ends)
            # Its message might quote anything, secrets too.
            return self._failed(IdentityError(f"unexpected {type(error).__name__}"))
        self._tell()
        wait = self._renewal(self.clock.now())
        _log.info(
            "Certified identity %s, valid until %s; next renewal in %d s",
            self.config.name,
            told(credential.expiry),
            wait.total_seconds(),
        )
        return wait

    async def _attempt(self) -> Credential:
        """Certify, publish, take into use. Raises `IdentityError`.

        Until the very end the certificate in use stays as it is.
        """
        self._take_anchors()
        pair = self._pair()
        shown = self.credential if self.ready() and not self._hide else None
        try:
            credential = await self.certifier.certify(self.config, pair, shown)
        except AttemptFailed:
            # It may be valid for us but not for the service, and not every server
            # says so before it hangs up: next time without it.
            self._hide = shown is not None
            raise
        directory.publish(self.config, credential, disk=self.disk)
        self.credential = credential
        self.failures = 0
        self._hide = False
        self.metrics.accepted(credential.expiry, self.clock.now())
        self.metrics.succeeded()
        return credential

    def _pair(self) -> KeyPair:
        if self.rotate_key and self.credential is not None:
            key = self.generate()
            return KeyPair(key=key, csr_der=keys.csr_der(key, self.config.name))
        return directory.load_pair(self.config, disk=self.disk, generate=self.generate)

    def _failed(self, error: IdentityError) -> timedelta:
        self.failures += 1
        self.metrics.failed(error)
        wait = self.config.backoff.wait(self.failures, self.random.random())
        _log.error(
            "Failed to obtain identity: %s; again in %.1f s",
            error,
            wait.total_seconds(),
        )
        return wait

    def _renewal(self, now: datetime) -> timedelta:
        expiry = None if self.credential is None else self.credential.expiry
        return self.config.refresh.early_wait(expiry, now, self.random.random())

    def _take_anchors(self) -> bool:
        """Use the trust anchors that the file holds now; whether they are others.

        Those that can't be used are told of once, and change nothing.
        """
        if self.anchors_file is None:
            return False
        try:
            found = anchors.read(self.anchors_file)
        except BadTrustAnchors as error:
            if str(error) != self._refused:
                self._refused = str(error)
                _log.warning("Keeping the trust anchors in use: %s", error)
            return False
        self._refused = ""
        if found.text == self.config.anchors.text:
            return False
        self.config = replace(self.config, anchors=found)
        _log.info("New trust anchors are in use")
        return True

    async def _wait(self, wait: timedelta) -> None:
        """Keep an appointment, by both clocks, in short steps.

        It is called off by new trust anchors: others wait for them in the set.
        """
        clock = self.clock
        appointment = Appointment.after(wait, clock.now(), clock.ticks())
        self.metrics.scheduled(appointment.due)
        while (left := appointment.left(clock.now(), clock.ticks())) > timedelta():
            if self._take_anchors():
                return
            await clock.sleep(min(left.total_seconds(), STEP_S))

    def _tell(self) -> None:
        """Tell everybody; whoever has not heard of the last one need not any more."""
        for task in self._telling:
            task.cancel()
        self._telling = [
            asyncio.create_task(hooks.tell(hook, self.clock, self.metrics.told))
            for hook in self.hooks
        ]


def told(instant: datetime) -> str:
    """An instant for people."""
    return instant.strftime("%Y-%m-%d %H:%M:%S UTC")
