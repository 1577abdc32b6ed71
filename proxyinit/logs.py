"""What proxy-init has to say, line by line, on standard error.

Not the standard `logging` (8 ms of start-up) and no global state: a `Log` is
made from the flags and passed to whoever has something to say.
"""

from __future__ import annotations

import time

from proxyinit.flags import LOG_LEVELS
from proxyinit.logrus import line, write_stderr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Log:
    """Writes lines at or above a level; errors are always written."""

    def __init__(
        self,
        level: str = "info",
        form: str = "plain",
        *,
        write: Callable[[str], object] = write_stderr,
        clock: Callable[[], float] = time.time,
    ) -> None:
        least = "warning" if level == "warn" else level
        self._threshold = max(LOG_LEVELS.index(least), LOG_LEVELS.index("error"))
        self._form = form
        self._write = write
        self._clock = clock

    def error(self, message: str, **fields: str) -> None:
        """Say why the program can't do what it was asked to."""
        self._line("error", message, fields)

    def warning(self, message: str, **fields: str) -> None:
        """Say what the operator should know although the work goes on."""
        self._line("warning", message, fields)

    def info(self, message: str, **fields: str) -> None:
        """Say what was done."""
        self._line("info", message, fields)

    def debug(self, message: str, **fields: str) -> None:
        """Say what was looked at and decided."""
        self._line("debug", message, fields)

    def _line(self, level: str, message: str, fields: dict[str, str]) -> None:
        if LOG_LEVELS.index(level) > self._threshold:
            return
        self._write(line(level, message, self._clock(), self._form, fields))
