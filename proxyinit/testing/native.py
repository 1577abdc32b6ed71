"""Native tables in memory, and the part of nft's language that changes them.

For `testing.FakeKernel`. Like `table` it reads scripts by itself and shares no code
with the rest of the package. Rules are kept as they were fed; a listing shows them
as ``nft -nnn`` does: counters with their counts, names as numbers.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field

_HOOKED = re.compile(r"type (\w+) hook (\w+) priority (-?\w+);(?: policy (\w+);)?")
_JUMP = re.compile(r"\b(?:jump|goto) (\w+)")
_NUMBERS = (
    *(("meta l4proto tcp", "meta l4proto 6"), ("meta l4proto udp", "meta l4proto 17")),
    *(
        ("meta nfproto ipv4", "meta nfproto 2"),
        ("meta nfproto ipv6", "meta nfproto 10"),
    ),
    *(("priority dstnat;", "priority -100;"), ("ip protocol tcp", "ip protocol 6")),
)


class NativeRefused(Exception):
    """What nft does not take: its standard error; the exit code is 1."""


@dataclass
class FakeBlock:
    """What stands between the braces of a chain, or of anything else in a table.

    `bare` is a line of the table's own, such as ``flags dormant``.
    """

    declaration: str = ""
    rules: list[str] = field(default_factory=list)
    bare: bool = False


@dataclass
class FakeNative:
    """Every native table, by family and name: ``inet proxy_init``."""

    tables: dict[str, dict[str, FakeBlock]] = field(default_factory=dict)

    def feed(self, script: str) -> None:
        """Take a whole script, or raise `NativeRefused` and change nothing."""
        changed = copy.deepcopy(self)
        lines = enumerate(script.splitlines(), start=1)
        for number, line in lines:
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if words[0] == "table" and words[-1] == "{":
                changed._fill(" ".join(words[1:3]), lines)  # noqa: SLF001
            elif words[1:2] == ["table"] and len(words) == 4:
                changed._command(number, line, *words)  # noqa: SLF001
            else:
                raise _syntax(number, line, words[0])
        changed._check()  # noqa: SLF001
        self.tables = changed.tables

    def listing(self, table: str) -> str:
        """``nft -nnn list table``; raises `NativeRefused` when it is not there."""
        if table not in self.tables:
            carets = "^" * len(table.split()[1])
            said = f"Error: No such file or directory\nlist table {table}\n{carets}"
            raise NativeRefused(said)
        blocks = self.tables[table].items()
        parts = [_block(name, block) for name, block in blocks]
        return f"table {table} {{\n" + "\n".join(parts) + "}\n"

    def dump(self) -> str:
        """``nft -nnn list ruleset``."""
        return "".join(map(self.listing, self.tables))

    def _command(self, number: int, line: str, *words: str) -> None:
        verb, table = words[0], f"{words[2]} {words[3]}"
        if verb not in ("add", "delete", "flush"):
            raise _syntax(number, line, verb)
        if verb == "add":
            self.tables.setdefault(table, {})
        elif table not in self.tables:
            raise _refused(number, line, "No such file or directory")
        elif verb == "delete":
            del self.tables[table]
        else:
            for name, block in self.tables[table].items():
                if name.startswith("chain "):
                    block.rules.clear()

    def _fill(self, table: str, lines: enumerate[str]) -> None:
        """Add what a ``table ... {`` holds, up to its closing brace."""
        blocks = self.tables.setdefault(table, {})
        block: FakeBlock | None = None
        for number, line in lines:
            words = line.split()
            if words == ["}"] and block is None:
                return
            if words == ["}"]:
                block = None
            elif words[-1:] == ["{"] and block is None:
                block = blocks.setdefault(" ".join(words[:-1]), FakeBlock())
            elif words and block is None:
                blocks[line.strip()] = FakeBlock(bare=True)
            elif words and block is not None:
                _add(block, number, line.strip())
        raise _syntax(0, "", "end of file")

    def _check(self) -> None:
        for blocks in self.tables.values():
            for block in blocks.values():
                for rule in block.rules:
                    jump = _JUMP.search(rule.partition(" comment ")[0])
                    if jump and f"chain {jump[1]}" not in blocks:
                        raise _refused(1, rule, "No such file or directory")


def _add(block: FakeBlock, number: int, line: str) -> None:
    if not line.startswith("type ") or " hook " not in line:
        block.rules.append(line)
        return
    new, old = _HOOKED.match(line), _HOOKED.match(block.declaration)
    if new is None:
        raise _syntax(number, line, line)
    if old and new.groups()[:3] != old.groups()[:3]:
        raise _refused(number, line, "Operation not supported")
    if not old and block.rules:
        reason = "Operation not supported" if new[4] else "File exists"
        raise _refused(number, line, reason)
    block.declaration = line


def _block(name: str, block: FakeBlock) -> str:
    if block.bare:
        return f"\t{name}\n"
    return "\n".join([f"\t{name} {{", *map(_listed, _inside(block)), "\t}", ""])


def _inside(block: FakeBlock) -> list[str]:
    return [*([block.declaration] if block.declaration else []), *block.rules]


def _listed(line: str) -> str:
    shown, comment, text = line.partition(" comment ")
    for name, number in _NUMBERS:
        shown = shown.replace(name, number)
    shown = re.sub(r"\bcounter\b(?! packets)", "counter packets 0 bytes 0", shown)
    return f"\t\t{shown}{comment}{text}"


def _refused(number: int, line: str, reason: str) -> NativeRefused:
    said = f"/dev/stdin:{number}:1-9: Error: Could not process rule: {reason}"
    return NativeRefused(f"{said}\n{line}\n^^^^^^^^^\n")


def _syntax(number: int, line: str, word: str) -> NativeRefused:
    said = f"/dev/stdin:{number}:1-1: Error: syntax error, unexpected {word}"
    return NativeRefused(f"{said}\n{line}\n^\n")
