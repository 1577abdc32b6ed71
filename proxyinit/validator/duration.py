"""Spans of time as upstream's flags spell them, and as its log shows them."""

from __future__ import annotations

from proxyinit.record import Record

UNITS_MS = {
    "ms": 1,
    "s": 1000,
    "m": 60 * 1000,
    "h": 60 * 60 * 1000,
    "d": 24 * 60 * 60 * 1000,
}
MAX_MS = 2**64 - 1
"""The longest that upstream can say, in milliseconds."""


class Duration(Record):
    """A span of time, in whole milliseconds."""

    ms: int

    @property
    def seconds(self) -> float:
        """The same in seconds, for clocks."""
        return self.ms / 1000

    def __str__(self) -> str:
        """As Rust's Debug form shows it: ``10s``, ``1.5s``, ``250ms``, ``0ns``."""
        if not self.ms:
            return "0ns"
        whole, rest = divmod(self.ms, 1000)
        if not whole:
            return f"{rest}ms"
        return f"{whole}.{rest:03}".rstrip("0").rstrip(".") + "s"


def parse_duration(text: str) -> Duration:
    """A whole number and a unit: ``500ms``, ``10s``, ``2m``; 0 needs no unit."""
    stripped = text.strip()
    number = stripped.rstrip("".join(UNITS_MS))
    unit = stripped[len(number) :]
    digits = number.removeprefix("+")
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError("expected a whole number with a unit, such as 500ms or 10s")
    significant = digits.lstrip("0")
    if unit not in UNITS_MS and (unit or significant):
        raise ValueError(f"expected a unit: {', '.join(UNITS_MS)}, as in 10s")
    if len(significant) > len(str(MAX_MS)):
        raise ValueError(f"expected at most {MAX_MS}ms")
    ms = int(digits) * UNITS_MS.get(unit, 0)
    if ms > MAX_MS:
        raise ValueError(f"expected at most {MAX_MS}ms")
    return Duration(ms)
