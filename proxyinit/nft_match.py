"""One match as nft lists it: which words it takes, and the value they spell. Pure."""

from __future__ import annotations

from proxyinit.intervals import BITS, cut, merge_ports, merge_subnets, number
from proxyinit.rules import (
    IPV4,
    IPV6,
    Destinations,
    Family,
    InInterface,
    OutInterface,
    OwnerGid,
    OwnerUid,
    PortRange,
    Protocol,
    Sources,
    Subnet,
    TcpPorts,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from proxyinit.rules import Match, Version


def read_match(
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
    if words[operand] in _OPERATORS:
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
