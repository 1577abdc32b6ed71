"""The flags of ``proxy-init explain``, and the packet and source they ask about. Pure.

Those of an install are taken as well, so that a pod's own arguments can be asked
about as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from proxyinit.config import MAX_ID, parse_id, parse_port, parse_subnet
from proxyinit.explain.packet import (
    Mark,
    Packet,
    bits,
    canonical,
    is_loopback,
    read_mark,
    version_of,
)
from proxyinit.flags import INSTALL_FLAGS, REDIRECT_FLAGS, optional
from proxyinit.pflag import Arguments, Flag, parse_bool
from proxyinit.record import Record
from proxyinit.rules import Subnet

MAX_INTERFACE_NAME = 15
"""IFNAMSIZ of the kernel, without the zero at the end."""


class Endpoint(Record):
    """One side of a connection; the port is None when it was not named."""

    address: str
    port: int | None = None


def parse_endpoint(text: str) -> Endpoint:
    """An address, with a port or without: ``10.0.0.7:80``, ``[fd00::7]:80``."""
    port = ""
    address, closing, rest = text.removeprefix("[").partition("]")
    if text.startswith("[") and closing and (not rest or rest.startswith(":")):
        port = rest[1:]
        if rest == ":":
            raise ValueError("expected a port behind the last colon")
    elif text.count(":") == 1:
        address, _, port = text.partition(":")
        if not port:
            raise ValueError("expected a port behind the colon")
    else:
        address = text
    found = Endpoint(canonical(address), parse_port(port) if port else None)
    if found.address.startswith("::ffff:") and "." in found.address:
        raise ValueError(f"expected an IPv4 address as {found.address[7:]}")
    return found


def parse_target(text: str) -> Endpoint:
    """An address with a port."""
    found = parse_endpoint(text)
    if found.port is None:
        shown = f"[{text}]:80" if ":" in text else f"{text}:80"
        raise ValueError(f"expected a port as well, such as {shown}")
    return found


def parse_interface(text: str) -> str:
    """The name of a network interface."""
    odd = not text.isprintable() or "/" in text or " " in text
    if not 0 < len(text) <= MAX_INTERFACE_NAME or odd:
        raise ValueError(
            f"expected an interface's name, up to {MAX_INTERFACE_NAME} characters"
        )
    return text


def parse_protocol(text: str) -> str:
    """The transport protocol: of those with ports, the two that pods use."""
    if text.lower() not in ("tcp", "udp"):
        raise ValueError("expected tcp or udp")
    return text.lower()


def parse_mark(text: str) -> Mark:
    """The mark a packet bears, in decimal or in hex."""
    try:
        value, mask = read_mark(text)
    except ValueError:
        value, mask = -1, 0
    if value < 0 or "/" in text or not 0 <= int(text, 0) <= MAX_ID + 1:
        raise ValueError("expected a mark such as 0 or 0x4000")
    return Mark(value, mask)


def parse_own(text: str) -> Subnet:
    """An address of the namespace, or a network of such."""
    if "/" in text:
        return parse_subnet(text)
    address = canonical(text)
    version = version_of(address)
    return Subnet(version, address, bits(version))


def parse_format(text: str) -> str:
    """How the answer is printed."""
    if text not in ("text", "json"):
        raise ValueError("expected text or json")
    return text


PACKET_FLAGS = (
    Flag(
        "from",
        "Where the connection comes from (required).",
        parse_endpoint,
        metavar="ADDR[:PORT]",
    ),
    Flag(
        "to",
        "Where it goes to; IPv6 as [ADDR]:PORT (required).",
        parse_target,
        metavar="ADDR:PORT",
    ),
    Flag(
        "proto",
        "Transport protocol.",
        parse_protocol,
        metavar="tcp|udp",
        default="tcp",
    ),
    Flag("uid", "User of the socket that opens it.", parse_id, metavar="UID"),
    Flag("gid", "Group of the socket that opens it.", parse_id, metavar="GID"),
    Flag("in", "Interface it comes in by.", parse_interface, metavar="IFACE"),
    Flag("out", "Interface it leaves by.", parse_interface, metavar="IFACE"),
    Flag("inbound", "It comes from outside.", parse_bool, default=False),
    Flag("outbound", "It is opened in the namespace.", parse_bool, default=False),
    Flag("mark", "The packet's mark (default: not known).", parse_mark, metavar="MARK"),
    Flag(
        "own",
        "Addresses of the namespace itself; of a live one they are read.",
        parse_own,
        metavar="ADDR,...",
        many=True,
    ),
)

SOURCE_FLAGS = (
    Flag(
        "dump",
        "Saved rules instead of live ones: what iptables-save, ip6tables-save or "
        "'nft list ruleset' printed; - for standard input.",
        metavar="FILE|-",
    ),
    Flag(
        "format",
        "Form of the answer.",
        parse_format,
        metavar="text|json",
        default="text",
    ),
)

EXPLAIN_FLAGS = (*PACKET_FLAGS, *SOURCE_FLAGS, *map(optional, INSTALL_FLAGS))
_REDIRECT = tuple(flag.name for flag in REDIRECT_FLAGS)


@dataclass(frozen=True, slots=True)
class Undirected:
    """A packet but for its direction, which may show when addresses are known."""

    arguments: Arguments

    def packet(self, own: tuple[Subnet, ...] | None) -> Packet | None:
        """The packet; None when nothing tells where it meets the rules.

        `own` are the namespace's addresses if they were read.
        """
        values: dict[str, Any] = self.arguments.values
        given = values["own"] or None
        source, target = values["from"], values["to"]
        outbound = direction(self.arguments)
        packet = Packet(
            version=version_of(target.address),
            source=source.address,
            source_port=source.port,
            destination=target.address,
            destination_port=target.port,
            outbound=bool(outbound),
            protocol=values["proto"],
            interface=values["out"] or values["in"],
            uid=values["uid"],
            gid=values["gid"],
            mark=values["mark"] or Mark(),
            own=given or own,
        )
        if outbound is None:
            outbound = _by_addresses(packet)
        return None if outbound is None else replace(packet, outbound=outbound)


def _by_addresses(packet: Packet) -> bool | None:
    """Who has the source's address opened the connection."""
    if packet.is_own(packet.source):
        return True
    return False if packet.is_own(packet.destination) else None


def direction(arguments: Arguments) -> bool | None:
    """Whether flags say that it is outbound (True) or inbound (False), or neither."""
    values = arguments.values
    if values["outbound"] or any(_has(arguments, n) for n in ("out", "uid", "gid")):
        return True
    if values["inbound"] or _has(arguments, "in"):
        return False
    ends = (values["from"], values["to"])
    # Nothing comes from outside to an address of loopback, nor from one.
    if any(isinstance(e, Endpoint) and is_loopback(e.address) for e in ends):
        return True
    return None


def is_planned(arguments: Arguments) -> bool:
    """Whether it is asked through the rules that flags of an install ask for."""
    return any(name in arguments.given for name in _REDIRECT)


def reads_live(arguments: Arguments) -> bool:
    """Whether it is asked through the rules of a namespace."""
    return not is_planned(arguments) and "dump" not in arguments.given


def quiet(arguments: Arguments) -> Arguments:
    """The same for parts that were made for an install: nothing will be changed."""
    kept = dict(arguments.values)
    if not is_planned(arguments):
        for name in _REDIRECT:
            kept.pop(name, None)
    kept["simulate"] = True
    return Arguments(
        kept, arguments.given, arguments.words, arguments.problems, arguments.help
    )


def _has(arguments: Arguments, name: str) -> bool:
    return arguments.values[name] is not None
