"""The form of upstream's log lines, that of Rust's tracing: plain or JSON.

::

    2026-11-20T12:02:02.055672Z  INFO linkerd_network_validator: Validated
    2026-11-20T12:02:02.055713Z DEBUG connect: linkerd_network_validator: Connected
"""

from __future__ import annotations

import time

from proxyinit.logrus import quote, write_stderr
from proxyinit.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TARGET = "linkerd_network_validator"
"""What upstream's lines carry as their origin; dashboards filter by it."""

LEVELS = ("off", "error", "warn", "info", "debug", "trace")
_ESCAPES = {
    **{code: f"\\u{{{code:x}}}" for code in (*range(32), *range(127, 160))},
    **{ord(char): f"\\{char}" for char in '"\\'},
    9: "\\t",
    10: "\\n",
    13: "\\r",
}


class Span(Record):
    """What was going on when a line was written, with a field or without."""

    name: str
    key: str = ""
    value: str = ""


def debug_text(text: str) -> str:
    """A text in quotes, as Rust's Debug form shows it."""
    return f'"{text.translate(_ESCAPES)}"'


def parse_filter(text: str) -> str:
    """The level of our lines, from a level or directives such as ``kube=info,warn``.

    The directive with the longest target that ours starts with decides; those for
    spans are taken and decide nothing.
    """
    best = (-1, "error" if not text.strip(", ") else "off")
    for directive in (part.strip() for part in text.split(",")):
        if not directive:
            continue
        target, equals, word = directive.rpartition("=")
        level = _level(word)
        if level is None or (equals and not target):
            raise ValueError(
                f"expected one of {', '.join(LEVELS)}, or TARGET=LEVEL,..."
            )
        if TARGET.startswith(target) and len(target) >= best[0]:
            best = (len(target), level)
    return best[1]


def _level(word: str) -> str | None:
    lower = word.lower()
    if lower in LEVELS:
        return lower
    if lower == "warning":
        return "warn"
    return LEVELS[int(word)] if word in ("0", "1", "2", "3", "4", "5") else None


def line(  # noqa: PLR0913  (what a line is made of)
    level: str,
    message: str,
    fields: dict[str, str | int],
    spans: tuple[Span, ...],
    *,
    now_ns: int,
    form: str,
) -> str:
    """One log line; `now_ns` is Unix time in nanoseconds."""
    seconds, rest = divmod(now_ns, 10**9)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    stamp = f"{stamp}.{rest // 1000:06}Z"
    shown = f"{level.upper():>5}"
    if form == "json":
        return _json(stamp, shown.strip(), message, fields, spans)
    inner = "".join(f"{_plain_span(span)}:" for span in spans)
    where = f"{inner} {TARGET}" if inner else TARGET
    words = [*([message] if message else []), *(f"{k}={v}" for k, v in fields.items())]
    # Whatever stands in a field, a line stays one line.
    text = " ".join(words).replace("\r", "\\r").replace("\n", "\\n")
    return f"{stamp} {shown} {where}: {text}\n"


def _plain_span(span: Span) -> str:
    return f"{span.name}{{{span.key}={span.value}}}" if span.key else span.name


def _json(
    stamp: str,
    level: str,
    message: str,
    fields: dict[str, str | int],
    spans: tuple[Span, ...],
) -> str:
    entries: dict[str, str | int] = {"message": message} if message else {}
    entries |= fields
    parts = [
        f'"timestamp":{quote(stamp)}',
        f'"level":{quote(level)}',
        f'"fields":{_object(entries)}',
        f'"target":{quote(TARGET)}',
    ]
    if spans:
        shown = [
            _object({**({s.key: s.value} if s.key else {}), "name": s.name})
            for s in spans
        ]
        parts.append(f'"spans":[{",".join(shown)}]')
    return f"{{{','.join(parts)}}}\n"


def _object(entries: dict[str, str | int]) -> str:
    pairs = (
        f"{quote(key)}:{value if isinstance(value, int) else quote(value)}"
        for key, value in entries.items()
    )
    return f"{{{','.join(pairs)}}}"


class Log:
    """Writes lines at or above a level; errors are always written."""

    def __init__(
        self,
        level: str = "info",
        form: str = "plain",
        *,
        write: Callable[[str], object] = write_stderr,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._threshold = max(LEVELS.index(level), LEVELS.index("error"))
        self._form = form
        self._write = write
        self._clock = clock

    def error(self, message: str, /, **fields: str | int) -> None:
        """Say why the pod is not ready."""
        self._line("error", message, fields, ())

    def warn(self, message: str, /, **fields: str | int) -> None:
        """Say what the operator should know although the work goes on."""
        self._line("warn", message, fields, ())

    def info(self, message: str, /, **fields: str | int) -> None:
        """Say what was done."""
        self._line("info", message, fields, ())

    def debug(self, message: str, /, *spans: Span, **fields: str | int) -> None:
        """Say what was seen."""
        self._line("debug", message, fields, spans)

    def _line(
        self,
        level: str,
        message: str,
        fields: dict[str, str | int],
        spans: tuple[Span, ...],
    ) -> None:
        if LEVELS.index(level) > self._threshold:
            return
        now_ns = self._clock()
        text = line(level, message, fields, spans, now_ns=now_ns, form=self._form)
        self._write(text)
