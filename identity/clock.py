"""Time, as an argument: the one place where the client looks at a clock."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Two clocks and a way to wait."""

    def now(self) -> datetime:
        """The wall clock, which may jump; aware, in UTC."""

    def ticks(self) -> float:
        """Seconds of a clock that never jumps; it stands still during suspend."""

    async def sleep(self, seconds: float) -> None:
        """Wait; other tasks go on."""


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> datetime:
        """The wall clock."""
        return datetime.now(UTC)

    def ticks(self) -> float:
        """The steady clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait by the steady clock."""
        await asyncio.sleep(seconds)
