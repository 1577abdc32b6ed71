"""Each match, for a packet that it fits, one that it does not, and one nobody knows.

The kernel is the judge of the same in netns-tests; here stand the corners by name.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxyinit.explain.packet import Mark, Packet
from proxyinit.explain.view import View
from proxyinit.explain.walk import examine
from proxyinit.iptables_rule import parse_rule, split_words
from proxyinit.rules import (
    IPV4,
    IPV6,
    Destinations,
    Family,
    OwnerUid,
    Rule,
    Sources,
    Subnet,
    TcpPorts,
)
from tests import one_table
from tests.one_table import BARE, BARE_OUT

OWN = (Subnet(IPV4, "10.1.0.2", 32), Subnet(IPV6, "fd00:1::2", 128))
IN = replace(one_table.IN, own=OWN)
OUT = replace(
    IN,
    source="10.1.0.2",
    destination="10.9.0.1",
    outbound=True,
    uid=1000,
    gid=1001,
)
IN6 = replace(IN, version=IPV6, source="fd00:9::1", destination="fd00:1::2")


def holds(text: str, packet: Packet) -> bool | None:
    """Whether the matches of a rule hold for a packet."""
    return examine(parse_rule(split_words(text)), View(packet, mark=packet.mark))[
        0
    ].holds


CASES = [
    # protocols
    ("-p tcp", IN, True),
    ("-p udp", IN, False),
    ("! -p udp", IN, True),
    ("-p 6", IN, True),
    ("-p all", IN, True),
    ("-p esp", IN, False),
    ("! -p 253", IN, True),
    # addresses
    ("-s 10.9.0.0/16", IN, True),
    ("! -s 10.9.0.0/16", IN, False),
    ("-d 10.1.0.3/32", IN, False),
    ("-d 0.0.0.0/0", IN, True),
    ("-s fd00:9::/32", IN6, True),
    ("-s 10.0.0.1/255.0.0.255", IN, True),
    ("-s 10.0.0.2/255.0.0.255", IN, False),
    ("! -d 10.0.0.2/255.0.0.255", IN, False),
    ("-s fd00::1/ff00::ffff", IN6, True),
    ("-m iprange --src-range 10.9.0.0-10.9.0.9", IN, True),
    ("-m iprange ! --src-range 10.9.0.2-10.9.0.9", IN, True),
    ("-m iprange --src-range 10.9.0.0-10.9.0.9 --dst-range 1.1.1.1-1.1.1.2", IN, False),
    # interfaces
    ("-i eth0", IN, True),
    ("-i eth+", IN, True),
    ("! -i eth0", IN, False),
    ("-i eth00", IN, False),
    ("-i eth0", BARE, None),
    ("-i lo", BARE, False),
    ("-o eth0", IN, False),
    ("! -o eth0", IN, True),
    ("-i eth0", OUT, False),
    ("-o eth0", OUT, True),
    ("-o lo", OUT, False),
    ("-o lo", replace(OUT, interface=None), False),
    ("-o lo", replace(OUT, interface=None, destination="10.1.0.2"), True),
    ("-o lo", replace(OUT, interface=None, destination="127.0.0.9"), True),
    ("-o lo", replace(BARE_OUT, destination="10.1.0.2"), True),
    ("-o lo", BARE_OUT, False),
    ("-o eth1", BARE_OUT, None),
    ("-o eth1", replace(BARE_OUT, destination="127.0.0.1"), False),
    # ports
    ("-p tcp -m tcp --dport 8080", IN, True),
    ("-p tcp -m tcp ! --dport 8080", IN, False),
    ("-p tcp -m tcp --dport 8000:8079", IN, False),
    ("-p tcp -m tcp --sport 40000:40001", IN, True),
    ("-p tcp -m tcp --sport 40000 --dport 80", IN, False),
    ("-p tcp -m tcp --sport 40000", BARE, None),
    ("-p tcp -m tcp --sport 0:65535", BARE, True),
    ("-p tcp -m tcp --dport 80", replace(IN, protocol="udp"), False),
    ("-p udp -m udp --dport 8080", replace(IN, protocol="udp"), True),
    ("-p tcp -m multiport --dports 1,8000:8080", IN, True),
    ("-p tcp -m multiport ! --dports 1,8000:8080", IN, False),
    ("-p udp -m multiport --dports 8080", replace(IN, protocol="udp"), True),
    ("-p tcp -m multiport --sports 1,2", IN, False),
    ("-p tcp -m multiport --ports 1,40000", IN, True),
    ("-p tcp -m multiport --ports 1,8080", BARE, None),
    ("-p tcp -m multiport --ports 8080", replace(IN, source_port=None), True),
    ("-p tcp -m multiport ! --ports 1,2", IN, True),
    ("-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN", IN, True),
    ("-p tcp -m tcp --tcp-flags SYN,ACK SYN,ACK", IN, False),
    ("-p tcp -m tcp --tcp-flags ALL NONE", IN, False),
    ("-p tcp -m tcp ! --tcp-flags ACK ACK", IN, True),
    ("-p icmp -m icmp --icmp-type 8", IN, False),
    # owners
    ("-m owner --uid-owner 1000", OUT, True),
    ("-m owner ! --uid-owner 1000", OUT, False),
    ("-m owner --uid-owner 999-1000", OUT, True),
    ("-m owner --gid-owner 1000", OUT, False),
    ("-m owner --uid-owner 1000 --gid-owner 1001", OUT, True),
    ("-m owner --uid-owner 1000 ! --gid-owner 1001", OUT, False),
    ("-m owner --socket-exists", OUT, True),
    ("-m owner ! --socket-exists", OUT, False),
    ("-m owner --uid-owner 1000", BARE_OUT, None),
    ("-m owner ! --uid-owner 1000", BARE_OUT, None),
    ("-m owner --uid-owner 1000", IN, False),
    ("-m owner ! --uid-owner 1000", IN, True),
    ("-m owner --socket-exists", IN, False),
    ("-m owner --gid-owner 7 --suppl-groups", OUT, None),
    # types of addresses
    ("-m addrtype --dst-type LOCAL", IN, True),
    ("-m addrtype ! --dst-type LOCAL", IN, False),
    ("-m addrtype --dst-type LOCAL", OUT, False),
    ("-m addrtype --dst-type LOCAL", BARE, None),
    ("-m addrtype --dst-type LOCAL", replace(BARE_OUT, destination="127.0.0.1"), True),
    ("-m addrtype --src-type LOCAL", BARE_OUT, True),
    ("-m addrtype --dst-type LOCAL", replace(IN, destination="224.0.0.1"), False),
    ("-m addrtype --dst-type MULTICAST", replace(IN, destination="224.0.0.1"), True),
    (
        "-m addrtype --dst-type BROADCAST",
        replace(IN, destination="255.255.255.255"),
        True,
    ),
    ("-m addrtype --dst-type UNICAST", OUT, True),
    ("-m addrtype --dst-type UNICAST,LOCAL", IN, True),
    ("-m addrtype --dst-type UNICAST,LOCAL", IN6, True),
    ("-m addrtype --dst-type MULTICAST,LOCAL", IN6, False),
    ("-m addrtype --dst-type ANYCAST", IN6, None),
    ("-m addrtype --dst-type LOCAL --limit-iface-in", IN, None),
    # connections
    ("-m conntrack --ctstate NEW", IN, True),
    ("-m conntrack --ctstate RELATED,ESTABLISHED", IN, False),
    ("-m conntrack ! --ctstate INVALID", IN, True),
    ("-m state --state NEW", IN, True),
    ("-m conntrack --ctproto 6 --ctdir ORIGINAL", IN, True),
    ("-m conntrack --ctorigdst 10.1.0.2", IN, True),
    ("-m conntrack ! --ctorigsrc 10.9.0.0/16", IN, False),
    ("-m conntrack --ctrepldstport 40000", IN, True),
    ("-m conntrack --ctorigsrcport 40000", BARE, None),
    ("-m conntrack --ctstatus ASSURED", IN, False),
    ("-m conntrack --ctstatus EXPECTED", IN, None),
    # marks
    ("-m mark --mark 0x0", IN, True),
    ("-m mark --mark 0x1/0x1", IN, False),
    ("-m mark ! --mark 0x1/0x1", IN, True),
    ("-m mark --mark 0x1/0x1", BARE, None),
    ("-m mark --mark 0x3/0x1", BARE, False),
    ("-m mark --mark 0x4001", replace(IN, mark=Mark(0x4001, 0xFFFFFFFF)), True),
    ("-m connmark --mark 0x1", IN, None),
    # what always holds, and what nobody knows
    ("-m comment --comment why", IN, True),
    ("-f", IN, False),
    ("! -f", IN, True),
    ("-m recent --set --name seen --mask 255.255.255.255 --rsource", IN, True),
    ("-m recent --rcheck --name seen --mask 255.255.255.255 --rsource", IN, None),
    ("-m set --match-set hosts src", IN, None),
    ("-m set ! --match-set hosts src", IN, None),
    ("-m statistic --mode random --probability 0.5", IN, None),
    ("-m limit --limit 1/sec", IN, None),
    ("-m nosuch --thing 5", IN, None),
    ("-m tcp --dport http", IN, None),
    ("-m owner --uid-owner root", OUT, None),
    ("-m owner --uid-owner 5 --gid-owner 6", BARE_OUT, None),
    ("-m tcp 5", IN, None),
    ("-s nonsense/8", IN, None),
    ("-d 10.0.0.0/33", IN, None),
    ("-m tcp !", IN, None),
    ("-p tcp -m tcp --tcp-option 5", IN, None),
    ("-m multiport --dports 8080", replace(IN, protocol="icmp"), False),
    ("-p tcp -m multiport --odd 8080", IN, None),
    ("-p icmp -m icmp --icmp-type 8", replace(IN, protocol="icmp"), None),
    ("-p ipv6-icmp -m icmp6 --icmpv6-type 128", IN, False),
    ("--odd x", IN, None),
    ("-s fd00::/ff00::", IN, False),
    ("-s 10.9.0.0/16x", IN, None),
    ("-m iprange --odd x", IN, None),
    ("-m iprange --src-range fd00::1-fd00::2", IN, False),
    ("-m addrtype --dst-type BLACKHOLE", OUT, None),
    ("-m addrtype --dst-type MULTICAST", OUT, False),
    ("-m addrtype --dst-type UNICAST", replace(IN, destination="10.2.2.2"), None),
    ("-m addrtype --dst-type BROADCAST", IN, False),
    ("-m mark --odd 5", IN, None),
    ("-m owner --odd 5", OUT, None),
    ("-m set --odd 5", IN, None),
    ("-m conntrack --odd 5", IN, None),
    ("-m comment --comment one -m comment --odd", IN, True),
    ("-i +", BARE, True),
    ("-m tcp --dport 80", replace(IN, protocol="udp"), False),
    ("-m mark --mark x", IN, None),
    ("-m iprange --src-range nonsense", IN, None),
    # a match that fails decides, whatever is not known of others
    ("-m set --match-set hosts src -m udp --dport 1", IN, False),
    ("-m set --match-set hosts src -m state --state NEW", IN, None),
]


@pytest.mark.parametrize(
    ("text", "packet", "expected"),
    [
        pytest.param(text, packet, expected, id=f"{text} ({number})")
        for number, (text, packet, expected) in enumerate(CASES)
    ],
)
def test_matches_as_the_kernel_does(
    text: str, packet: Packet, expected: object
) -> None:
    """Yes, no, or it can't be known."""
    assert holds(text, packet) is expected


@pytest.mark.parametrize(
    "text", [text for text, _, expected in CASES if expected is None]
)
def test_says_why_it_can_not_know(text: str) -> None:
    """Every undecided match has a reason to show."""
    (packet,) = (p for t, p, e in CASES if t == text and e is None)
    finding, doubts = examine(parse_rule(split_words(text)), View(packet))

    assert finding.why
    assert all(doubt.why for doubt in doubts)


@pytest.mark.parametrize(
    ("text", "packet"), [(text, packet) for text, packet, e in CASES if e is False]
)
def test_says_why_it_does_not_match(text: str, packet: Packet) -> None:
    """Every rule that does not match has a reason to show."""
    finding, _ = examine(parse_rule(split_words(text)), View(packet, mark=packet.mark))

    assert finding.why


NATIVE = [
    pytest.param(
        OwnerUid(5, negated=True), IN, False, id="no socket, not even negated"
    ),
    pytest.param(OwnerUid(5, negated=True), OUT, True, id="another owner"),
    pytest.param(Family(IPV6), IN, False, id="of the other version"),
    pytest.param(Family(IPV6, negated=True), IN, True, id="not of the other version"),
    pytest.param(Sources(OWN[:1], negated=True), IN6, False, id="asks for IPv4 first"),
    pytest.param(Sources(OWN[:1], negated=True), IN, True, id="not in the set"),
    pytest.param(Destinations(OWN[:1]), IN, True, id="in the set"),
    pytest.param(TcpPorts(()), replace(IN, protocol="udp"), False, id="tcp dport"),
    pytest.param(
        TcpPorts((), negated=True), replace(IN, protocol="udp"), False, id="not dport"
    ),
    pytest.param(TcpPorts((), negated=True), IN, True, id="tcp dport !="),
]


@pytest.mark.parametrize(("match", "packet", "expected"), NATIVE)
def test_matches_as_nf_tables_does(
    match: OwnerUid | Family | Sources | Destinations | TcpPorts,
    packet: Packet,
    expected: object,
) -> None:
    """In native tables a match implies what it needs, negated or not."""
    finding, _ = examine(Rule((match,), None), View(packet, native=True))

    assert finding.holds is expected


def test_marks_know_their_bits() -> None:
    """What was set is known, the rest is not."""
    mark = Mark().changed(0x4000, 0x4000)

    assert mark.equals(0x4000, 0x4000) is True
    assert mark.equals(0, 0x4000) is False
    assert mark.equals(0x4000, 0xFFFFFFFF) is None
    assert mark.equals(0, 0xFFFFFFFF) is False
    assert mark.changed(1, 0xFFFFFFFF) == Mark(1, 0xFFFFFFFF)
