"""Matches that a rule keeps word for word: decided where a packet's facts decide.

They are those that CNI plugins, Istio, Docker and kube-proxy put into nat tables.
What depends on the kernel's memory (counters, sets, time) can't be known from a
packet and is said to be undecided; so is every match that is not listed here. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from proxyinit.explain_match import (
    PROTOCOLS,
    WITH_PORTS,
    View,
    any_of,
    either,
    every,
    found,
    in_ranges,
    is_own,
    owner,
    ports,
    protocol_number,
    undecided,
)
from proxyinit.explain_nft import WORDS, nft_words
from proxyinit.packet import bits, number, version_of
from proxyinit.rules import IPV6, Extension, PortRange
from proxyinit.trace import HOLDS, Finding, Question

_ALL_BITS = 0xFFFFFFFF
_LOOPBACK_BROADCAST = 0x7FFFFFFF


def extension(match: Extension, view: View) -> Finding:
    """Whether a match that is kept word for word holds."""
    if match.name == WORDS:
        return nft_words(match, view)
    decide = _BY_NAME.get(match.name)
    if decide is None or "--suppl-groups" in match.args:
        return _unknowable(match, view)
    try:
        parts = [decide(option, view) for option in _options(match)]
    except (ValueError, IndexError):
        return _unknowable(match, view)
    return every(*parts)


def _unknowable(match: Extension, view: View) -> Finding:
    """A match that no packet decides; what is not remembered is asked each time."""
    negated = match.args[:1] == ("!",)
    words = match.args[negated:]
    shown = " ".join(words)[:80]
    name = match.name or "".join(words[:1])
    why = _WHY.get(name, f"the match '{name}' can't be judged: {shown}")
    fleeting = name in _FLEETING
    if fleeting:
        return Finding(None, why)
    return undecided(view, (name, *words), why, negated=negated)


_WHY = {
    "statistic": "it matches at random, or every so many packets",
    "limit": "it depends on how many packets came shortly before",
    "hashlimit": "it depends on how many packets came shortly before",
    "recent": "it depends on which addresses were seen before",
    "connlimit": "it depends on how many connections there are",
    "quota": "it depends on how many bytes came before",
    "time": "it depends on the time of the day",
    "cpu": "it depends on which processor works on the packet",
    "bpf": "it is decided by a program in the kernel",
    "cgroup": "the control group of the packet's socket is not known",
}
_FLEETING = frozenset(("statistic", "limit", "hashlimit", "recent", "quota"))


class _Option:
    """One option of a match: ``[!] --option value ...``."""

    __slots__ = ("name", "negated", "question", "values")

    def __init__(self, module: str, words: Sequence[str]) -> None:
        self.negated = words[0] == "!"
        self.name, *self.values = words[self.negated :]
        self.question: Question = (module, self.name, *self.values)

    @property
    def value(self) -> str:
        """The one value there has to be."""
        return self.values[0]


def _options(match: Extension) -> Iterator[_Option]:
    """The options of a match; `ValueError` for words that are none."""
    words: list[str] = []
    for word in match.args:
        starts = word == "!" or word.startswith("-")
        if starts and words and words != ["!"]:
            yield _Option(match.name, words)
            words = []
        elif not starts and not words:
            raise ValueError(word)
        words.append(word)
    if words == ["!"]:
        raise ValueError(words)
    if words:
        yield _Option(match.name, words)


def _other(option: _Option, view: View) -> Finding:
    """An option that is not in the list."""
    shown = " ".join((option.name, *option.values))[:80]
    why = f"'{option.question[0]} {shown}' can't be judged"
    return undecided(view, option.question, why, negated=option.negated)


# === ports and protocols ===


def _range(text: str) -> PortRange:
    low, colon, high = text.partition(":")
    first = int(low or 0)
    return PortRange(first, (int(high or 65535)) if colon else first)


def _transport(name: str) -> Callable[[_Option, View], Finding]:
    """The options of ``-m tcp`` and ``-m udp``, for packets of that protocol."""

    def decide(option: _Option, view: View) -> Finding:
        packet = view.packet
        if protocol_number(packet.protocol) != PROTOCOLS[name]:
            return Finding(holds=False, why=f"the protocol is {packet.protocol}")
        if option.name == "--tcp-flags":
            return _flags(option)
        if option.name not in ("--sport", "--dport"):
            return _other(option, view)
        ranges = (_range(option.value),)
        if option.name == "--sport":
            finding = in_ranges(packet.source_port, ranges, "source")
        else:
            finding = in_ranges(packet.destination_port, ranges, "destination")
        return ports(view, finding, (option.name, ranges), negated=option.negated)

    return decide


_FLAGS = frozenset(("FIN", "SYN", "RST", "PSH", "ACK", "URG"))


def _flags(option: _Option) -> Finding:
    """A connection starts with SYN alone."""
    mask, wanted = (_flag_set(text) for text in option.values)
    holds = mask & {"SYN"} == wanted
    return found(holds, option.negated, "a first packet has the flag SYN alone")


def _flag_set(text: str) -> frozenset[str]:
    return {"ALL": _FLAGS, "NONE": frozenset[str]()}.get(
        text, frozenset(text.split(","))
    )


def _multiport(option: _Option, view: View) -> Finding:
    packet = view.packet
    if protocol_number(packet.protocol) not in WITH_PORTS:
        return Finding(holds=False, why=f"the protocol is {packet.protocol}")
    ranges = tuple(map(_range, option.value.split(",")))
    source = in_ranges(packet.source_port, ranges, "source")
    destination = in_ranges(packet.destination_port, ranges, "destination")
    finding = {
        **dict.fromkeys(("--sports", "--source-ports"), source),
        **dict.fromkeys(("--dports", "--destination-ports"), destination),
    }.get(option.name)
    if option.name == "--ports":
        finding = either(destination, source)
    if finding is None:
        return _other(option, view)
    if finding.holds is False and option.name == "--ports":
        finding = Finding(holds=False, why=f"{destination.why}, {source.why}")
    return ports(view, finding, (option.name, ranges), negated=option.negated)


def _icmp(option: _Option, view: View) -> Finding:
    name = "ipv6-icmp" if option.question[0] == "icmp6" else "icmp"
    if protocol_number(view.packet.protocol) != PROTOCOLS[name]:
        return Finding(holds=False, why=f"the protocol is {view.packet.protocol}")
    return _other(option, view)


# === addresses and interfaces ===


def _builtin(option: _Option, view: View) -> Finding:
    """Options of iptables itself that the model has no value for."""
    if option.name == "-f":
        # conntrack puts fragments together before nat chains see them.
        return found(
            holds=False, negated=option.negated, fact="nat chains see no fragments"
        )
    if option.name in ("-s", "-d"):
        side = "source" if option.name == "-s" else "destination"
        return _masked(option, view, side)
    return _other(option, view)


def _masked(option: _Option, view: View, side: str) -> Finding:
    packet = view.packet
    address = packet.source if side == "source" else packet.destination
    network, slash, mask_text = option.value.partition("/")
    if version_of(network) != packet.version:
        return Finding(holds=False, why=f"it is IPv{packet.version}")
    width = bits(packet.version)
    mask = (1 << width) - 1
    if slash and mask_text.isdigit():
        mask ^= mask >> int(mask_text)
    elif slash:
        mask = number(mask_text)
    inside = not (number(address) ^ number(network)) & mask
    word = "in" if inside else "not in"
    return found(inside, option.negated, f"{side} {address} is {word} {option.value}")


def _iprange(option: _Option, view: View) -> Finding:
    packet = view.packet
    if option.name not in ("--src-range", "--dst-range"):
        return _other(option, view)
    address = packet.source if option.name == "--src-range" else packet.destination
    low, _, high = option.value.partition("-")
    if version_of(low) != packet.version:
        return Finding(holds=False, why=f"it is IPv{packet.version}")
    inside = number(low) <= number(address) <= number(high or low)
    word = "in" if inside else "not in"
    return found(inside, option.negated, f"{address} is {word} {option.value}")


def _addrtype(option: _Option, view: View) -> Finding:
    packet = view.packet
    if option.name not in ("--src-type", "--dst-type"):
        return _other(option, view)  # --limit-iface-in: of that interface alone
    address = packet.source if option.name == "--src-type" else packet.destination
    kinds = option.value.split(",")
    if packet.version == IPV6:
        holds = _is_one_of6(kinds, address, view)
    else:
        holds = any_of(_is_type4(kind, address, view) for kind in kinds)
    if holds is not None:
        word = "is" if holds else "is not"
        return found(holds, option.negated, f"{address} {word} {option.value}")
    question: Question = (option.name[2:], option.value, address)
    why = f"whether {address} is {option.value} is not known"
    if "LOCAL" in kinds:
        why += ": say --own"
    if kinds == ["LOCAL"]:
        question = ("own", address)
    return undecided(view, question, why, negated=option.negated)


def _is_type4(kind: str, address: str, view: View) -> bool | None:
    """What the kernel's table of local addresses says, as far as it is known."""
    value = number(address)
    if value in (0, _ALL_BITS, _LOOPBACK_BROADCAST):
        return kind == "BROADCAST"
    if value >> 28 == 0xE:
        return kind == "MULTICAST"
    own = is_own(address, view)
    if kind == "LOCAL" or own:
        return own if kind == "LOCAL" else False
    if kind not in ("UNICAST", "BROADCAST"):
        return False if kind == "MULTICAST" else None
    if own is False and view.packet.outbound and view.packet.protocol == "tcp":
        return kind == "UNICAST"  # no connection is opened to a broadcast address
    return None


def _is_one_of6(kinds: Sequence[str], address: str, view: View) -> bool | None:
    """IPv6 asks for all of what an address shows, then for one of what routes say."""
    value = number(address)
    shown = {
        "MULTICAST": value >> 120 == 0xFF,
        "UNSPEC": value == 0,
        "UNICAST": value != 0 and value >> 120 != 0xFF and value >> 32 != 0xFFFF,
    }
    if not all(shown[kind] for kind in kinds if kind in shown):
        return False
    routes = [kind for kind in kinds if kind not in shown]
    own = is_own(address, view)
    return any_of(own if k == "LOCAL" else None for k in routes) if routes else True


# === connections, marks, owners ===


def _conntrack(option: _Option, view: View) -> Finding:
    packet = view.packet
    name, value = option.name, option.values[0]
    fact = _conntrack_fact(name, value, view)
    if fact:
        holds, why = fact
        return found(holds, option.negated, why)
    side = _CONNTRACK_ADDRESSES.get(name)
    if side:
        return _masked(option, view, side)
    side = _CONNTRACK_PORTS.get(name)
    if side:
        port = packet.source_port if side == "source" else packet.destination_port
        ranges = (_range(value),)
        finding = in_ranges(port, ranges, side)
        return ports(view, finding, (name, ranges), negated=option.negated)
    return _other(option, view)


def _conntrack_fact(name: str, value: str, view: View) -> tuple[bool, str] | None:
    """What is the same for the first packet of every connection."""
    if name in ("--ctstate", "--state"):
        return "NEW" in value.split(","), "it is the first of its connection: NEW"
    if name == "--ctproto":
        wanted = protocol_number(value)
        mine = protocol_number(view.packet.protocol)
        return wanted in (0, mine), f"the protocol is {view.packet.protocol}"
    if name == "--ctdir":
        return value == "ORIGINAL", "it goes the way its connection was opened"
    if name == "--ctstatus" and "EXPECTED" not in value:
        return False, "its connection has seen nothing yet"
    return None


# Before any translation the answers come from where the packet goes to.
_CONNTRACK_ADDRESSES = {
    **dict.fromkeys(("--ctorigsrc", "--ctrepldst"), "source"),
    **dict.fromkeys(("--ctorigdst", "--ctreplsrc"), "destination"),
}
_CONNTRACK_PORTS = {
    **dict.fromkeys(("--ctorigsrcport", "--ctrepldstport"), "source"),
    **dict.fromkeys(("--ctorigdstport", "--ctreplsrcport"), "destination"),
}


def read_mark(text: str) -> tuple[int, int]:
    """Value and mask of ``0x1/0xff``; the whole mark when there is no mask."""
    value, slash, mask = text.partition("/")
    return int(value, 0) & _ALL_BITS, int(mask, 0) & _ALL_BITS if slash else _ALL_BITS


def _mark(option: _Option, view: View) -> Finding:
    if option.name != "--mark":
        return _other(option, view)
    whose = option.question[0]
    mark = view.connmark if whose == "connmark" else view.mark
    value, mask = read_mark(option.value)
    holds = mark.equals(value, mask)
    if holds is None:
        why = "the packet's mark is not known (mangle or raw may set it): say --mark"
        if whose == "connmark":
            why = "the mark of its connection is not known (mangle or raw may set it)"
        question = (whose, hex(mark.value), hex(mark.known), option.value)
        return undecided(view, question, why, negated=option.negated)
    return found(holds, option.negated, f"the mark is {mark.value:#x}")


def _owner(option: _Option, view: View) -> Finding:
    if option.name == "--socket-exists":
        outbound = view.packet.outbound
        fact = "it was sent by a socket" if outbound else "it belongs to no socket"
        return found(outbound, option.negated, fact)
    kind = {"--uid-owner": "uid", "--gid-owner": "gid"}.get(option.name)
    if kind is None:
        return _other(option, view)
    low, dash, high = option.value.partition("-")
    last = int(high) if dash else int(low)
    return owner(view, kind, int(low), last, negated=option.negated)


def _set(option: _Option, view: View) -> Finding:
    if option.name != "--match-set":
        return _other(option, view)
    why = f"what the set {option.value} holds is not known"
    return undecided(view, option.question, why, negated=option.negated)


def _recent(option: _Option, view: View) -> Finding:  # noqa: ARG001  (as its likes)
    if option.name == "--set":  # remembers the address, and matches
        fact = "it always matches"
        return found(holds=True, negated=option.negated, fact=fact)
    if option.name in ("--name", "--mask", "--rsource", "--rdest"):
        return HOLDS
    return Finding(None, _WHY["recent"])


def _always(option: _Option, view: View) -> Finding:  # noqa: ARG001  (as its likes)
    return HOLDS


_BY_NAME: dict[str, Callable[[_Option, View], Finding]] = {
    "": _builtin,
    "tcp": _transport("tcp"),
    "udp": _transport("udp"),
    "multiport": _multiport,
    "icmp": _icmp,
    "icmp6": _icmp,
    "iprange": _iprange,
    "addrtype": _addrtype,
    "conntrack": _conntrack,
    "state": _conntrack,
    "mark": _mark,
    "connmark": _mark,
    "owner": _owner,
    "set": _set,
    "recent": _recent,
    "comment": _always,
}
