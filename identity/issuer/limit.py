"""A limit on calls: so many a second, so many at once, and nobody waits for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from identity.issuer.errors import Overloaded

_IDLE_CHECK_S = 0.02


class Pace:
    """Instants at which calls may be made: `per_s` of them, `burst` without a gap.

    Pure: the clock is an argument. Times are in seconds.
    """

    def __init__(self, per_s: float, burst: int = 1) -> None:
        self._gap_s = 1 / per_s
        self._slack_s = (burst - 1) * self._gap_s
        self._next_s = float("-inf")

    def reserve(self, now_s: float) -> float:
        """Take the next instant; how long it is until then."""
        at_s = max(self._next_s, now_s - self._slack_s)
        self._next_s = at_s + self._gap_s
        return max(0.0, at_s - now_s)

    def is_idle(self, now_s: float) -> bool:
        """Whether a call could be made right now."""
        return self._next_s <= now_s


class Gate:
    """Lets calls through at a pace; what can't be let through in time is refused.

    Calls wait in the order of their arrival, for at most `wait_s`, and no more of
    them than the pace can serve within that time; others get `Overloaded` at once.
    """

    def __init__(
        self, pace: Pace, *, at_once: int = 32, queue: int = 500, wait_s: float = 5
    ) -> None:
        self._pace = pace
        self._free = asyncio.Semaphore(at_once)
        self._queue = queue
        self._wait_s = wait_s
        self._waiting = 0

    async def idle(self) -> None:
        """Wait until nobody waits and a call could be made: for work that can wait."""
        while self._waiting or not self._pace.is_idle(time.monotonic()):  # noqa: ASYNC110  (time passing sets no event)
            await asyncio.sleep(_IDLE_CHECK_S)

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[None]:
        """Wait for one's turn; the body is the call. Raises `Overloaded`."""
        await self._wait()
        try:
            yield
        finally:
            self._free.release()

    async def _wait(self) -> None:
        if self._waiting >= self._queue:
            raise Overloaded("too many tokens wait for their review: try again later")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait_s):
                await self._free.acquire()
        except TimeoutError as error:
            late = f"a token waited {self._wait_s:g} s for its review: try again later"
            raise Overloaded(late) from error
        finally:
            self._waiting -= 1
        try:
            # The pace is kept here, where few are at a time: an instant that was
            # taken is used, and none is hoarded by those who still wait.
            await asyncio.sleep(self._pace.reserve(time.monotonic()))
        except asyncio.CancelledError:
            self._free.release()
            raise
