"""What words without quotes mean in YAML, by the rules of kubectl's reader.

sigs.k8s.io/yaml reads YAML 1.1: `on`, `yes` and `y` are booleans, 0777 is octal, 1e3
is a number, 22:22 and dates are text.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any

_WORDS: dict[str, Any] = (
    dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE"), True)
    | dict.fromkeys(("on", "On", "ON"), True)
    | dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE"), False)
    | dict.fromkeys(("off", "Off", "OFF"), False)
    | dict.fromkeys(("", "~", "null", "Null", "NULL"), None)
    | dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan)
    | dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf)
    | dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf)
)
DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
_INTEGER = re.compile(
    r"[-+]?(?:(?P<hex>0[xX][0-9a-fA-F]+)|(?P<bin>0[bB][01]+)"
    r"|0[oO]?(?P<oct>[0-7]+)|(?P<dec>0|[1-9][0-9]*))"
)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


MOST_DIGITS = 308
"""Of an integer; a larger one is more than any number can be, and text, as for Go."""


@lru_cache(maxsize=8192)
def plain(text: str) -> Any:
    """What a scalar without quotes means."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    digits = text if text[0] == "." else text.replace("_", "")
    if (found := _INTEGER.fullmatch(digits)) and len(digits) <= MOST_DIGITS:
        number = _integer(found)
        return -number if digits[0] == "-" else number
    if _FLOAT.fullmatch(digits) and math.isfinite(real := float(digits)):
        return int(real) if abs(real) < 2**53 and real == int(real) else real
    return text


def _integer(found: re.Match[str]) -> int:
    for group, base in (("hex", 16), ("bin", 2), ("oct", 8)):
        if found[group]:
            return int(found[group], base)
    return int(found["dec"])


def go_text(found: Any) -> str:
    """A number or a boolean as Go writes it."""
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, float) and math.isfinite(found):
        return repr(found)
    return str(found)
