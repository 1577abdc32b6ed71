"""How texts that people type are read, in annotations and in flags.

All take a text and raise ValueError with what was expected; whoever calls decides
whether that is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_CEILING, Decimal

from proxyinit.config import MAX_ID, parse_ports, parse_subnet

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))"
    r"(?P<unit>[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,3})?",
    re.ASCII,
)
_POWERS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DURATION_UNITS_NS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)


def parse_integer(value: str, bits: int) -> int:
    """A decimal integer of so many bits, as Go's strconv.ParseInt takes it."""
    number = int(value) if _INTEGER.fullmatch(value) else None
    if number is None or not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError("expected a whole number")
    return number


def parse_ratio(value: str) -> float:
    """A number between 0 and 1, neither of them included."""
    number = float(value) if _FLOAT.fullmatch(value) else 0.0
    if not 0 < number < 1:
        raise ValueError("expected a number between 0 and 1, such as 0.5")
    return number


def parse_duration_ns(value: str) -> int:
    """Nanoseconds of a duration as Go writes it, such as 30s or 1h0m0s."""
    sign, body = (-1, value[1:]) if value[:1] == "-" else (1, value.removeprefix("+"))
    if body == "0":
        return 0
    parts = _DURATION_PART.findall(body)
    if not parts or "".join(number + unit for number, unit in parts) != body:
        raise ValueError("expected a duration, such as 30s or 1h30m")
    total = sum(Decimal(number) * _DURATION_UNITS_NS[unit] for number, unit in parts)
    if total >= 1 << 63:
        raise ValueError("expected a duration below 292 years")
    return sign * int(total)


def parse_quantity(value: str) -> Decimal:
    """The number that a Kubernetes quantity means, such as 100m, 1.5 or 20Mi."""
    found = _QUANTITY.fullmatch(value)
    if found is None:
        raise ValueError("expected a quantity, such as 100m, 1.5 or 20Mi")
    number, unit = Decimal(found["number"]), found["unit"] or ""
    if unit.endswith("i"):
        meant = number * Decimal(1024) ** ("KMGTPE".index(unit[0]) + 1)
    else:
        in_figures = unit[:1] in "eE" and unit[1:]
        power = int(unit[1:]) if in_figures else _POWERS.get(unit, 0)
        meant = number * Decimal(10) ** power
    if abs(meant) >= 1 << 63:  # apimachinery's limit
        raise ValueError("expected a quantity below 8Ei")
    return meant


def whole_cores(cpu: str) -> int:
    """The cores that a CPU quantity asks for, rounded up."""
    return int(parse_quantity(cpu).to_integral_value(rounding=ROUND_CEILING))


def port(value: str) -> int:
    """The number of a port."""
    number = parse_integer(value, 32)
    if not 0 < number < 65536:
        raise ValueError("expected a port from 1 to 65535")
    return number


def uid(value: str) -> int:
    """A user that the kernel knows."""
    return _at_most(MAX_ID, whole(value))


def gid(value: str) -> int:
    """A group; any number below 0 means none."""
    return _at_most(MAX_ID, parse_integer(value, 64))


def _at_most(limit: int, number: int) -> int:
    if number > limit:
        raise ValueError(f"expected a number up to {limit}")
    return number


def whole(value: str) -> int:
    """A number of 0 or above, without a sign."""
    number = parse_integer(value, 64)
    if number < 0 or value.startswith("+"):
        raise ValueError("expected a whole number that is not negative")
    return number


def one_of(*words: str) -> Callable[[str], str]:
    """Read one of these words."""

    def parse(value: str) -> str:
        if value not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return value

    return parse


def enabled(value: str) -> bool:
    """``enabled`` or ``disabled``."""
    return one_of("enabled", "disabled")(value) == "enabled"


def quantity(value: str) -> str:
    """A Kubernetes quantity, as it was typed."""
    parse_quantity(value)
    return value


def span_ns(value: str) -> int:
    """Nanoseconds of a duration that is not negative."""
    found = parse_duration_ns(value)
    if found < 0:
        raise ValueError("expected a duration that is not negative")
    return found


def milliseconds(value: str) -> str:
    """A duration as the proxy takes it, in ms."""
    return f"{span_ns(value) // 10**6}ms"


def seconds(value: str) -> str:
    """A duration as the proxy takes it, in s."""
    return f"{span_ns(value) // 10**9}s"


def port_list(value: str) -> str:
    """Nothing, or a list of ports that proxy-init will take; as it was typed."""
    return _listed(parse_ports, value)


def subnet_list(value: str) -> str:
    """Nothing, or a list of subnets that proxy-init will take; as it was typed."""
    return _listed(parse_subnet, value)


def _listed(parse: Callable[[str], object], value: str) -> str:
    for item in (each.strip(" ") for each in value.split(",")) if value else ():
        try:
            parse(item)
        except ValueError as error:
            raise ValueError(f"{error}, got {item!r}") from None
    return value
