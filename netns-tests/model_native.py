"""Random tables of nftables with chains of others, in the words of nft."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import model_packets as model
from hypothesis import strategies as st

from proxyinit.explain.packet import Packet
from proxyinit.rules import IPV4, IPV6

if TYPE_CHECKING:
    from proxyinit.rules import Version

HEADS = {
    "PREROUTING": "type nat hook prerouting priority -100; policy accept;",
    "OUTPUT": "type nat hook output priority -100; policy accept;",
}


def one_of(*texts: str) -> st.SearchStrategy[str]:
    """One of the texts as it is."""
    return st.sampled_from(texts)


ids = st.sampled_from(model.IDS).map(str)
spans = st.builds(
    lambda a, b: f"{min(a, b)}-{max(a, b)}",
    st.sampled_from(model.IDS),
    st.sampled_from(model.IDS),
)
whose = ids | st.lists(ids, min_size=1, max_size=3, unique=True).map(
    lambda some: f"{{ {', '.join(some)} }}"
)
port_words = st.one_of(
    model.any_ports.map(str),
    model.port_ranges().map(lambda r: f"{r.low}-{max(r.low + 1, r.high)}"),
    st.lists(model.any_ports.map(str), min_size=1, max_size=4, unique=True).map(
        lambda some: f"{{ {', '.join(some)} }}"
    ),
).filter(lambda words: "65536" not in words)
equal = one_of("", "", "!= ")


@cache
@st.composite
def of_version(draw: st.DrawFn, version: Version) -> str:
    """A match that packets of one version alone can meet."""
    network = draw(model.subnets(version, least=1))
    word = "ip" if version == IPV4 else "ip6"
    side = draw(one_of("saddr", "saddr", "daddr", "daddr", "nfproto"))
    if side == "nfproto":
        return f"meta nfproto ipv{version}"
    return f"{word} {side} {draw(equal)}{network}"


port_matches = st.builds(
    "{} {} {}{}".format,
    one_of("tcp", "tcp", "udp"),
    one_of("dport", "dport", "sport"),
    equal,
    port_words,
)
others = st.one_of(
    one_of(
        "ct state new",
        "ct state established,related",
        "ct state != new",
        "meta mark 0x1",
    ),
    one_of("meta mark & 0x4000 == 0x4000", "meta mark != 0x0"),
    one_of("fib daddr type local", "fib daddr type != local", "fib saddr type local"),
    one_of('iifname "eth0"', 'oifname != "lo"', 'oifname { "lo", "eth1" }'),
    one_of('oifname "eth*"', 'iifname != "eth*"'),
)
owners = st.builds("meta {} {}{}".format, one_of("skuid", "skgid"), equal, whose)
unknowable = one_of("limit rate 1000/second", "numgen random mod 2 0")


@st.composite
def rules(draw: st.DrawFn, targets: tuple[str, ...]) -> str:
    """A rule that nft takes: its matches don't contradict each other."""
    version = draw(st.sampled_from((None, *model.VERSIONS)))
    protocol = draw(one_of("", "", "tcp", "tcp", "udp", "{ tcp, udp }"))
    words = [f"meta l4proto {protocol}"] if protocol else []
    kinds = [others, owners, *([of_version(version)] * 2 if version else [])]
    words += [draw(st.one_of(*kinds)) for _ in range(draw(st.integers(0, 2)))]
    if protocol in ("tcp", "udp") and draw(st.booleans()):
        words.append(f"{protocol} dport {draw(equal)}{draw(port_words)}")
    if not protocol and draw(st.integers(0, 3)) == 0:
        words.append(draw(port_matches))
    if draw(st.integers(0, 14)) == 0:
        words.append(draw(unknowable))
    # Said twice, a match on the version is listed by nft 1.0.6 as something else
    # now and then, from one listing of the same rules to the next.
    words = [*dict.fromkeys(words), "counter"]
    return " ".join([*words, draw(verdicts(targets, protocol, version))]).strip()


@cache
def verdicts(
    targets: tuple[str, ...], protocol: str, version: Version | None
) -> st.SearchStrategy[str]:
    """A verdict, a mark, or nothing."""
    plain = ["", "return", "accept", "meta mark set 0x1"]
    plain += [f"{how} {name}" for name in targets for how in ("jump", "jump", "goto")]
    kinds = [st.sampled_from(plain)] * 2
    if protocol:
        kinds.append(model.ports.map("redirect to :{}".format))
    if protocol and version != IPV6:
        own = model.own_addresses(IPV4)
        kinds.append(own.map("dnat ip to {}".format))
        kinds.append(st.builds("dnat ip to {}:{}".format, own, model.ports))
    if protocol and version != IPV4:
        own = model.own_addresses(IPV6)
        kinds.append(own.map("dnat ip6 to {}".format))
        kinds.append(st.builds("dnat ip6 to [{}]:{}".format, own, model.ports))
    return st.one_of(*kinds)


@st.composite
def tables(draw: st.DrawFn) -> str:
    """A whole table of family inet, in place of the one that was there."""
    inner = [f"mesh-{n}" for n in range(draw(st.integers(0, 4)))]
    chains = []
    for name in [*reversed(inner), *HEADS]:  # a chain is known before it is led to
        targets = tuple(inner if name in HEADS else inner[inner.index(name) + 1 :])
        body = draw(st.lists(rules(targets), min_size=1, max_size=7))
        lines = [HEADS[name]] if name in HEADS else []
        chains.append(f"chain {name} {{\n" + "\n".join([*lines, *body]) + "\n}")
    fresh = "add table inet proxy_init\ndelete table inet proxy_init\n"
    return f"{fresh}table inet proxy_init {{\n" + "\n".join(chains) + "\n}\n"


@st.composite
def questions(draw: st.DrawFn) -> tuple[str, list[Packet]]:
    """A table and packets."""
    return draw(tables()), draw(model.batches())
