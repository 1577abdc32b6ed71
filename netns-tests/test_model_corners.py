"""Every match, rule by rule: what `explain` says of a packet the kernel has counted.

One chain holds them all, none of them takes the packet, so each is tried for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import model_packets as model
import pytest

from proxyinit.backend import program_name
from proxyinit.explain.packet import NO_MARK, Mark, Packet
from proxyinit.explain.tables import follow
from proxyinit.explain.trace import Try
from proxyinit.iptables_save import parse
from proxyinit.lab.crossroads import OWN, Crossroads
from proxyinit.nft_list import parse as parse_nft
from proxyinit.rules import IPV4, IPV6, Ruleset
from proxyinit.runner import SystemRunner

if TYPE_CHECKING:
    from proxyinit.rules import Version

RUNNER = SystemRunner()

# === packets ===

IN = Packet(
    version=IPV4,
    source="192.168.7.9",
    source_port=20000,
    destination=OWN[4][0],
    destination_port=8080,
    outbound=False,
    interface="eth0",
    mark=NO_MARK,
    own=model.OWN_SUBNETS,
)
OUT = replace(
    IN,
    source=OWN[4][0],
    destination="203.0.113.255",
    outbound=True,
    uid=1000,
    gid=1001,
)
PACKETS = (
    IN,
    replace(IN, protocol="udp", destination_port=53),
    replace(IN, destination=OWN[4][1], source="172.16.255.1", source_port=29999),
    OUT,
    replace(OUT, uid=0, gid=0),
    replace(OUT, uid=4294967294, gid=4294967294, mark=Mark(0x4001, 0xFFFFFFFF)),
    replace(OUT, protocol="udp", destination_port=53, source_port=25000),
    replace(OUT, destination="127.0.0.2", interface=None),
    replace(OUT, destination="127.0.0.1", source="127.0.0.1", interface=None),
    replace(OUT, destination=OWN[4][2], interface=None, mark=Mark(1, 0xFFFFFFFF)),
)
SIX = {
    "192.168.7.9": "fd00:aaaa::9",
    "172.16.255.1": "2001:db8::ffff",
    "203.0.113.255": "2001:db8:1::1",
    "127.0.0.1": "::1",
    "127.0.0.2": "::1",
    **dict(zip(OWN[4], OWN[6], strict=True)),
}


def of_version(version: int) -> list[Packet]:
    """The packets, in IPv6 with addresses that play the same parts."""
    if version == IPV4:
        return list(PACKETS)
    return [
        replace(
            packet,
            version=IPV6,
            source=SIX[packet.source],
            destination=SIX[packet.destination],
        )
        for packet in PACKETS
    ]


# === matches ===

BOTH = """
-p tcp
! -p tcp
-p udp
-p 6
-p esp
-i eth0
! -i eth0
-i eth+
-i lo
! -i lo
-o eth0
! -o eth0
-o eth+
-o lo
! -o lo
-o l+
-p tcp -m tcp --dport 8080
-p tcp -m tcp ! --dport 8080
-p tcp -m tcp --dport 8081:65535
-p tcp -m tcp --dport 0:8080
-p tcp -m tcp --sport 20000
-p tcp -m tcp --sport 1:19999
-p tcp -m tcp ! --sport 20000:25000 --dport 8080
-p udp -m udp --dport 53
-p udp -m udp ! --sport 25000
-p tcp -m multiport --dports 1,8000:8080,9090
-p tcp -m multiport ! --dports 1,8000:8079,8081
-p tcp -m multiport --sports 20000
-p tcp -m multiport --ports 20000
-p tcp -m multiport ! --ports 1,2,8080
-p udp -m multiport --dports 53
-p udp -m multiport --ports 25000,1
-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN
-p tcp -m tcp ! --tcp-flags SYN,ACK SYN
-p tcp -m tcp --tcp-flags SYN,ACK SYN,ACK
-p tcp -m tcp --tcp-flags ALL SYN
-m addrtype --dst-type LOCAL
-m addrtype ! --dst-type LOCAL
-m addrtype --src-type LOCAL
-m addrtype ! --src-type LOCAL
-m addrtype --dst-type MULTICAST
-m addrtype --dst-type LOCAL --src-type LOCAL
-m conntrack --ctstate NEW
-m conntrack --ctstate RELATED,ESTABLISHED
-m conntrack ! --ctstate INVALID
-m conntrack --ctproto 6
-m conntrack ! --ctproto 6
-m conntrack --ctdir ORIGINAL
-m conntrack --ctdir REPLY
-m conntrack --ctorigsrcport 20000
-m conntrack ! --ctorigdstport 53
-m conntrack --ctreplsrcport 8080
-m conntrack --ctrepldstport 20000
-m conntrack --ctstatus ASSURED
-m conntrack --ctstatus CONFIRMED
-m conntrack ! --ctstatus SEEN_REPLY
-m state --state NEW
-m mark --mark 0x0
-m mark --mark 0x1
-m mark --mark 0x1/0x1
-m mark ! --mark 0x4000/0x4000
-m mark --mark 0x2/0x1
-m comment --comment "all of them"
"""
FOUR = """
-s 192.168.7.0/24
! -s 192.168.7.8/31
-d 10.1.0.2/32
! -d 10.1.0.0/25
-d 203.0.113.254/31
-s 0.0.0.9/0.0.0.255
-d 10.0.0.2/255.0.0.255
! -d 0.0.0.2/0.0.0.3
-f
! -f
-m iprange --src-range 192.168.7.0-192.168.7.9
-m iprange ! --dst-range 203.0.113.0-203.0.113.254
-m addrtype --dst-type UNICAST
-m addrtype --dst-type UNICAST,LOCAL
-m addrtype --dst-type BROADCAST
-m conntrack --ctorigsrc 192.168.0.0/16
-m conntrack --ctorigdst 10.1.0.2
-m conntrack ! --ctreplsrc 203.0.113.0/24
-m conntrack --ctrepldst 172.16.0.0/12
"""
SIXES = """
-s fd00:aaaa::/32
! -s fd00:aaaa::8/127
-d fd00:1::2/128
-s ::9/::ff
! -d fd00::2/ff00::3
-m iprange --src-range fd00:aaaa::-fd00:aaaa::9
-m addrtype --dst-type UNICAST
-m addrtype --dst-type UNICAST,LOCAL
-m conntrack --ctorigsrc fd00::/8
-m conntrack ! --ctreplsrc 2001:db8:1::/48
"""
OWNERS = """
-m owner --uid-owner 1000
-m owner ! --uid-owner 1000
-m owner --uid-owner 0
-m owner --uid-owner 0-999
-m owner ! --uid-owner 1000-4294967294
-m owner --uid-owner 4294967294
-m owner --gid-owner 1001
-m owner ! --gid-owner 0-1000
-m owner --uid-owner 1000 --gid-owner 1001
-m owner --uid-owner 1000 ! --gid-owner 1001
-m owner --socket-exists
-m owner ! --socket-exists
"""
NATIVE = """
meta nfproto ipv4
meta nfproto != ipv4
meta l4proto tcp
meta l4proto != tcp
meta l4proto { tcp, udp }
tcp dport 8080
tcp dport != 8080
tcp dport { 1, 8000-8080 }
tcp dport != { 1, 8000-8079 }
tcp sport 20000
tcp sport != 1-20000
udp dport 53
udp dport != { 53, 54 }
th dport { 53, 8080 }
ip saddr 192.168.7.0/24
ip saddr != 192.168.7.0/24
ip daddr { 10.1.0.2, 203.0.113.255 }
ip daddr != { 10.1.0.2, 203.0.113.255 }
ip daddr 10.1.0.2-10.1.0.100
ip6 saddr fd00:aaaa::/32
ip6 saddr != fd00:aaaa::/32
ip6 daddr { fd00:1::2, ::1 }
meta skuid 1000
meta skuid != 1000
meta skuid { 0, 1000 }
meta skuid != { 0, 1000 }
meta skuid 0-999
meta skuid != 0-999
meta skgid 1001
meta skgid != 1001
oifname "lo"
oifname != "lo"
oifname "eth*"
oifname { "lo", "eth1" }
iifname "eth0"
iifname != "eth0"
iifname { "lo", "eth*" }
ct state new
ct state != new
ct state { related, new }
ct state established,related
ct state established,new
meta mark 0x1
meta mark != 0x1
meta mark & 0x4000 == 0x4000
meta mark { 0x0, 0x4001 }
fib daddr type local
fib daddr type != local
fib saddr type local
"""


@pytest.fixture
def crossroads() -> Iterator[Crossroads]:
    """One pod for all matches."""
    with Crossroads() as made:
        yield made


def compare(
    crossroads: Crossroads,
    table: Ruleset,
    packets: list[Packet],
    listing: list[str],
) -> None:
    """Every rule must have counted each packet that it is said to match."""
    expected: Counter[model.Where] = Counter()
    open_ones: set[model.Where] = set()
    for packet in packets:
        assert not isinstance(crossroads.send(packet), str), packet
        for step in follow(table, packet).steps:
            if isinstance(step, Try):
                where = ("", step.chain, step.number)
                expected[where] += bool(step.matched)
                open_ones |= {where} if step.matched is None else set()
    output = crossroads.pod.run(RUNNER.run, listing).stdout
    seen = model.counted("", output)
    wrong = {
        f"rule {number} of {chain}": (counted, seen["", chain, number])
        for (_, chain, number), counted in expected.items()
        if counted != seen["", chain, number] and ("", chain, number) not in open_ones
    }
    assert not wrong, f"expected and counted: {wrong}\n{output}"
    # Of datagrams nobody knows if they go to a network's broadcast address.
    assert len(open_ones) <= output.count("UNICAST") + output.count("BROADCAST")


def test_matches_of_iptables(
    crossroads: Crossroads, iptables_mode: str, version: Version
) -> None:
    """In PREROUTING and in OUTPUT, as far as the tools take them there."""
    some = BOTH + (FOUR if version == IPV4 else SIXES)
    matches = [line for line in some.splitlines() if line]
    owners = [line for line in OWNERS.splitlines() if line]
    lines = ["*nat", ":BOTH - [0:0]", "-A PREROUTING -j BOTH", "-A OUTPUT -j BOTH"]
    lines += [f"-A BOTH {match}" for match in matches]
    lines += [f"-A OUTPUT {match}" for match in owners]
    text = "\n".join([*lines, "COMMIT", ""])
    restore, save = (
        RUNNER.find(program_name(iptables_mode, version, suffix)) or ""
        for suffix in ("-restore", "-save")
    )
    crossroads.pod.run(RUNNER.run, [restore], text)
    listing = [save, "-c", "-t", "nat"]
    table = parse(crossroads.pod.run(RUNNER.run, listing).stdout, version)

    compare(crossroads, table, of_version(version), listing)


def test_matches_of_nftables(crossroads: Crossroads) -> None:
    """One table for packets of both versions."""
    rules = "\n".join(f"{line} counter" for line in NATIVE.splitlines() if line)
    hooks = [
        f"chain {hook} {{ type nat hook {hook} priority -100; counter jump every; }}"
        for hook in ("prerouting", "output")
    ]
    chains = "\n".join([f"chain every {{\n{rules}\n}}", *hooks])
    text = f"table inet proxy_init {{\n{chains}\n}}\n"
    nft = RUNNER.find("nft") or ""
    crossroads.pod.run(RUNNER.run, [nft, "-f", "-"], text)
    listing = [nft, "-nnn", "list", "table", "inet", "proxy_init"]
    table = parse_nft(crossroads.pod.run(RUNNER.run, listing).stdout)

    compare(crossroads, table, [*of_version(IPV4), *of_version(IPV6)], listing)
