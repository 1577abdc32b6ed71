"""Log lines as upstream's logrus writes them, plain or JSON, on standard error.

Not the standard `logging` (8 ms of start-up) and no global state: a `Log` is
made from the flags and passed to whoever has something to say.
"""

from __future__ import annotations

import os
import time

from proxyinit.flags import LOG_LEVELS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_COMMON_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"))
_ESCAPES = {code: f"\\u{code:04x}" for code in (*range(32), *range(127, 160))}


def quote(text: str) -> str:
    """Text in double quotes on one line; what Go's %q and JSON both read."""
    # Transactions are long and plain: five replacements take a tenth of the time
    # of one translation by table.
    for char, escape in _COMMON_ESCAPES:
        text = text.replace(char, escape)
    return f'"{text}"' if text.isprintable() else f'"{text.translate(_ESCAPES)}"'


def write_stderr(line: str) -> None:
    """Write a line at once, so lines of two processes never mix.

    A line that nobody takes is lost: the work must not stop halfway for it.
    """
    try:
        os.write(2, line.encode("utf-8", "replace"))
    except OSError:
        return


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
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))
        entries = {"time": stamp, "level": level, "msg": message, **fields}
        if self._form == "json":
            pairs = (f"{quote(k)}:{quote(v)}" for k, v in sorted(entries.items()))
            self._write(f"{{{','.join(pairs)}}}\n")
            return
        pairs = (
            f"{key}={value if key == 'level' else quote(value)}"
            for key, value in entries.items()
        )
        self._write(" ".join(pairs) + "\n")
