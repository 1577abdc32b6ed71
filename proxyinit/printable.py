"""Text of others, made fit for a terminal. Pure."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text; what can't be shown is escaped as in Python."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
