"""Sets of ports and of addresses in one form each: sorted, nothing said twice.

nf_tables keeps a set as intervals, so nft shows 80 and 81 as 80-81 and two
neighbouring networks as one range. What is planned and what is read back are both
brought to the form of this module, and compare equal when they hold the same. Pure.
"""

from __future__ import annotations

from _socket import AF_INET, AF_INET6, inet_ntop, inet_pton

from proxyinit.rules import PortRange, Subnet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from proxyinit.rules import Version

BITS = {4: 32, 6: 128}
_FAMILY = {4: AF_INET, 6: AF_INET6}


def merge_ports(ranges: Iterable[PortRange]) -> tuple[PortRange, ...]:
    """The same ports, sorted, without overlaps and without neighbours."""
    spans = _merge((ports.low, ports.high) for ports in ranges)
    return tuple(PortRange(low, high) for low, high in spans)


def merge_subnets(subnets: Iterable[Subnet]) -> tuple[Subnet, ...]:
    """The same addresses, all of one version, as the fewest subnets, sorted."""
    members = list(subnets)
    if len(members) < 2:
        return tuple(members)
    spans = _merge(map(span, members))
    version = members[0].version
    return tuple(s for low, high in spans for s in cut(low, high, version))


def span(subnet: Subnet) -> tuple[int, int]:
    """The first and the last address, as numbers."""
    first = number(subnet.address, subnet.version)
    return first, first + (1 << BITS[subnet.version] - subnet.prefix) - 1


def number(address: str, version: Version) -> int:
    """An address as a number; raises OSError when it is none."""
    return int.from_bytes(inet_pton(_FAMILY[version], address), "big")


def cut(low: int, high: int, version: Version) -> Iterator[Subnet]:
    """The fewest subnets that hold the addresses from `low` to `high`."""
    bits = BITS[version]
    while low <= high:
        # As large as the alignment of its first address and the end allow.
        aligned = (low & -low).bit_length() - 1 if low else bits
        host = min(aligned, (high - low + 1).bit_length() - 1)
        address = inet_ntop(_FAMILY[version], low.to_bytes(bits // 8, "big"))
        yield Subnet(version, address, bits - host)
        low += 1 << host


def _merge(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return merged
