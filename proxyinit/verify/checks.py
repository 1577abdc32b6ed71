"""One question about a namespace and its answer, and what follows from all of them.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

OK, WARN, FAIL, UNKNOWN = "ok", "warn", "fail", "unknown"

INTERCEPTED, COULD_NOT_TELL, DIFFERS = 0, 1, 3
"""Exit codes of `verify`."""


@dataclass(frozen=True, slots=True)
class Check:
    """What was asked and what was found; `advice` is the next step unless all is well.

    `state` is one of OK, WARN (it works, but look), FAIL and UNKNOWN.
    """

    name: str
    state: str
    found: str
    advice: str = ""


def exit_code(checks: Iterable[Check]) -> int:
    """A failure is certain whatever else could not be told."""
    states = {check.state for check in checks}
    if FAIL in states:
        return DIFFERS
    return COULD_NOT_TELL if UNKNOWN in states else INTERCEPTED
