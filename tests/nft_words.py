"""Words of nft in every version, and the values that they spell."""

from __future__ import annotations

from proxyinit.config import parse_ports
from proxyinit.intervals import merge_ports
from proxyinit.nft_rule import split_words
from proxyinit.rules import RETURN, Extension, Protocol, TcpPorts, Verdict, redirect_to

TCP = Protocol("tcp")


def ports(*texts: str, negated: bool = False) -> TcpPorts:
    return TcpPorts(merge_ports(map(parse_ports, texts)), negated)


def words(text: str) -> Extension:
    return Extension("nft", tuple(split_words(text)))


UNKNOWN = [
    "ct state established,related",
    "ct original ip daddr 10.0.0.1",
    "ct status dnat",
    "meta skuid { 0, 2102 }",
    'oif "lo"',
    "tcp dport @ports",
    "tcp dport ssh",
    "ip saddr 10.0.0.1/8",
    "ip saddr 10.0.0.1-10.0.0.0",
    "ip saddr . tcp dport { 10.0.0.1 . 80 }",
    "ip saddr & 255.0.0.255 == 10.0.0.1",
    "ip saddr != 0.0.0.0/0",
    "th dport 80",
    "udp dport 53",
    "meta l4proto . th dport { tcp . 53 }",
    "meta l4proto and 3 == 2",
    "meta l4proto { tcp, udp } th dport 53",
    "meta mark and 0xff == 0x1",
    'fib daddr . iif type local log prefix "accept { drop "',
    "limit rate 10/second burst 5 packets",
    'iifname "eth+"',
    r'iifname "eth\\*"',
    "numgen random mod 2 < 1",
    "meta nfproto 7",
    "socket cgroupv2 level 1 system.slice",
]
VERDICTS = [
    ("accept", Verdict("ACCEPT")),
    ("drop", Verdict("DROP")),
    ("return", RETURN),
    ("jump OTHER", Verdict("OTHER")),
    ("goto OTHER", Verdict("OTHER", goto=True)),
    ("redirect", Verdict("REDIRECT")),
    ("redirect to :4143", redirect_to(4143)),
    ("redirect to :1-9", Verdict("REDIRECT", ("redirect", "to", ":1-9"))),
    (
        "redirect to :4143 random",
        Verdict("REDIRECT", ("redirect", "to", ":4143", "random")),
    ),
    ("masquerade", Verdict("MASQUERADE")),
    ("dnat to 10.0.0.1", Verdict("DNAT", ("--to-destination", "10.0.0.1"))),
    ("dnat ip to 10.0.0.1:80", Verdict("DNAT", ("--to-destination", "10.0.0.1:80"))),
    ("dnat ip6 to [fd00::1]:80", Verdict("DNAT", ("--to-destination", "[fd00::1]:80"))),
    ("dnat ip6 to fd00::1", Verdict("DNAT", ("--to-destination", "fd00::1"))),
    (
        "dnat ip to ip saddr map { 1.1.1.1 : 2.2.2.2 }",
        Verdict(
            "DNAT",
            ("dnat", "ip", "to", "ip", "saddr", "map", "{ 1.1.1.1 : 2.2.2.2 }"),
        ),
    ),
    ("snat to 10.0.0.1", Verdict("SNAT", ("snat", "to", "10.0.0.1"))),
    ("queue to 3", Verdict("NFT", ("queue", "to", "3"))),
    ("reject with tcp reset", Verdict("NFT", ("reject", "with", "tcp", "reset"))),
    ("jump ACCEPT", Verdict("NFT", ("jump", "ACCEPT"))),
    ("jump { accept }", Verdict("NFT", ("jump", "{ accept }"))),
    (
        "meta l4proto vmap { udp : accept }",
        Verdict("NFT", ("meta", "l4proto", "vmap", "{ udp : accept }")),
    ),
    (
        "tcp dport vmap { 80 : accept }",
        Verdict("NFT", ("tcp", "dport", "vmap", "{ 80 : accept }")),
    ),
]  # fmt: skip
