"""What nft lists, 0.9 to 1.1: tables read into values.

Sets, objects and flags are kept word for word; rules are read by `nft_rule`. Pure.
"""

from __future__ import annotations

from proxyinit.iptables_rule import DumpError
from proxyinit.nft_match import is_number
from proxyinit.nft_rule import parse_rule, split_words
from proxyinit.record import Record
from proxyinit.rules import INET, IPV4, IPV6, OUR_TABLE, Chain, Ruleset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyinit.rules import Rule, Version


class Table(Record):
    """One table of a listing: its family's word, its name, and what it holds."""

    family: str
    name: str
    ruleset: Ruleset


def parse(text: str, table: str = OUR_TABLE) -> Ruleset:
    """The table of family inet of that name; empty when the listing lacks it.

    Counters are dropped. Raises `DumpError` with the line at fault.
    """
    for found in parse_tables(text):
        if (found.family, found.name) == ("inet", table):
            return found.ruleset
    return Ruleset(INET)


def parse_tables(text: str) -> list[Table]:
    """Every table of ``nft list ruleset``, or of a listing of less."""
    tables = []
    lines = _lines(text)
    for line in lines:
        words = split_words(line)
        if not words or line.startswith("#"):
            continue
        if len(words) < 4 or words[0] != "table" or words[3] != "{":
            raise DumpError(f"expected 'table FAMILY NAME {{', found {line!r}")
        _, family, name, _ = words[:4]
        tables.append(Table(family, name, _table(lines, family)))
    return tables


_VERSIONS: dict[str, Version] = {"ip": IPV4, "ip6": IPV6}


def _table(lines: Iterator[str], family: str) -> Ruleset:
    chains: list[Chain] = []
    others: list[str] = []
    for line in lines:
        words = split_words(line)
        if words == ["}"]:
            version = _VERSIONS.get(family, INET)
            return Ruleset(version, tuple(chains), tuple(others))
        if words[:1] == ["chain"] and words[2:3] == ["{"]:
            chains.append(_chain(words[1], lines))
        elif words:
            others.append("\n".join(_whole(line, lines)).strip())
    raise DumpError("the listing ends within a table, before its closing brace")


def _chain(name: str, lines: Iterator[str]) -> Chain:
    rules: list[Rule] = []
    hook, policy = "", None
    for line in lines:
        whole = _on_one_line(_whole(line, lines))
        words = split_words(whole)
        if words == ["}"]:
            return Chain(name, tuple(rules), policy, hook)
        if words[:1] == ["type"] and "hook" in words:
            hook, policy = _declaration(whole)
        elif words[:1] == ["comment"]:
            continue  # the chain's own
        elif words:
            rules.append(parse_rule(words))
    raise DumpError(f"the listing ends within chain {name}, before its closing brace")


# === lines ===


def _lines(text: str) -> Iterator[str]:
    """Lines, with those joined that a line break inside quotes cut apart."""
    pending = ""
    for line in text.split("\n"):
        whole = f"{pending}\n{line}" if pending else line
        if whole.count('"') % 2:
            pending = whole
            continue
        pending = ""
        yield whole
    if pending:
        raise DumpError(f"a quote is not closed in {pending[:200]!r}")


def _whole(line: str, lines: Iterator[str]) -> list[str]:
    """The line, with those that follow until its braces are closed."""
    depth = _depth(line)
    parts = [line]
    while depth > 0:
        following = next(lines, None)
        if following is None:
            raise DumpError(f"a brace is not closed in {line[:200]!r}")
        parts.append(following)
        depth += _depth(following)
    return parts


def _on_one_line(parts: list[str]) -> str:
    """A rule's lines as one: those of a set just go on, a chain's within it end."""
    whole = parts[0]
    for part in parts[1:]:
        whole += (" " if whole.rstrip().endswith(("{", ",")) else " ; ") + part
    return whole


def _depth(line: str) -> int:
    """How many braces more are opened than closed, outside quotes."""
    if "{" not in line and "}" not in line:
        return 0
    outside = "".join(line.split('"')[::2]).partition("#")[0]
    return max(outside.count("{") - outside.count("}"), -1)


# === base chains ===


_PRIORITIES = {
    "raw": -300,
    "mangle": -150,
    "dstnat": -100,
    "filter": 0,
    "security": 50,
    "srcnat": 100,
}


def _declaration(line: str) -> tuple[str, str]:
    """Hook and policy; a priority's name becomes its number."""
    hook, policy = "", "ACCEPT"
    for statement in line.split(";"):
        words = split_words(statement)
        if words[:1] == ["type"]:
            hook = " ".join(_numbered(words))
        elif words[:1] == ["policy"] and len(words) == 2:
            policy = words[1].upper()
    return hook, policy


def _numbered(words: list[str]) -> list[str]:
    if "priority" not in words:
        return words
    at = words.index("priority") + 1
    base, *offset = words[at:] or [""]
    if base not in _PRIORITIES:
        return words
    value = _PRIORITIES[base]
    if len(offset) == 2 and offset[0] in ("+", "-") and is_number(offset[1]):
        value += int(offset[1]) * (1 if offset[0] == "+" else -1)
    return [*words[:at], str(value)]
