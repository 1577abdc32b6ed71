"""Calls that come close together are worked on together, one right after the other.

Between two certificates a processor runs the server's code, and forgets how that of
the first went: a second takes a third less when it comes right after the first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

TOGETHER = 16
"""So many calls make a group; more in a row are not faster."""

PATIENCE_S = 0.002
"""How long a call waits for others at most; the loop counts in milliseconds."""


class Turns:
    """Gives calls their turns: at once while there is little to do, else in groups."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._last_s = float("-inf")

    async def wait(self) -> None:
        """Return when it is the caller's turn, in the order of the callers."""
        now_s = self._clock()
        if not self._waiting and now_s - self._last_s > PATIENCE_S:
            self._last_s = now_s
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if len(self._waiting) == TOGETHER:
            loop.call_soon(self._go)  # not now, else this call came first
        elif self._timer is None:
            self._timer = loop.call_later(PATIENCE_S, self._go)
        await turn

    def _go(self) -> None:
        """Let all who wait continue; the loop resumes them in a row."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        group, self._waiting = self._waiting, []
        for turn in group:
            if not turn.done():  # else its caller was cancelled
                turn.set_result(None)
        self._last_s = self._clock()
