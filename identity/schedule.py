"""When to renew: values and arithmetic, without a clock and without chance.

Instants are aware datetimes; `chance` is a number from 0 up to 1, drawn by the
caller; `ticks` are seconds of a clock that never jumps and stands still while the
machine sleeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

EARLY = 0.05
"""How much of a wait may be cut off at random, so that a fleet spreads out."""
SPREAD = 0.25
"""The same for retries: a fleet fails at one instant and shall not retry at one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshPolicy:
    """How long to wait with a certificate: 70 % of what it has left, within bounds."""

    shortest: timedelta = timedelta(seconds=10)
    longest: timedelta = timedelta(days=1)

    def wait(self, expiry: datetime | None, now: datetime) -> timedelta:
        """How long upstream waits; the shortest bound counts before the longest."""
        if expiry is None or expiry <= now:
            return self.shortest
        wait = (expiry - now) * 7 / 10
        if wait < self.shortest:
            return self.shortest
        return min(wait, self.longest)

    def early_wait(
        self, expiry: datetime | None, now: datetime, chance: float
    ) -> timedelta:
        """The same or up to 5 % less, never less than the shortest bound."""
        wait = self.wait(expiry, now)
        return max(wait * (1 - EARLY * chance), min(wait, self.shortest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait after failures: twice as long each time, within bounds."""

    shortest: timedelta = timedelta(seconds=1)
    longest: timedelta = timedelta(seconds=60)
    spread: float = SPREAD

    def wait(self, failures: int, chance: float) -> timedelta:
        """The wait after so many failures in a row, one at least."""
        doublings = min(failures - 1, 62)  # beyond, every bound has been reached
        factor = self.longest / self.shortest if self.shortest else 1.0
        grown = self.shortest * min(2.0**doublings, factor)
        return max(grown * (1 - min(self.spread, 1) * chance), self.shortest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Appointment:
    """One wait, kept by two clocks, as each can be wrong.

    The wall clock knows of a machine that slept; the steady one is not fooled when
    the wall clock is set back. Whichever says so first is believed: renewing early
    is harmless, late is not.
    """

    due: datetime
    made_at: float
    wait: timedelta

    @classmethod
    def after(cls, wait: timedelta, now: datetime, ticks: float) -> Appointment:
        """The appointment that far from now."""
        return cls(due=now + wait, made_at=ticks, wait=wait)

    def left(self, now: datetime, ticks: float) -> timedelta:
        """How long still to wait; nothing or less when it is time."""
        steady = self.wait - timedelta(seconds=ticks - self.made_at)
        return min(self.due - now, steady)
