"""Signals that ask the demo to end, noticed between steps."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Self


class Interrupted(Exception):
    """Somebody asked for the end; `number` is the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Interrupts:
    """Remembers SIGINT, SIGTERM and SIGHUP until `check` is called.

    A step under way, such as making a namespace or removing it, is never torn
    in two: each takes moments, and whoever takes steps asks `check` in between.
    """

    _SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self._seen = 0

    def __enter__(self) -> Self:
        self._previous = {}
        for number in self._SIGNALS:
            handler = signal.getsignal(number)
            if handler is not signal.SIG_IGN:  # as under nohup: stays ignored
                self._previous[number] = handler
                signal.signal(number, self._remember)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _remember(self, number: int, _: FrameType | None) -> None:
        self._seen = number

    def check(self) -> None:
        """Raises `Interrupted` when a signal has come."""
        if self._seen:
            raise Interrupted(self._seen)
