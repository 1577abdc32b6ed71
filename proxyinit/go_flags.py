"""Flags as Go's own `flag` package spells them, and upstream's manifests with it."""

from __future__ import annotations

import re

_SINGLE_DASH = re.compile(r"-[a-z][a-z-]+(=.*)?", re.DOTALL)


def two_dashes(word: str) -> str:
    """A word of a command line; a long flag has two dashes, however it was spelled."""
    return f"-{word}" if _SINGLE_DASH.fullmatch(word) else word
