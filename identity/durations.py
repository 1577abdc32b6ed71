"""Durations as the proxy's environment writes them: digits, then one unit."""

from __future__ import annotations

from datetime import timedelta

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_EXPECTED = "expected digits and one of ms, s, m, h, d, such as 10s"


def parse(text: str) -> timedelta:
    """The duration; ValueError unless it is ``10s``, ``24h``, ``0`` or the like.

    No fractions, no sums such as ``1h30m``: the proxy has neither.
    """
    stripped = text.strip(" \t")
    if stripped == "0":
        return timedelta()
    unit = stripped.lstrip("0123456789")
    digits = stripped[: len(stripped) - len(unit)]
    if not digits or unit not in _UNITS:
        raise ValueError(_EXPECTED)
    try:
        return int(digits) * _UNITS[unit]
    except (OverflowError, ValueError) as error:
        raise ValueError("expected less than a million years") from error


def parse_positive(text: str) -> timedelta:
    """The duration; ValueError if it is none, or is 0."""
    duration = parse(text)
    if not duration:
        raise ValueError("expected more than 0")
    return duration


def render(duration: timedelta) -> str:
    """The shortest text that `parse` reads back; whole milliseconds only."""
    if not duration:
        return "0"
    for unit, length in reversed(_UNITS.items()):
        if not duration % length:
            return f"{duration // length}{unit}"
    raise ValueError(f"{duration} is not a whole number of milliseconds")
