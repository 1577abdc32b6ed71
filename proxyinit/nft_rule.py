"""One rule as nft lists it, 0.9 to 1.1: values from words.

The versions differ in words: ``meta l4proto tcp``, ``ip protocol tcp`` or neither,
``{ 80 }`` or 80, ranges where networks were given. Each has one form here. A part
that is not in the model is kept word for word, up to the rule's verdict, so nothing
is lost and nothing is guessed. Pure.
"""

from __future__ import annotations

from proxyinit.nft_match import is_number, read_match
from proxyinit.nft_script import WORDS
from proxyinit.rules import Comment, Extension, Rule, Verdict, redirect_to

TYPE_CHECKING = False
if TYPE_CHECKING:
    from proxyinit.rules import Match

# === words ===


def split_words(line: str) -> list[str]:
    """Words at blanks; a string in quotes is one word, and a set is one.

    A ``# handle`` at the end is none. An opening brace that is not closed is a word.
    """
    words: list[str] = []
    for at, part in enumerate(line.split('"')):
        if at % 2:
            words.append(f'"{part}"')
            continue
        bare = part.split()
        if "#" in bare:
            words += bare[: bare.index("#")]
            break
        words += bare
    return _join_sets(words) if "{" in words else words


def _join_sets(words: list[str]) -> list[str]:
    joined: list[str] = []
    opened: list[int] = []
    for word in words:
        if word == "{":
            opened.append(len(joined))
        joined.append(word)
        if word == "}" and opened:
            start = opened.pop()
            joined[start:] = [" ".join(joined[start:])]
    return joined


# === rules ===


def parse_rule(words: list[str]) -> Rule:
    """The rule that a line's words spell."""
    words, comment = _take_comment(words)
    matches: list[Match] = []
    at = 0
    while at < len(words):
        size = _skip_counter(words, at)
        if size:
            at += size
            continue
        verdict = _verdict(words[at:])
        if verdict:
            return Rule((*matches, *comment), verdict)
        found = read_match(words, at, matches)
        if found is None:
            return _with_unknown(words[at:], matches, comment)
        size, new = found
        matches += new
        at += size
    return Rule((*matches, *comment), None)


def _take_comment(words: list[str]) -> tuple[list[str], tuple[Comment, ...]]:
    if len(words) > 1 and words[-2] == "comment" and words[-1][:1] == '"':
        return words[:-2], (Comment(words[-1][1:-1]),)
    return words, ()


def _skip_counter(words: list[str], at: int) -> int:
    """How many words a counter takes here; 0 when none stands here."""
    if words[at] != "counter" or words[at + 1 : at + 2] == ["name"]:
        return 0
    full = words[at + 1 : at + 2] == ["packets"] and words[at + 3 : at + 4] == ["bytes"]
    return 5 if full else 1


def _with_unknown(
    words: list[str], matches: list[Match], comment: tuple[Comment, ...]
) -> Rule:
    """A rule whose next words are not in the model: kept, up to the verdict."""
    kept: list[str] = []
    at = 0
    while at < len(words):
        size = _skip_counter(words, at)
        if size:
            at += size
            continue
        verdict = None if words[at] == "vmap" else _verdict(words[at:])
        if verdict:
            break
        kept.append(words[at])
        at += 1
    else:
        verdict = None
    if "vmap" in kept:
        return Rule((*matches, *comment), Verdict(WORDS.upper(), tuple(kept)))
    unknown = (Extension(WORDS, tuple(kept)),) if kept else ()
    return Rule((*matches, *unknown, *comment), verdict)


# === verdicts ===


_SIMPLE = {
    "accept": "ACCEPT",
    "drop": "DROP",
    "return": "RETURN",
    "redirect": "REDIRECT",
    "masquerade": "MASQUERADE",
}
_NAT = ("redirect", "dnat", "snat", "masquerade")
_OTHER = ("queue", "reject", "tproxy", "synproxy", "jump", "goto")
_ADDRESS = frozenset("0123456789abcdef.:[]")
_NO_CHAINS = {*_SIMPLE.values(), "DNAT", "SNAT", "NFT"}
"""Names that a `Verdict` means something else by than a chain."""


def _verdict(words: list[str]) -> Verdict | None:
    """The verdict that the words up to the rule's end spell, if they are one."""
    first, rest = words[0], words[1:]
    if not rest and first in _SIMPLE:
        return Verdict(_SIMPLE[first])
    if first in ("jump", "goto") and len(rest) == 1:
        (target,) = rest
        if target not in _NO_CHAINS and target[0] != "{":
            return Verdict(target, goto=first == "goto")
    if first in _NAT:
        return _nat(first, rest)
    return Verdict(WORDS.upper(), tuple(words)) if first in _OTHER else None


def _nat(first: str, rest: list[str]) -> Verdict | None:
    if first in ("dnat", "snat") and "to" not in rest[:2]:
        return None  # words of a match: ct status dnat
    kind, target = rest[:-1], rest[-1]
    if first == "redirect" and kind == ["to"] and is_number(target[1:]):
        return redirect_to(int(target[1:]))
    plain = kind in (["to"], ["ip", "to"], ["ip6", "to"])
    if first == "dnat" and plain and _ADDRESS.issuperset(target):
        return Verdict("DNAT", ("--to-destination", target))
    return Verdict(first.upper(), (first, *rest))
