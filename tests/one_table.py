"""One table asked about one packet: both in few words, and the answer."""

from __future__ import annotations

from dataclasses import replace

from proxyinit.explain.packet import NO_MARK, Packet
from proxyinit.explain.tables import explain
from proxyinit.explain.trace import Explanation
from proxyinit.iptables_save import parse
from proxyinit.rules import IPV4, Ruleset

IN = Packet(
    version=IPV4,
    source="10.9.0.1",
    source_port=40000,
    destination="10.1.0.2",
    destination_port=8080,
    outbound=False,
    interface="eth0",
    mark=NO_MARK,
    own=(),
)
OUT = replace(IN, outbound=True, uid=1000, gid=1000)
BARE = Packet(version=IPV4, source="10.9.0.1", destination="10.1.0.2", outbound=False)
"""Nothing but addresses is known."""
BARE_OUT = replace(BARE, outbound=True, source="10.1.0.2", destination="10.9.0.1")


def table(*rules: str, heads: str = "") -> Ruleset:
    """A table whose rules are spelled as in a dump, chains declared by use."""
    return parse("\n".join(["*nat", *heads.split("|"), *rules, "COMMIT", ""]), IPV4)


def told(rules: Ruleset, packet: Packet = IN) -> Explanation:
    """What is told of a packet and one table."""
    return explain([("iptables", rules)], packet)


def ends(rules: Ruleset, packet: Packet = IN) -> tuple[tuple[str, str, int], ...]:
    """Kind, chain and rule of every outcome."""
    return tuple((o.kind, o.chain, o.number) for o in told(rules, packet).outcomes)
