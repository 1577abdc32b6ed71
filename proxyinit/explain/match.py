"""Whether a rule's matches hold for a packet: yes, no, or it can't be known. Pure.

The kernel's own functions are the reference (net/netfilter/xt_*.c, nft_meta.c,
nft_cmp.c), with their corners: a rule of nf_tables that asks for the owner of a
packet without a socket never matches, not even negated; one of iptables does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from proxyinit.explain.packet import lies_in
from proxyinit.explain.trace import HOLDS, Finding
from proxyinit.explain.view import (
    PROTOCOLS,
    WITH_PORTS,
    View,
    found,
    is_own,
    protocol_number,
    undecided,
)
from proxyinit.rules import (
    Comment,
    Destination,
    Destinations,
    Family,
    InInterface,
    OutInterface,
    OwnerGid,
    OwnerUid,
    PortRange,
    Protocol,
    Source,
    Sources,
    Subnet,
    TcpPort,
    TcpPorts,
)

# === the matches of the model ===


def protocol(match: Protocol, view: View) -> Finding:
    """``-p``: 0 and ``all`` are every protocol."""
    wanted = protocol_number(match.name)
    mine = protocol_number(view.packet.protocol)
    return found(
        wanted in (0, mine), match.negated, f"the protocol is {view.packet.protocol}"
    )


def _family(match: Family, view: View) -> Finding:
    version = view.packet.version
    return found(version == match.version, match.negated, f"it is IPv{version}")


def _address(
    match: Source | Destination | Sources | Destinations, view: View
) -> Finding:
    is_source = isinstance(match, Source | Sources)
    packet = view.packet
    address = packet.source if is_source else packet.destination
    side = "source" if is_source else "destination"
    one = isinstance(match, Source | Destination)
    subnets: tuple[Subnet, ...] = (match.subnet,) if one else match.subnets  # type: ignore[union-attr]  # narrowed by `one`
    if subnets and subnets[0].version != packet.version:
        # Both `ip saddr` and `ip saddr !=` ask for an IPv4 packet first.
        return Finding(holds=False, why=f"it is IPv{packet.version}")
    inside = any(lies_in(address, subnet) for subnet in subnets)
    word = "in" if inside else "not in"
    shown = ", ".join(map(str, subnets[:3])) + (", ..." if len(subnets) > 3 else "")
    return found(inside, match.negated, f"{side} {address} is {word} {shown}")


def named(pattern: str, interface: str) -> bool:
    """Whether the interface is the one named; a final ``+`` stands for any ending."""
    if pattern.endswith("+"):
        return interface.startswith(pattern[:-1])
    return interface == pattern


def _in_interface(match: InInterface, view: View) -> Finding:
    packet = view.packet
    interface = packet.in_interface
    if interface is None:
        if match.name == "lo":
            # What comes over lo started here, and was decided in OUTPUT.
            return found(match.name != "lo", match.negated, "it came from outside")
        if match.name == "+":
            return found(match.name == "+", match.negated, "it came by some interface")
        why = "the interface it came by is not known: say --in"
        return undecided(view, ("in", match.name), why, negated=match.negated)
    by = f"came by {interface}" if interface else "was made here, came by no interface"
    return found(named(match.name, interface), match.negated, f"it {by}")


def _out_interface(match: OutInterface, view: View) -> Finding:
    packet = view.packet
    interface = packet.out_interface
    if interface is None and leaves_by_lo(view):
        interface = "lo"
    if interface is None:
        if match.name in ("lo", "+"):
            fact = f"{packet.destination} is another host's, not reached by lo"
            return found(match.name == "+", match.negated, fact)
        why = "the interface it leaves by is not known: say --out"
        return undecided(view, ("out", match.name), why, negated=match.negated)
    by = f"leaves by {interface}" if interface else "has not been routed yet"
    return found(named(match.name, interface), match.negated, f"it {by}")


def leaves_by_lo(view: View) -> bool:
    """Whether routing sends the packet by lo: to the namespace's own addresses.

    Where nobody said which these are, another host's is taken for granted.
    """
    address = view.packet.destination
    own = is_own(address, view)
    if own is None:
        premise = (
            f"{address} belongs to another host (if it is one of the namespace's own "
            "addresses, say so with --own or --out lo)"
        )
        view.premises[premise] = None
    return bool(own)


# === ports ===


def in_ranges(port: int | None, ranges: Sequence[PortRange], side: str) -> Finding:
    """Whether a port, which may be unknown, lies in one of the ranges."""
    if port is not None:
        for some in ranges:
            if some.low <= port <= some.high:
                return Finding(holds=True, why=f"the {side} port is {port}")
        return Finding(holds=False, why=f"the {side} port is {port}")
    if any(r.low <= 1 and r.high >= 65535 for r in ranges):
        return HOLDS
    return Finding(None, f"the {side} port is not known: say --from ADDR:PORT")


def ports(
    view: View,
    finding: Finding,
    asked: tuple[str, Sequence[PortRange]],
    *,
    negated: bool,
) -> Finding:
    """The finding about ports, negated if need be; supposed if it was before.

    `asked` are the option and the ranges, for the question when it is undecided.
    """
    if finding.holds is None:
        option, ranges = asked
        question = (option, ",".join(map(str, ranges)))
        return undecided(view, question, finding.why, negated=negated)
    return found(finding.holds, negated, finding.why)


def _tcp_port(match: TcpPort, view: View) -> Finding:
    if protocol_number(view.packet.protocol) != PROTOCOLS["tcp"]:
        return Finding(holds=False, why=f"the protocol is {view.packet.protocol}")
    ranges = (match.ports,)
    finding = in_ranges(view.packet.destination_port, ranges, "destination")
    return ports(view, finding, ("--dport", ranges), negated=match.negated)


def _tcp_ports(match: TcpPorts, view: View) -> Finding:
    # As iptables' multiport it may stand behind -p udp; as a set it is tcp dport.
    mine = protocol_number(view.packet.protocol)
    if mine not in WITH_PORTS or (view.native and mine != PROTOCOLS["tcp"]):
        return Finding(holds=False, why=f"the protocol is {view.packet.protocol}")
    finding = in_ranges(view.packet.destination_port, match.ranges, "destination")
    return ports(view, finding, ("--dport", match.ranges), negated=match.negated)


# === owners ===


def owner(view: View, kind: str, low: int, high: int, *, negated: bool) -> Finding:
    """Whether the socket belongs to a user or group of the range; `kind` says which."""
    packet = view.packet
    if not packet.outbound:
        if view.native:
            return Finding(holds=False, why="it came in, so it belongs to no socket")
        return found(
            holds=False, negated=negated, fact="it came in, so it belongs to no socket"
        )
    mine = packet.uid if kind == "uid" else packet.gid
    if mine is None:
        return _supposed_owner(view, kind, low, high, negated=negated)
    return found(low <= mine <= high, negated, f"the socket's {kind} is {mine}")


def _supposed_owner(
    view: View, kind: str, low: int, high: int, *, negated: bool
) -> Finding:
    for question, answer in view.supposed.items():
        if question[0] != kind:
            continue
        first, last = int(question[1]), int(question[2])
        inside = low <= first and last <= high
        if answer and (inside or high < first or last < low):
            fact = f"as supposed above, the {kind} is {_span(first, last)}"
            return found(inside, negated, fact)
        if not answer and first <= low and high <= last:
            fact = f"as supposed above, the {kind} is not {_span(first, last)}"
            return found(holds=False, negated=negated, fact=fact)
    why = f"the {kind} of its socket is not known: say --{kind}"
    return undecided(view, (kind, str(low), str(high)), why, negated=negated)


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"


def _owner_uid(match: OwnerUid, view: View) -> Finding:
    return owner(view, "uid", match.uid, match.uid, negated=match.negated)


def _owner_gid(match: OwnerGid, view: View) -> Finding:
    return owner(view, "gid", match.gid, match.gid, negated=match.negated)


def _comment(match: Comment, view: View) -> Finding:  # noqa: ARG001
    return HOLDS


MODEL: dict[type, Callable[[Any, View], Finding]] = {
    Protocol: protocol,
    Family: _family,
    Source: _address,
    Destination: _address,
    Sources: _address,
    Destinations: _address,
    InInterface: _in_interface,
    OutInterface: _out_interface,
    TcpPort: _tcp_port,
    TcpPorts: _tcp_ports,
    OwnerUid: _owner_uid,
    OwnerGid: _owner_gid,
    Comment: _comment,
}
"""Every match of the model but `Extension`, and who decides it."""
