"""One rule as iptables spells it: text from values, and values from text.

`render_rule` writes what iptables-save itself prints, so a planned rule, its
line in a transaction and its line in a dump are the same characters. A match or
target that is not in the model is kept word for word, so nothing is lost.
"""

from __future__ import annotations

from proxyinit.record import Record
from proxyinit.rules import (
    Comment,
    Destination,
    Extension,
    InInterface,
    OutInterface,
    OwnerGid,
    OwnerUid,
    PortRange,
    Protocol,
    Rule,
    Source,
    Subnet,
    TcpPort,
    TcpPorts,
    Verdict,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from proxyinit.rules import Match, Version

_BARE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_BLANK_OR_QUOTE = frozenset(" \t\n\r\v\f\"'\\")

_MAX_MESSAGE = 500


class DumpError(ValueError):
    """Text that no iptables-save or nft printed; of its lines the start is quoted."""

    def __init__(self, message: str) -> None:
        cut = len(message) > _MAX_MESSAGE
        super().__init__(f"{message[:_MAX_MESSAGE]}..." if cut else message)


# === words ===


class _Quoted(str):
    """A word that stood in quotes: never an option, whatever it spells."""

    __slots__ = ()


def quote(text: str) -> str:
    """Text in the quoting of iptables-save (libxtables, xtables_save_string)."""
    return text if text and _BARE.issuperset(text) else _in_quotes(text)


def _in_quotes(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("'", "\\'")
    return f'"{escaped}"'


def _word(text: str) -> str:
    """An option or its value: bare wherever the reader gets the same word back."""
    if isinstance(text, _Quoted) or not text or not _BLANK_OR_QUOTE.isdisjoint(text):
        return _in_quotes(text)
    return text


def split_words(line: str) -> list[str]:
    """The words of a line: blanks separate, quotes join, backslashes escape."""
    before, opening, rest = line.partition('"')
    if not opening:
        return _split_blanks(line)
    quoted, _, after = rest.partition('"')
    alone = before.endswith(" ") and after.startswith(" ") and '"' not in after
    if alone and "\\" not in quoted:  # one comment: nearly every line there is
        return [*_split_blanks(before), _Quoted(quoted), *_split_blanks(after)]
    return _split_slowly(line)


def _split_blanks(text: str) -> list[str]:
    """Words as iptables-restore takes them apart; other white space is no blank."""
    return [word for word in text.replace("\t", " ").split(" ") if word]


def _split_slowly(line: str) -> list[str]:
    words: list[str] = []
    word: list[str] = []
    started = quoted = in_quotes = escaped = False
    for char in line:
        if escaped:
            word.append(char)
            escaped = False
        elif in_quotes and char == "\\":
            escaped = True
        elif char == '"':
            in_quotes = not in_quotes
            started = quoted = True
        elif char in " \t" and not in_quotes:
            if started:
                words.append(_Quoted("".join(word)) if quoted else "".join(word))
            word, started, quoted = [], False, False
        else:
            word.append(char)
            started = True
    if in_quotes:
        raise DumpError(f"a quote is not closed in {line!r}")
    if started:
        words.append(_Quoted("".join(word)) if quoted else "".join(word))
    return words


# === matches: one table writes and reads them ===


def _read_number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)


def _read_range(text: str) -> PortRange:
    low, colon, high = text.partition(":")
    first = _read_number(low)
    return PortRange(first, _read_number(high) if colon else first)


def _read_ranges(text: str) -> tuple[PortRange, ...]:
    return tuple(map(_read_range, text.split(",")))


def _write_ranges(ranges: Iterable[PortRange]) -> str:
    return ",".join(map(str, ranges))


def _read_subnet(text: str) -> Subnet:
    address, slash, prefix = text.partition("/")
    version: Version = 6 if ":" in address else 4
    whole = 128 if version == 6 else 32
    return Subnet(version, address, _read_number(prefix) if slash else whole)


class _Syntax(Record):
    """How one kind of match is spelled: ``-m module [!] option value``."""

    kind: Callable[[Any, bool], Match]
    module: str
    option: str
    read: Callable[[str], Any] = str
    write: Callable[[Any], str] = str


_SYNTAX = (
    _Syntax(Protocol, "", "-p"),
    _Syntax(Source, "", "-s", _read_subnet),
    _Syntax(Destination, "", "-d", _read_subnet),
    _Syntax(InInterface, "", "-i", str, _word),
    _Syntax(OutInterface, "", "-o", str, _word),
    _Syntax(TcpPort, "tcp", "--dport", _read_range),
    _Syntax(TcpPorts, "multiport", "--dports", _read_ranges, _write_ranges),
    _Syntax(OwnerUid, "owner", "--uid-owner", _read_number),
    _Syntax(OwnerGid, "owner", "--gid-owner", _read_number),
)
_BY_KIND = {syntax.kind: syntax for syntax in _SYNTAX}
_BY_WORDS = {(syntax.module, syntax.option): syntax for syntax in _SYNTAX}


def _render_match(match: Match) -> str:
    if isinstance(match, Comment):
        return f"-m comment --comment {quote(match.text)}"
    if isinstance(match, Extension):
        words = [*(("-m", match.name) if match.name else ()), *match.args]
        return " ".join(map(_word, words))
    syntax = _BY_KIND[type(match)]
    value, negated = match.__dict__.values()
    module = f"-m {syntax.module} " if syntax.module else ""
    return f"{module}{'! ' * negated}{syntax.option} {syntax.write(value)}"


def _parse_match(module: str, args: list[str]) -> Match:
    """The match that `args` spell, or an `Extension` that carries them."""
    negated = args[:1] == ["!"]
    rest = args[negated:]
    if len(rest) == 2:
        option, value = rest
        if (module, option, negated) == ("comment", "--comment", False):
            return Comment(str(value))
        syntax = _BY_WORDS.get((module, option))
        if syntax:
            try:
                return syntax.kind(syntax.read(str(value)), negated)
            except ValueError:
                pass  # a form the model does not have: a mask, a name, a range
    return Extension(module, tuple(args))


# === rules ===


_RENDERED: dict[str, Rule] = {}
"""Every text rendered by this process, so that reading it back is a look-up."""


def render_rule(rule: Rule) -> str:
    """The rule in the form iptables-save prints, without the leading ``-A CHAIN``."""
    parts = list(map(_render_match, rule.matches))
    if rule.verdict:
        verdict = rule.verdict
        parts.append("-g" if verdict.goto else "-j")
        parts += map(_word, (verdict.target, *verdict.args))
    text = " ".join(parts)
    _RENDERED[text] = rule
    return text


def read_back(text: str) -> Rule | None:
    """The rule of a text that this process has rendered; None for others."""
    return _RENDERED.get(text)


def parse_rule(words: list[str]) -> Rule:
    """The rule that the words after ``-A CHAIN`` spell."""
    matches: list[Match] = []
    at = 0
    while at < len(words):
        start = at
        at += words[at] == "!"
        option = words[at] if at < len(words) else ""
        if option in ("-j", "-g"):
            target = words[at + 1 : at + 2]
            if not target:
                raise DumpError(f"{option} names no target")
            verdict = Verdict(target[0], tuple(words[at + 2 :]), option == "-g")
            return Rule(tuple(matches), verdict)
        if option == "-m":
            module, at = words[at + 1 : at + 2], at + 2
            if not module:
                raise DumpError("-m names no match")
            end = _end_of_match(words, at)
            matches.append(_parse_match(module[0], words[at:end]))
        else:
            end = at + (1 if option in ("-f", "") else 2)
            matches.append(_parse_match("", words[start:end]))
        at = end
    return Rule(tuple(matches), None)


def _end_of_match(words: list[str], at: int) -> int:
    """Where the arguments of a match end: at the next ``-m``, ``-j`` or ``-g``.

    The word after ``--comment`` is free text and may spell any of these.
    """
    while at < len(words):
        word = words[at]
        if word in ("-m", "-j", "-g") and not isinstance(word, _Quoted):
            break
        at += 2 if word == "--comment" else 1
    return min(at, len(words))
