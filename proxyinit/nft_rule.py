"""One rule as nft lists it, 0.9 to 1.1: values from words.

The versions differ in words: ``meta l4proto tcp``, ``ip protocol tcp`` or neither,
``{ 80 }`` or 80, ranges where networks were given. Each has one form here. A part
that is not in the model is kept word for word, up to the rule's verdict, so nothing
is lost and nothing is guessed. Pure.
"""

from __future__ import annotations

from proxyinit.intervals import BITS, cut, merge_ports, merge_subnets, number
from proxyinit.nft_script import WORDS
from proxyinit.rules import (
    IPV4,
    IPV6,
    Comment,
    Destinations,
    Extension,
    Family,
    InInterface,
    OutInterface,
    OwnerGid,
    OwnerUid,
    PortRange,
    Protocol,
    Rule,
    Sources,
    Subnet,
    TcpPorts,
    Verdict,
    redirect_to,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from proxyinit.rules import Match, Version

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
        found = _match(words, at, matches)
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


# === matches ===


def _match(
    words: list[str], at: int, before: list[Match]
) -> tuple[int, list[Match]] | None:
    """How many words a match of the model takes here, and what it says."""
    start = at + (words[at] == "meta")
    read = _READERS.get(words[start]) if start < len(words) else None
    operand = start + 1
    if read is None and start == at:
        read = _READERS.get(" ".join(words[at : at + 2]))
        operand = at + 2
    negated = words[operand : operand + 1] == ["!="]
    operand += negated
    if read is None or operand >= len(words):
        return None
    if operand + 1 < len(words) and words[operand + 1] in _OPERATORS:
        return None
    try:
        *implied, match = read(words[operand])
    except (ValueError, OSError):
        return None
    if negated:
        if isinstance(match, Family) and words[start] != "nfproto":
            return None  # no address of that version, and of no other version
        value, _ = match.__dict__.values()
        kind: Any = type(match)
        match = kind(value, negated=True)
    if words[at] == "th" and not set(implied) <= set(before):
        return None  # ports of whichever protocol
    new = [other for other in implied if other not in before]
    return operand + 1 - at, [*new, match]


_OPERATORS = ("map", "vmap", ".", "and", "or", "xor", "&", "|", "^", "<<", ">>")
_PROTOCOLS = {
    "1": "icmp",
    "6": "tcp",
    "17": "udp",
    "33": "dccp",
    "58": "ipv6-icmp",
    "132": "sctp",
    "136": "udplite",
}


def is_number(text: str) -> bool:
    """Whether the text is a plain decimal number of a size that fields have."""
    return text.isascii() and text.isdigit() and len(text) < 20


def _number(text: str) -> int:
    if not is_number(text):
        raise ValueError(text)
    return int(text)


def _protocol(text: str) -> list[Match]:
    name = _PROTOCOLS.get(text, text)
    if not (name.isascii() and name.replace("-", "").isalnum()):
        raise ValueError(text)
    return [Protocol(name)]


def _family(text: str) -> list[Match]:
    versions = {"ipv4": IPV4, "2": IPV4, "ipv6": IPV6, "10": IPV6}
    if text not in versions:
        raise ValueError(text)
    return [Family(versions[text])]


def _ports(text: str) -> list[Match]:
    ranges = []
    for element in _elements(text):
        low, dash, high = element.partition("-")
        ranges.append(PortRange(_number(low), _number(high if dash else low)))
    return [Protocol("tcp"), TcpPorts(merge_ports(ranges))]


def _addresses(
    version: Version, kind: type[Sources | Destinations]
) -> Callable[[str], list[Match]]:
    def read(text: str) -> list[Match]:
        found: list[Subnet] = []
        for element in _elements(text):
            low, dash, high = element.partition("-")
            if dash:
                found += _range(number(low, version), number(high, version), version)
            else:
                found.append(_subnet(element, version))
        subnets = merge_subnets(found)
        # A zero-length prefix is every address of the version.
        return [kind(subnets) if subnets[0].prefix else Family(version)]

    return read


def _range(low: int, high: int, version: Version) -> Iterator[Subnet]:
    if low > high:
        raise ValueError(low)
    return cut(low, high, version)


def _subnet(text: str, version: Version) -> Subnet:
    address, slash, prefix = text.partition("/")
    length = _number(prefix) if slash else BITS[version]
    first = number(address, version)
    if length > BITS[version] or first % (1 << BITS[version] - length):
        raise ValueError(text)
    return Subnet(version, address, length)


def _elements(text: str) -> list[str]:
    inside = text[1:-1] if text[:1] == "{" and text[-1:] == "}" else text
    return [element.strip() for element in inside.split(",")]


def _interface(
    kind: type[InInterface | OutInterface],
) -> Callable[[str], list[Match]]:
    def read(text: str) -> list[Match]:
        name = text.strip('"')
        if text != f'"{name}"' or not name or name[-1] == "+" or "\\" in name:
            raise ValueError(text)  # a plus of the name's own, an escaped star
        return [kind(f"{name[:-1]}+" if name.endswith("*") else name)]

    return read


_READERS: dict[str, Callable[[str], list[Match]]] = {
    "l4proto": _protocol,
    "ip protocol": lambda text: [Family(IPV4), *_protocol(text)],
    "nfproto": _family,
    "ip saddr": _addresses(IPV4, Sources),
    "ip daddr": _addresses(IPV4, Destinations),
    "ip6 saddr": _addresses(IPV6, Sources),
    "ip6 daddr": _addresses(IPV6, Destinations),
    "tcp dport": _ports,
    "th dport": _ports,
    "skuid": lambda text: [OwnerUid(_number(text))],
    "skgid": lambda text: [OwnerGid(_number(text))],
    "iifname": _interface(InInterface),
    "oifname": _interface(OutInterface),
}
"""Every match of the model by nft's words, without ``meta`` (0.8 left it out)."""
