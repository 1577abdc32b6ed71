"""Sets in one form: the same members, sorted, nothing said twice."""

from __future__ import annotations

import ipaddress
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit.config import parse_ports, parse_subnet
from proxyinit.intervals import cut, merge_ports, merge_subnets, number, span
from proxyinit.rules import IPV4, IPV6, PortRange, Subnet

if TYPE_CHECKING:
    from proxyinit.rules import Version

PROPERTY = settings(deadline=None, max_examples=200)
# Few and close together, so that they often touch and overlap.
ports = st.integers(1, 40) | st.sampled_from([1, 65534, 65535])
ranges = st.tuples(ports, ports).map(lambda pair: PortRange(min(pair), max(pair)))


@st.composite
def networks(draw: st.DrawFn, version: Version) -> Subnet:
    """A subnet of one version, often beside or within others."""
    bits = 32 if version == IPV4 else 128
    prefix = draw(st.integers(bits - 5, bits) | st.integers(0, bits))
    address = draw(st.integers(0, 63) | st.integers(0, 2**bits - 1))
    kind = ipaddress.IPv4Address if version == IPV4 else ipaddress.IPv6Address
    return parse_subnet(f"{kind(address)}/{prefix}")


@PROPERTY
@given(st.lists(ranges, max_size=8))
def test_ports_are_the_same_and_said_once(given_ranges: list[PortRange]) -> None:
    """Every port that was there and no other; between two ranges there is a gap."""
    merged = merge_ports(given_ranges)

    def members(several: list[PortRange] | tuple[PortRange, ...]) -> set[int]:
        return {port for r in several for port in range(r.low, r.high + 1)}

    assert members(merged) == members(given_ranges)
    for one, following in itertools.pairwise(merged):
        assert one.high + 1 < following.low


@pytest.mark.parametrize("version", [IPV4, IPV6])
@PROPERTY
@given(st.data())
def test_subnets_are_collapsed(version: Version, data: st.DataObject) -> None:
    """As the standard library collapses them, in ascending order."""
    subnets = data.draw(st.lists(networks(version), max_size=8))

    merged = merge_subnets(subnets)

    nets: list[Any] = [ipaddress.ip_network(str(subnet)) for subnet in subnets]
    collapsed: list[Any] = list(ipaddress.collapse_addresses(nets))
    assert [ipaddress.ip_network(str(subnet)) for subnet in merged] == collapsed


@pytest.mark.parametrize("version", [IPV4, IPV6])
@PROPERTY
@given(st.data())
def test_a_range_is_cut_into_the_fewest_subnets(
    version: Version, data: st.DataObject
) -> None:
    """As the standard library summarises it."""
    bits = 32 if version == IPV4 else 128
    addresses = st.integers(0, 2**bits - 1) | st.integers(0, 40)
    low, high = sorted((data.draw(addresses), data.draw(addresses)))

    found = [ipaddress.ip_network(str(s)) for s in cut(low, high, version)]

    kind = ipaddress.IPv4Address if version == IPV4 else ipaddress.IPv6Address
    assert found == list(ipaddress.summarize_address_range(kind(low), kind(high)))


def test_the_ends_of_the_number_space() -> None:
    """The whole space is one subnet; its last address is no overflow."""
    assert list(cut(0, 2**32 - 1, IPV4)) == [parse_subnet("0.0.0.0/0")]
    assert list(cut(0, 2**128 - 1, IPV6)) == [parse_subnet("::/0")]
    assert span(parse_subnet("255.255.255.255/32")) == (2**32 - 1, 2**32 - 1)
    halves = map(parse_subnet, ("128.0.0.0/1", "0.0.0.0/1"))
    assert merge_subnets(halves) == (parse_subnet("0.0.0.0/0"),)
    assert merge_ports([parse_ports("1-65535")]) == (PortRange(1, 65535),)


def test_what_is_no_address() -> None:
    """It is refused, not guessed."""
    with pytest.raises(OSError, match="illegal IP address"):
        number("10.0.0", IPV4)


def test_nothing_stays_nothing() -> None:
    """No set without members is made up."""
    assert (merge_ports([]), merge_subnets([])) == ((), ())
