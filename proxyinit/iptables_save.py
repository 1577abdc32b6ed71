"""The iptables-save language: rules as text, and text as rules.

`render_rule` writes what iptables-save itself prints, so a planned rule, its
line in a transaction and its line in a dump are the same characters. `parse`
takes what iptables 1.6-1.8, legacy or nft, prints; a match or target that is not
in the model is kept word for word, so nothing is lost on the way back.
"""

from __future__ import annotations

from proxyinit.record import Record
from proxyinit.rules import (
    Chain,
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
    Ruleset,
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


class DumpError(ValueError):
    """Text that no iptables-save prints; the message shows the line."""


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


# === dumps ===


def parse(dump: str, version: Version, table: str = "nat") -> Ruleset:
    """One table of an iptables-save dump; empty when the dump does not have it.

    Counters are dropped. Raises `DumpError` with the line at fault.
    """
    policies: dict[str, str | None] = {}
    rules: dict[str, list[Rule]] = {}
    here = False
    for line in _logical_lines(dump):
        if line.startswith("*"):
            here = line[1:].strip() == table
        elif not here or line.startswith("#") or not line.strip():
            continue
        elif line.startswith(":"):
            name, policy = _parse_chain(line)
            policies[name] = policy
        elif line.strip() == "COMMIT":
            here = False
        else:
            chain, rule = _parse_append(line)
            rules.setdefault(chain, []).append(rule)
    if here:
        raise DumpError(f"the dump ends within table {table}, before COMMIT")
    names = dict.fromkeys((*policies, *rules))
    return Ruleset(
        version,
        tuple(
            Chain(name, tuple(rules.get(name, ())), policies.get(name))
            for name in names
        ),
    )


def _logical_lines(dump: str) -> Iterable[str]:
    """Lines, with those joined that a newline inside a quoted comment cut apart."""
    pending = ""
    for line in dump.split("\n"):
        whole = f"{pending}\n{line}" if pending else line
        quotes = whole.replace("\\\\", "").replace('\\"', "").count('"')
        if whole.startswith("-A") and quotes % 2:
            pending = whole
            continue
        pending = ""
        yield whole
    if pending:
        raise DumpError(f"a quote is not closed in {pending[:200]!r}")


def _parse_chain(line: str) -> tuple[str, str | None]:
    words = line[1:].split()
    if len(words) < 2:
        raise DumpError(f"expected ':CHAIN POLICY [packets:bytes]', found {line!r}")
    return words[0], None if words[1] == "-" else words[1]


def _parse_append(line: str) -> tuple[str, Rule]:
    if line.startswith("-A "):
        chain, _, text = line[3:].partition(" ")
        if text and text in _RENDERED:
            return chain, _RENDERED[text]
    words = split_words(line)
    if words and words[0].startswith("["):  # counters, of iptables-save -c
        words = words[1:]
    if len(words) < 2 or words[0] != "-A":
        raise DumpError(f"expected a rule, '-A CHAIN ...', found {line!r}")
    try:
        return words[1], parse_rule(words[2:])
    except DumpError as error:
        raise DumpError(f"{error} in {line!r}") from error


def render(table: Ruleset) -> str:
    """The table as iptables-save prints it, without counters; `parse`'s inverse."""
    lines = ["*nat"]
    lines += [f":{chain.name} {chain.policy or '-'} [0:0]" for chain in table.chains]
    for chain in table.chains:
        for rule in chain.rules:
            lines.append(f"-A {chain.name} {render_rule(rule)}".rstrip(" "))
    return "\n".join([*lines, "COMMIT", ""])
