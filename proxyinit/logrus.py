"""The form of upstream's log lines, logrus': ``time="..." level=info msg="..."``.

Shared by everything here that logs, and as light as the starts that it is part of.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_COMMON_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"))
_ESCAPES = {code: f"\\u{code:04x}" for code in (*range(32), *range(127, 160))}


def quote(text: str) -> str:
    """Text in double quotes on one line; what Go's %q and JSON both read."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    # Transactions are long and plain: four replacements take a tenth of the time
    # of one translation by table.
    for char, escape in _COMMON_ESCAPES:
        text = text.replace(char, escape)
    return f'"{text}"' if text.isprintable() else f'"{text.translate(_ESCAPES)}"'


def line(
    level: str, message: str, now: float, form: str, fields: Mapping[str, str]
) -> str:
    """One log line, plain or JSON; `now` is Unix time, in seconds."""
    stamp = _stamp(int(now))
    if form == "json":
        entries = {"time": stamp, "level": level, "msg": message, **fields}
        pairs = (f"{quote(k)}:{quote(v)}" for k, v in sorted(entries.items()))
        return f"{{{','.join(pairs)}}}\n"
    text = f'time="{stamp}" level={level} msg={quote(message)}'
    for key, value in fields.items():
        text += f" {key}={quote(value)}"
    return text + "\n"


_stamps: dict[int, str] = {}
"""The last second's, as services log many lines in the same."""


def _stamp(now_s: int) -> str:
    """The time as RFC 3339 writes it."""
    stamp = _stamps.get(now_s)
    if stamp is None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s))
        _stamps.clear()
        _stamps[now_s] = stamp
    return stamp


def write_stderr(text: str) -> None:
    """Write a line at once, so lines of two processes never mix.

    A line that nobody takes is lost: the work must not stop halfway for it.
    """
    try:
        os.write(2, text.encode("utf-8", "replace"))
    except OSError:
        return
