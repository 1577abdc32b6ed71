"""Random configurations and packets, and whether a prediction came true."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from proxyinit.config import RedirectConfig, parse_subnet
from proxyinit.explain.packet import (
    NO_MARK,
    Mark,
    Packet,
    bits,
    canonical,
    is_loopback,
    lies_in,
    number,
    version_of,
)
from proxyinit.explain.show import text
from proxyinit.explain.tables import explain
from proxyinit.explain.trace import Explanation, Fork, Outcome, Try
from proxyinit.lab.crossroads import OWN, PORTS, WORLDS
from proxyinit.lab.ears import Heard
from proxyinit.rules import IPV4, IPV6, PortRange, Subnet

if TYPE_CHECKING:
    from proxyinit.lab.crossroads import Crossroads
    from proxyinit.rules import Ruleset, Version

T = TypeVar("T")

FUZZ = bool(os.environ.get("PROXYINIT_FUZZ"))
"""Many more examples, different ones each time: ``make fuzz``."""

PAIRS = 50_000 if FUZZ else 2_000
"""(configuration, packet) pairs that every mode is tried with."""

BATCH = 30
"""At most so many packets of a configuration; half as many on average."""

MANY = settings(
    max_examples=PAIRS // 8,
    deadline=None,  # the machine is not ours alone
    database=None,
    derandomize=not FUZZ,
    print_blob=FUZZ,
    suppress_health_check=[*HealthCheck],
    phases=[Phase.generate, Phase.shrink],
)

LOOPBACK = {4: ("127.0.0.1", "127.0.0.2", "127.200.3.4"), 6: ("::1",)}
HERE = {a for places in (OWN, LOOPBACK) for some in places.values() for a in some}
OWN_SUBNETS = tuple(
    Subnet(version, address, bits(version))
    for version in (IPV4, IPV6)
    for address in OWN[version]
)
_WORLD_SUBNETS = tuple(map(parse_subnet, WORLDS))

VERSIONS: tuple[Version, ...] = (IPV4, IPV6)
versions = st.sampled_from(VERSIONS)


def spelled(value: int, version: Version) -> str:
    """The address with that number."""
    if version == IPV4:
        return ".".join(map(str, value.to_bytes(4, "big")))
    digits = f"{value:032x}"
    return canonical(":".join(digits[at : at + 4] for at in range(0, 32, 4)))


# === addresses and ports ===


@cache
@st.composite
def world_addresses(draw: st.DrawFn, version: Version) -> str:
    """An address beyond the pod, often at the edge of a network."""
    network = draw(st.sampled_from([s for s in _WORLD_SUBNETS if s.version == version]))
    host = bits(version) - network.prefix
    first = number(network.address)
    some = draw(st.integers(0, 2**host - 1) | st.integers(0, 300))
    return spelled(first + min(some, 2**host - 1), version)


@cache
def own_addresses(version: Version) -> st.SearchStrategy[str]:
    """An address of the pod's interface."""
    return st.sampled_from(OWN[version])


@cache
def loopback_addresses(version: Version) -> st.SearchStrategy[str]:
    """An address of loopback."""
    return st.sampled_from(LOOPBACK[version])


@cache
def addresses(version: Version) -> st.SearchStrategy[str]:
    """Any address that takes part."""
    return st.one_of(
        world_addresses(version), own_addresses(version), loopback_addresses(version)
    )


prefixes = st.sampled_from((0, 8, 12, 16, 24, 31, 32)) | st.integers(0, 32)


@cache
@st.composite
def subnets(draw: st.DrawFn, only: Version | None = None, least: int = 0) -> Subnet:
    """A subnet in which an address lies that takes part, or is next to one."""
    version: Version = draw(versions) if only is None else only
    address = number(draw(addresses(version)))
    prefix = max(draw(prefixes), least)
    prefix = prefix if version == IPV4 else min(prefix * 4, 128)
    host = bits(version) - prefix
    first = address >> host << host
    return parse_subnet(f"{spelled(first, version)}/{prefix}")


ports = st.sampled_from(PORTS)
near_ports = st.builds(
    lambda port, step: min(max(port + step, 1), 65535), ports, st.integers(-1, 1)
)
any_ports = near_ports | st.integers(1, 65535)


@cache
@st.composite
def port_ranges(draw: st.DrawFn) -> PortRange:
    """A port or a range; its ends are ports that packets have, or next to such."""
    low, high = sorted((draw(any_ports), draw(any_ports)))
    return PortRange(low, low if draw(st.booleans()) else high)


IDS = (0, 1, 999, 1000, 1001, 2102, 65534, 2**31, 4294967294)
ids = st.sampled_from(IDS)


# === configurations ===


def some(items: st.SearchStrategy[T], most: int) -> st.SearchStrategy[tuple[T, ...]]:
    """A few of them, or none."""
    return st.lists(items, max_size=most).map(tuple)


proxy_ports = st.lists(ports, min_size=2, max_size=2, unique=True)


@st.composite
def configurations(draw: st.DrawFn) -> RedirectConfig:
    """What flags can ask for."""
    inbound, outbound = draw(proxy_ports)
    return RedirectConfig(
        inbound,
        outbound,
        proxy_uids=draw(some(ids, 3)),
        proxy_gids=draw(some(ids, 3)),
        ports_to_redirect=draw(some(any_ports, 4)),
        inbound_ports_to_ignore=draw(some(port_ranges(), 20)),
        outbound_ports_to_ignore=draw(some(port_ranges(), 20)),
        inbound_subnets_to_ignore=draw(some(subnets(), 5)),
        outbound_subnets_to_ignore=draw(some(subnets(), 5)),
    )


# === packets ===

marks = st.sampled_from(
    (NO_MARK, NO_MARK, Mark(1, 0xFFFFFFFF), Mark(0x4001, 0xFFFFFFFF))
)


protocols = st.sampled_from(("tcp", "tcp", "tcp", "udp"))
source_ports = st.integers(20000, 30000)  # nobody listens on these


@st.composite
def packets(
    draw: st.DrawFn, near: Sequence[str] = (), only: Version | None = None
) -> Packet:
    """A packet that can be sent; `near` are addresses worth being tried."""
    version: Version = draw(versions) if only is None else only
    outbound = draw(st.booleans())
    edges = [address for address in near if version_of(address) == version]
    world: str = draw(world_addresses(version))
    nearby = draw(st.booleans())
    if edges and nearby:
        world = draw(st.sampled_from(edges))
    if outbound:
        destination = draw(addresses(version))
        destination = world if destination not in HERE else destination
        source = draw(own_addresses(version))
        if is_loopback(destination) and draw(st.booleans()):
            source = destination
    else:
        source, destination = world, draw(own_addresses(version))
    return Packet(
        version=version,
        source=source,
        source_port=draw(source_ports),
        destination=destination,
        destination_port=draw(ports),
        outbound=outbound,
        protocol=draw(protocols),
        # That it takes lo to the pod's own addresses is to be found out.
        interface=None if outbound and destination in HERE else "eth0",
        uid=draw(ids) if outbound else None,
        gid=draw(ids) if outbound else None,
        mark=draw(marks) if outbound else NO_MARK,
        own=OWN_SUBNETS,
    )


def _reachable(subnet: Subnet) -> list[str]:
    """The edges of a subnet, and what is next to them, as far as packets get there."""
    first = number(subnet.address)
    last = first + 2 ** (bits(subnet.version) - subnet.prefix) - 1
    values = (first, first - 1, last, last + 1)
    most = 2 ** bits(subnet.version)
    found = [spelled(v, subnet.version) for v in values if 0 <= v < most]
    return [a for a in found if any(lies_in(a, world) for world in _WORLD_SUBNETS)]


@st.composite
def batches(
    draw: st.DrawFn, hints: Sequence[Subnet] = (), version: Version | None = None
) -> list[Packet]:
    """Packets for one configuration; few when a failure is made small."""
    near = tuple(address for subnet in hints for address in _reachable(subnet))
    some = packets(near, version)
    return [draw(some) for _ in range(draw(st.integers(1, BATCH)))]


@st.composite
def questions(draw: st.DrawFn) -> tuple[RedirectConfig, list[Packet]]:
    """A configuration, and packets that it makes a difference to."""
    config = draw(configurations())
    near = config.inbound_subnets_to_ignore + config.outbound_subnets_to_ignore
    return config, draw(batches(near))


# === predictions ===


def disagreement(explanation: Explanation, seen: Heard | str) -> str:
    """What was predicted and what happened, if it is not the same; else empty.

    Of an undecided packet one of the ways must have come true.
    """
    packet = explanation.packet
    known = [o for o in explanation.outcomes if o.kind != "unknown"]
    if len(known) < len(explanation.outcomes):
        return ""
    if any(_came_true(packet, outcome, seen) for outcome in known):
        return ""
    return f"predicted:\n{text(explanation)}the kernel's answer: {seen}"


def _came_true(packet: Packet, outcome: Outcome, seen: Heard | str) -> bool:
    if outcome.kind == "dropped":
        return seen in ("TimeoutError", "PermissionError", "lost")
    low, high = outcome.ports or (packet.destination_port or 0,) * 2
    if isinstance(seen, str):
        return not set(range(low, high + 1)) <= set(PORTS)
    address = outcome.address
    if outcome.kind == "redirected" and not address:
        address = seen.address if seen.address in OWN[packet.version] else "its own"
    address = address or packet.destination
    own = is_loopback(address) or address in OWN[version_of(address)]
    original = (packet.destination, packet.destination_port)
    return (
        (seen.who, seen.address) == ("pod" if own else "world", address)
        and low <= seen.port <= high
        and seen.original in (None, original)
    )


Where: TypeAlias = tuple[str, str, int]
"""A rule by its table's name, its chain and its number."""


def matched_rules(explanation: Explanation) -> Counter[Where] | None:
    """Every rule that matches; None if it can't be known of one."""
    found: Counter[Where] = Counter()
    for passage in explanation.passages:
        if isinstance(passage.trace.end, Fork):
            return None
        tried = [step for step in passage.trace.steps if isinstance(step, Try)]
        if any(step.matched is None for step in tried):
            return None
        found.update((passage.name, s.chain, s.number) for s in tried if s.matched)
    return found


def counted(table: str, listing: str) -> Counter[Where]:
    """The packets each rule has counted, from iptables-save -c or nft list."""
    found: Counter[Where] = Counter()
    numbers: Counter[str] = Counter()
    chain = ""
    for line in listing.splitlines():
        saved = re.match(r"\[(\d+):\d+\] -A (\S+)", line)
        listed = re.search(r"\bcounter packets (\d+) bytes", line)
        if line.startswith("\tchain "):
            chain = line.split()[1]
        elif saved:
            chain = saved[2]
        packets = saved or listed
        if packets:
            numbers[chain] += 1
            found[table, chain, numbers[chain]] = int(packets[1])
    return found


def judged(
    crossroads: Crossroads,
    name: str,
    table: Ruleset,
    packets: list[Packet],
    listing: Callable[[], str],
) -> Counter[str]:
    """Send packets through a table that is loaded; how many were (un)decided.

    Those whose way is known go first: then every rule has counted what it should.
    """
    asked = [explain([(name, table)], packet) for packet in packets]
    ways = [(one, matched_rules(one)) for one in asked if can_be_sent(one)]
    known = [(one, matched) for one, matched in ways if matched is not None]
    expected: Counter[Where] = Counter()
    for one, rules in known:
        judge(crossroads, one)
        expected.update(rules)
    assert counted(name, crossroads.pod.run(listing)) == expected
    for one, rules_or_none in ways:
        if rules_or_none is None:
            judge(crossroads, one)
    return Counter("decided" if one.decided else "undecided" for one, _ in ways)


def judge(crossroads: Crossroads, explanation: Explanation) -> None:
    """Send the packet; it must come out on one of the ways foretold."""
    found = disagreement(explanation, crossroads.send(explanation.packet))
    assert not found, found


def can_be_sent(explanation: Explanation) -> bool:
    """Whether the packet gets anywhere: loopback's sources don't leave the host."""
    packet = explanation.packet
    return not is_loopback(packet.source) or not any(
        outcome.kind == "translated" for outcome in explanation.outcomes
    )
