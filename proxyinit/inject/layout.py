"""Values as YAML text: block style as kubectl writes it, or JSON where flow is.

Strings go without quotes only where no reader of YAML 1.1 or 1.2 takes them for
anything but text.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from proxyinit.inject.syntax import Plain

_TEXT = re.compile(r"-{0,2}[A-Za-z_/][A-Za-z0-9_./@+-]*(?:[:=][A-Za-z0-9_./@+-]+)*")
_RESERVED = re.compile(r"y|n|yes|no|on|off|true|false|null|\.nan|\.inf", re.IGNORECASE)
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_LITERAL = re.compile(r"(?:[!-~\u00a1-\ud7ff][ -~\u00a0-\u2027\u202a-\ud7ff]*\n)+")
_BREAKS = re.compile("[\r\n\x85\u2028\u2029]")
_FIRST_LIST = re.compile(r"^([ -]*)[^\s#-][^\n]*:[ \t]*\r?\n( *)- ", re.MULTILINE)
_STEP = 2


@lru_cache(maxsize=4096)
def quoted(text: str) -> str:
    """A string on one line, in quotes if it needs them."""
    if _TEXT.fullmatch(text) and not _RESERVED.fullmatch(text):
        return text
    return json_string(text)


def json_string(text: str) -> str:
    """A string as JSON that is YAML as well."""
    said = json.dumps(text, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda odd: f"\\u{ord(odd[0]):04x}", said)


def scalar(value: Any) -> str:
    """A value without parts, on one line."""
    kind = value.__class__
    if kind is str:
        return quoted(value)
    if kind is Plain:
        return json_string(value) if _BREAKS.search(value) else str(value)
    if kind is dict:
        return "{}"
    if kind is list:
        return "[]"
    return json.dumps(value)


def dash_offset(text: str) -> int:
    """How far a text indents the dashes of lists below their keys: 0 or 2."""
    found = _FIRST_LIST.search(text)
    return 2 if found and len(found[2]) > len(found[1]) else 0


def block(value: Any) -> str:
    """An object's lines, each with its line break."""
    if not value or not isinstance(value, dict):
        return scalar(value) + "\n"
    lines = _Lines(0)
    for key, part in value.items():
        lines.entry("", key, part, 0)
    return str(lines)


def entry(key: str, value: Any, indent: int, offset: int) -> str:
    """A key and its value: lines, the first one with its indentation."""
    lines = _Lines(offset)
    lines.entry(" " * indent, key, value, indent)
    return str(lines)


def item(value: Any, indent: int, offset: int) -> str:
    """An item of a list: lines with dash and indentation."""
    lines = _Lines(offset)
    lines.item(value, indent)
    return str(lines)


_LARGE, _MOST_KNOWN = 5, 128
_known: dict[tuple[int, int, int], tuple[Any, str]] = {}
"""Large items laid out before, by identity, indentation and offset.

Pods that are injected alike share their containers, the very same objects. The object
is kept beside its text, so that no other can take its id.
"""


def _known_lines(value: Any, indent: int, offset: int) -> str:
    place = (id(value), indent, offset)
    if place not in _known:
        lines = _Lines(offset)
        lines.fields(value, indent)
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[place] = value, str(lines).removesuffix("\n")
    return _known[place][1]


class _Lines:
    """Lines in block style; dashes stand `offset` columns behind their keys."""

    def __init__(self, offset: int) -> None:
        self._lines: list[str] = []
        self._offset = offset

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"

    def entry(self, lead: str, key: str, value: Any, indent: int) -> None:
        """`lead` stands before the key: blanks, or blanks and a dash."""
        name = lead + quoted(key)
        kind = value.__class__
        if kind is str and "\n" not in value:
            self._lines.append(f"{name}: {quoted(value)}")
        elif kind is str and _LITERAL.fullmatch(value):
            pad = " " * (indent + _STEP)
            self._lines.append(f"{name}: |")
            self._lines.extend(pad + line for line in value[:-1].split("\n"))
        elif not value or (kind is not dict and kind is not list):
            self._lines.append(f"{name}: {scalar(value)}")
        elif kind is dict:
            self._lines.append(f"{name}:")
            pad = " " * (indent + _STEP)
            for inner, part in value.items():
                self.entry(pad, inner, part, indent + _STEP)
        else:
            self._lines.append(f"{name}:")
            for part in value:
                self.item(part, indent + self._offset)

    def item(self, value: Any, indent: int) -> None:
        """`indent` is the column of the dash."""
        lead = " " * indent + "- "
        kind = value.__class__
        if value and kind is dict and len(value) > _LARGE:
            self._lines.append(_known_lines(value, indent, self._offset))
        elif value and kind is dict:
            self.fields(value, indent)
        elif value and kind is list:
            first = len(self._lines)
            for part in value:
                self.item(part, indent + _STEP)
            self._lines[first] = lead + self._lines[first][indent + _STEP :]
        else:
            self._lines.append(lead + scalar(value))

    def fields(self, value: dict[str, Any], indent: int) -> None:
        """An object as an item: its first key behind the dash."""
        lead = " " * indent + "- "
        for key, part in value.items():
            self.entry(lead, key, part, indent + _STEP)
            lead = " " * (indent + _STEP)


def flow(value: Any, indent: int | None = None, column: int = 0) -> str:
    """A value as JSON: on one line, or over several that start at `column`."""
    said = json.dumps(value, ensure_ascii=False, indent=indent)
    said = _UNPRINTABLE.sub(lambda odd: f"\\u{ord(odd[0]):04x}", said)
    return said.replace("\n", "\n" + " " * column) if column else said
