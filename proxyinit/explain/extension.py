"""Matches that a rule keeps word for word: decided where a packet's facts decide.

They are those that CNI plugins, Istio, Docker and kube-proxy put into nat tables.
What depends on the kernel's memory (counters, sets, time) can't be known from a
packet and is said to be undecided; so is every match that is not listed here. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from proxyinit.explain.address import addrtype, iprange, masked
from proxyinit.explain.match import in_ranges, owner, ports
from proxyinit.explain.nft import WORDS, nft_words
from proxyinit.explain.option import Option, other
from proxyinit.explain.packet import read_mark
from proxyinit.explain.trace import HOLDS, Finding
from proxyinit.explain.view import (
    PROTOCOLS,
    WITH_PORTS,
    View,
    either,
    every,
    found,
    protocol_number,
    undecided,
)
from proxyinit.rules import Extension, PortRange


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
    options = sum(word.startswith("--") for word in match.args)
    # The negation of one option of several is not that of the match.
    negated = match.args[:1] == ("!",) and options == 1
    words = match.args[negated:]
    shown = " ".join(words)[:80]
    name = match.name or "".join(words[:1])
    why = _WHY.get(name, f"the match '{name}' can't be judged: {shown}")
    if name in _FLEETING:
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


def _options(match: Extension) -> Iterator[Option]:
    """The options of a match; `ValueError` for words that are none."""
    words: list[str] = []
    for word in match.args:
        starts = word == "!" or word.startswith("-")
        if starts and words and words != ["!"]:
            yield Option(match.name, words)
            words = []
        elif not starts and not words:
            raise ValueError(word)
        words.append(word)
    if words == ["!"]:
        raise ValueError(words)
    if words:
        yield Option(match.name, words)


# === of iptables itself ===


def _builtin(option: Option, view: View) -> Finding:
    """Options of iptables itself that the model has no value for."""
    if option.name == "-f":
        # conntrack puts fragments together before nat chains see them.
        return found(
            holds=False, negated=option.negated, fact="nat chains see no fragments"
        )
    if option.name in ("-s", "-d"):
        side = "source" if option.name == "-s" else "destination"
        return masked(option, view, side)
    return other(option, view)


# === ports and protocols ===


def _range(text: str) -> PortRange:
    low, colon, high = text.partition(":")
    first = int(low or 0)
    return PortRange(first, (int(high or 65535)) if colon else first)


def _transport(name: str) -> Callable[[Option, View], Finding]:
    """The options of ``-m tcp`` and ``-m udp``, for packets of that protocol."""

    def decide(option: Option, view: View) -> Finding:
        packet = view.packet
        if protocol_number(packet.protocol) != PROTOCOLS[name]:
            return Finding(holds=False, why=f"the protocol is {packet.protocol}")
        if option.name == "--tcp-flags":
            return _flags(option)
        if option.name not in ("--sport", "--dport"):
            return other(option, view)
        ranges = (_range(option.value),)
        if option.name == "--sport":
            finding = in_ranges(packet.source_port, ranges, "source")
        else:
            finding = in_ranges(packet.destination_port, ranges, "destination")
        return ports(view, finding, (option.name, ranges), negated=option.negated)

    return decide


_FLAGS = frozenset(("FIN", "SYN", "RST", "PSH", "ACK", "URG"))


def _flags(option: Option) -> Finding:
    """A connection starts with SYN alone."""
    mask, wanted = (_flag_set(text) for text in option.values)
    holds = mask & {"SYN"} == wanted
    return found(holds, option.negated, "a first packet has the flag SYN alone")


def _flag_set(text: str) -> frozenset[str]:
    return {"ALL": _FLAGS, "NONE": frozenset[str]()}.get(
        text, frozenset(text.split(","))
    )


def _multiport(option: Option, view: View) -> Finding:
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
        return other(option, view)
    if finding.holds is False and option.name == "--ports":
        finding = Finding(holds=False, why=f"{destination.why}, {source.why}")
    return ports(view, finding, (option.name, ranges), negated=option.negated)


def _icmp(option: Option, view: View) -> Finding:
    name = "ipv6-icmp" if option.question[0] == "icmp6" else "icmp"
    if protocol_number(view.packet.protocol) != PROTOCOLS[name]:
        return Finding(holds=False, why=f"the protocol is {view.packet.protocol}")
    return other(option, view)


# === connections, marks, owners ===


def _conntrack(option: Option, view: View) -> Finding:
    packet = view.packet
    name, value = option.name, option.values[0]
    fact = _conntrack_fact(name, value, view)
    if fact:
        holds, why = fact
        return found(holds, option.negated, why)
    side = _CONNTRACK_ADDRESSES.get(name)
    if side:
        return masked(option, view, side)
    side = _CONNTRACK_PORTS.get(name)
    if side:
        port = packet.source_port if side == "source" else packet.destination_port
        ranges = (_range(value),)
        finding = in_ranges(port, ranges, side)
        return ports(view, finding, (name, ranges), negated=option.negated)
    return other(option, view)


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


def _mark(option: Option, view: View) -> Finding:
    if option.name != "--mark":
        return other(option, view)
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


def _owner(option: Option, view: View) -> Finding:
    if option.name == "--socket-exists":
        outbound = view.packet.outbound
        fact = "it was sent by a socket" if outbound else "it belongs to no socket"
        return found(outbound, option.negated, fact)
    kind = {"--uid-owner": "uid", "--gid-owner": "gid"}.get(option.name)
    if kind is None:
        return other(option, view)
    low, dash, high = option.value.partition("-")
    last = int(high) if dash else int(low)
    return owner(view, kind, int(low), last, negated=option.negated)


def _set(option: Option, view: View) -> Finding:
    if option.name != "--match-set":
        return other(option, view)
    why = f"what the set {option.value} holds is not known"
    return undecided(view, option.question, why, negated=option.negated)


def _recent(option: Option, view: View) -> Finding:  # noqa: ARG001  (as its likes)
    if option.name == "--set":  # remembers the address, and matches
        fact = "it always matches"
        return found(holds=True, negated=option.negated, fact=fact)
    if option.name in ("--name", "--mask", "--rsource", "--rdest"):
        return HOLDS
    return Finding(None, _WHY["recent"])


def _always(option: Option, view: View) -> Finding:  # noqa: ARG001  (as its likes)
    return HOLDS


_BY_NAME: dict[str, Callable[[Option, View], Finding]] = {
    "": _builtin,
    "tcp": _transport("tcp"),
    "udp": _transport("udp"),
    "multiport": _multiport,
    "icmp": _icmp,
    "icmp6": _icmp,
    "iprange": iprange,
    "addrtype": addrtype,
    "conntrack": _conntrack,
    "state": _conntrack,
    "mark": _mark,
    "connmark": _mark,
    "owner": _owner,
    "set": _set,
    "recent": _recent,
    "comment": _always,
}
