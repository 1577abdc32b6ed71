"""What explain makes of rules in nft's own words, as nft -nnn and nft list them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxyinit.explain.packet import Mark, Packet
from proxyinit.explain.tables import explain
from proxyinit.explain.view import View
from proxyinit.explain.walk import examine
from proxyinit.nft_list import parse_tables
from proxyinit.nft_rule import parse_rule, split_words
from proxyinit.rules import IPV4, Subnet
from tests import one_table
from tests.one_table import BARE, BARE_OUT

IN = replace(one_table.IN, destination_port=53, own=(Subnet(IPV4, "10.1.0.2", 32),))
UDP = replace(IN, protocol="udp")
OUT = replace(
    IN, source="10.1.0.2", destination="10.9.0.1", outbound=True, uid=1000, gid=7
)
MARKED = replace(IN, mark=Mark(0x4001, 0xFFFFFFFF))

CASES = [
    ("udp dport 53", UDP, True),
    ("udp dport 53", IN, False),
    ("udp dport { 1, 50-60 }", UDP, True),
    ("udp dport != { 1, 50-60 }", UDP, False),
    ("udp dport != 53", IN, False),
    ("tcp sport 40000-40001", IN, True),
    ("tcp sport 1", BARE, None),
    ("tcp dport @ports", IN, None),
    ("tcp dport http", IN, None),
    ("th dport 53", IN, True),
    ("th dport 53", replace(IN, protocol="esp"), False),
    ("meta l4proto { 6, 17 }", IN, True),
    ("meta l4proto { tcp, udp } th dport 53", UDP, True),
    ("meta l4proto != { tcp, udp }", IN, False),
    ("meta l4proto { nosuch, udp }", IN, None),
    ("ct state 0x8", IN, True),
    ("ct state new", IN, True),
    ("ct state established,related", IN, False),
    ("ct state != 0x8", IN, False),
    ("ct state { 0x4, 0x8 }", IN, True),
    ("ct state odd", IN, None),
    ("meta mark 0x00000001", IN, False),
    ("meta mark 0x00004001", MARKED, True),
    ("meta mark != 0x00004001", MARKED, False),
    ("meta mark & 0x00004000 == 0x00004000", MARKED, True),
    ("meta mark & 0x00004000 == 0x00004000", BARE, None),
    ("meta mark { 0x1, 0x4001 }", MARKED, True),
    ("ct mark 0x1", IN, None),
    ("meta skuid 1000-2000", OUT, True),
    ("meta skuid { 1, 5-9 }", OUT, False),
    ("meta skuid != { 1, 5-9 }", OUT, True),
    ("meta skuid { 1, 5-9 }", BARE_OUT, None),
    ("meta skuid 1000-2000", BARE_OUT, None),
    ("meta skuid != { 1, 5 }", IN, False),
    ("meta skgid { 6, 7 }", OUT, True),
    ("fib daddr type 2", IN, True),
    ("fib daddr type local", IN, True),
    ("fib daddr type != local", IN, False),
    ("fib daddr type local", BARE, None),
    ("fib saddr type local", IN, False),
    ("fib daddr type 5", IN, None),
    ('oifname { "lo", "eth*" }', OUT, True),
    ('oifname != { "lo", "eth*" }', OUT, False),
    ('oifname { "lo", "wlan0" }', replace(OUT, interface=None), None),
    ('oif "lo"', replace(OUT, interface=None), False),
    ('oif "lo"', replace(OUT, interface=None, destination="127.0.0.1"), True),
    ('iif "eth0"', IN, True),
    ('iif "eth0"', OUT, False),
    ('log prefix "seen" level warn', IN, None),
    ('log prefix "seen" udp dport 53', IN, False),
    ("limit rate 5/second", IN, None),
    ("numgen random mod 2 0", IN, None),
    ("tcp flags 0x2 / 0x2,0x10", IN, None),
    ("ip daddr @hosts", IN, None),
    ("ip daddr @hosts udp dport 53", IN, None),
    ("udp dport 53 ip daddr @hosts", IN, False),
    ("fib daddr . iif type local", IN, None),
    ("tcp dport", IN, None),
]


@pytest.mark.parametrize(
    ("text", "packet", "expected"),
    [
        pytest.param(text, packet, expected, id=f"{text} ({number})")
        for number, (text, packet, expected) in enumerate(CASES)
    ],
)
def test_words_match_as_the_kernel_does(
    text: str, packet: Packet, expected: object
) -> None:
    """Yes, no, or it can't be known, and then why."""
    rule = parse_rule(split_words(f"{text} return"))

    finding, _ = examine(rule, View(packet, native=True, mark=packet.mark))

    assert finding.holds is expected
    assert finding.why or expected


LISTING = """table inet mesh {
	chain nat-output {
		type nat hook output priority -100; policy accept;
		meta mark set 0x00000001
		meta mark 0x00000001 return
		jump redirect-all
	}

	chain redirect-all {
		meta skuid 1337 return
		udp dport 53 redirect to :15053
		tcp dport vmap { 22 : accept }
		meta l4proto tcp redirect to :15001
	}
}
"""


def test_a_mesh_of_others_in_nftables() -> None:
    """Marks that are set are not known, maps may lead anywhere."""
    (table,) = parse_tables(LISTING)
    udp = replace(OUT, protocol="udp")

    of_tcp = explain([("mesh", table.ruleset)], OUT)
    of_udp = explain([("mesh", table.ruleset)], udp)

    kinds = [outcome.kind for outcome in of_tcp.outcomes]
    assert kinds == ["untouched", "unknown", "redirected"]
    assert [o.ports for o in of_udp.outcomes] == [None, (15053, 15053)]
