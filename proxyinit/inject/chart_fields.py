"""Fields of values that a chart has: where they are in it, and how they are read.

Readers take what YAML made of a field and raise ValueError with what was expected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from ipaddress import ip_network
from typing import Any, TypeVar

_T = TypeVar("_T")
Read = Callable[[Any], Any]


def text(value: Any) -> str:
    """Text; a single port may stand there without quotes."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ValueError("expected text")


def number(value: Any) -> int:
    """A whole number; YAML readers before us may have made 1e+06 of it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("expected a whole number")  # noqa: TRY004  (one error for all)
    if value != int(value):
        raise ValueError("expected a whole number")
    return int(value)


def port(value: Any) -> int:
    """The number of a port."""
    found = number(value)
    if not 0 < found < 65536:
        raise ValueError("expected a port from 1 to 65535")
    return found


def ratio(value: Any) -> float:
    """A number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("expected a number")  # noqa: TRY004  (one error for all)
    return float(value)


def switch(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError("expected true or false")  # noqa: TRY004  (one error for all)
    return value


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("expected an object")  # noqa: TRY004  (one error for all)
    return value


def objects(value: Any) -> tuple[Mapping[str, Any], ...]:
    """A list of objects."""
    if not isinstance(value, list) or not all(isinstance(v, Mapping) for v in value):
        raise ValueError("expected a list of objects")
    return tuple(value)


def words(value: Any) -> tuple[str, ...]:
    """A list of texts."""
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise ValueError("expected a list of texts")
    return tuple(value)


def one_of(*known: str) -> Read:
    """Read one of these texts."""

    def parse(value: Any) -> str:
        if value not in known:
            raise ValueError(f"expected one of {', '.join(known)}")
        return str(value)

    return parse


def networks(value: Any) -> str:
    """A comma list of CIDRs, as it was typed."""
    said = text(value)
    for item in said.strip(",").split(",") if said else ():
        try:
            address, _, bits = item.partition("/")
            ip_network((address, int(bits)), strict=False)
        except ValueError:
            message = f"cannot parse destination get networks: {item!r} is no CIDR"
            raise ValueError(message) from None
    return said


def at(path: str, reader: Read, default: _T) -> _T:
    """A field at a path of its section, read by a function, with a default."""
    made: _T = field(default=default, metadata={"path": path, "read": reader})
    return made


def holding(
    path: str, make: Callable[[], Mapping[str, Any]] = dict
) -> Mapping[str, Any]:
    """A field that holds an object; what `make` makes by default."""
    made: Mapping[str, Any] = field(
        default_factory=make, metadata={"path": path, "read": _mapping}
    )
    return made


def read(
    kind: type, chart: Mapping[str, Any], name: str, problems: list[str]
) -> dict[str, Any]:
    """The fields of `kind` that a section gives a value; mistakes into `problems`.

    Without a name the section is the chart itself.
    """
    try:
        section = _mapping(_dig(chart, name) or {}) if name else chart
    except ValueError as error:
        problems.append(f"{name}: {error}")
        return {}
    found = {}
    for each in fields(kind):
        path = each.metadata.get("path")
        if path is None:
            continue
        try:
            value = _dig(section, *path.split("."))
            if value is not None:
                found[each.name] = each.metadata["read"](value)
        except (ValueError, OverflowError) as error:
            problems.append(f"{f'{name}.' if name else ''}{path}: {error}")
    return found


def _dig(section: Mapping[str, Any], *path: str) -> Any:
    value: Any = section
    for step in path:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise ValueError("expected an object on the way to it")  # noqa: TRY004  (one error for all)
        value = value.get(step)
    return value
