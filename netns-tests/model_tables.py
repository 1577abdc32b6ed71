"""Random nat tables with chains of others, in the words of iptables-restore."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import model_packets as model
from hypothesis import strategies as st

from proxyinit.explain.packet import number
from proxyinit.rules import IPV4

if TYPE_CHECKING:
    from proxyinit.explain.packet import Packet
    from proxyinit.rules import Version


@dataclass(frozen=True)
class Place:
    """Where a rule is to stand: what may be asked and done there.

    `outbound` chains are reached from OUTPUT alone; `builtin` ones are the kernel's.
    """

    version: Version
    builtin: str
    targets: tuple[str, ...]
    outbound: bool


@cache
def negated(option: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """The option, or its negation."""
    return st.builds(
        lambda text, no: f"! {text}" if no else text, option, st.booleans()
    )


@cache
def subnets(version: Version) -> st.SearchStrategy[str]:
    """A network of that version, in which packets' addresses lie now and then."""
    return model.subnets(version, least=1).map(str)


ranges = model.port_ranges().map(str)
lists = st.lists(ranges, min_size=1, max_size=6).map(",".join)


@cache
@st.composite
def address_ranges(draw: st.DrawFn, version: Version) -> str:
    """Two addresses, the lower one first."""
    pair = draw(st.lists(model.addresses(version), min_size=2, max_size=2))
    low, high = sorted(pair, key=number)
    return f"{low}-{high}"


@cache
@st.composite
def masked(draw: st.DrawFn, version: Version) -> str:
    """An address with a mask that is no prefix."""
    address = draw(model.addresses(version))
    masks = ("255.0.255.0", "0.0.0.3", "255.255.0.254")
    if version != IPV4:
        masks = ("ffff::ffff", "::3", "ffff:ffff::fffe")
    return f"{address}/{draw(st.sampled_from(masks))}"


# === matches ===

flag_words = st.sampled_from(
    ("FIN,SYN,RST,ACK SYN", "SYN,ACK SYN,ACK", "ALL NONE", "ACK ACK")
)
protocols = st.sampled_from(("", "", "tcp", "tcp", "tcp", "udp", "! tcp", "50"))


@cache
def with_ports(protocol: str) -> st.SearchStrategy[str]:
    """Matches on the ports of a protocol."""
    own = st.one_of(
        *(negated(ranges.map(f"--{side} {{}}".format)) for side in ("sport", "dport"))
    ).map(f"-m {protocol} {{}}".format)
    several = st.one_of(
        *(
            negated(lists.map(f"--{side} {{}}".format))
            for side in ("sports", "dports", "ports")
        )
    ).map("-m multiport {}".format)
    flags = negated(flag_words.map("--tcp-flags {}".format)).map("-m tcp {}".format)
    return st.one_of(own, several, *([flags] if protocol == "tcp" else []))


@cache
def addresses(version: Version) -> st.SearchStrategy[str]:
    """Matches on addresses."""
    networks = st.one_of(
        *(negated(subnets(version).map(f"-{side} {{}}".format)) for side in "sd")
    )
    masks = st.one_of(
        *(negated(masked(version).map(f"-{side} {{}}".format)) for side in "sd")
    )
    between = st.one_of(
        *(
            negated(address_ranges(version).map(f"--{side}-range {{}}".format))
            for side in ("src", "dst")
        )
    ).map("-m iprange {}".format)
    types = st.sampled_from(("LOCAL", "MULTICAST", "UNICAST"))
    typed = st.one_of(
        *(negated(types.map(f"--{side}-type {{}}".format)) for side in ("src", "dst"))
    ).map("-m addrtype {}".format)
    return st.one_of(networks, networks, masks, between, typed)


@cache
def interfaces(place: Place) -> st.SearchStrategy[str]:
    """Matches on interfaces, as far as the tool takes them there."""
    names = st.sampled_from(("lo", "eth0", "eth+", "eth1", "l+", "lo0"))
    sides = [s for s in "io" if s != _NO_SIDE.get(place.builtin)]
    return st.one_of(*(negated(names.map(f"-{side} {{}}".format)) for side in sides))


_NO_SIDE = {"PREROUTING": "o", "OUTPUT": "i"}

_spans = st.lists(st.sampled_from(model.IDS), min_size=2, max_size=2).map(
    lambda pair: f"{min(pair)}-{max(pair)}"
)
_whose = st.sampled_from(model.IDS).map(str) | _spans
owners = st.one_of(
    negated(_whose.map("--uid-owner {}".format)),
    negated(_whose.map("--gid-owner {}".format)),
    negated(st.just("--socket-exists")),
).map("-m owner {}".format)

states = st.one_of(
    negated(
        st.sampled_from(("NEW", "RELATED,ESTABLISHED", "INVALID", "NEW,RELATED")).map(
            "--ctstate {}".format
        )
    ),
    st.sampled_from(("--ctproto 6", "! --ctproto 17", "--ctdir ORIGINAL")),
    ranges.map("--ctorigdstport {}".format),
).map("-m conntrack {}".format)

mark_words = st.sampled_from(("0x0", "0x1", "0x1/0x1", "0x4000/0x4000", "0x0/0xff"))
marks = negated(mark_words.map("--mark {}".format)).map("-m mark {}".format)

unknowable = st.sampled_from(
    (
        "-m statistic --mode random --probability 0.50000000000",
        "-m limit --limit 1000/sec --limit-burst 10",
        "-m length --length 0:64",
        "-m connmark --mark 0x0",
        "-m recent --rcheck --name seen --mask {mask} --rsource",
    )
)

texts = st.text("ab \"'\\-#", min_size=1, max_size=12)


def quoted(text: str) -> str:
    """A comment's text for iptables-restore."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("'", "\\'")
    return f'-m comment --comment "{escaped}"'


# === rules ===


@cache
@st.composite
def rules(draw: st.DrawFn, place: Place) -> str:
    """A rule that the tools and the kernel take at its place."""
    protocol = draw(
        st.sampled_from(("", "", "tcp", "tcp", "tcp", "udp", "! tcp", "50"))
    )
    negation = "! " if protocol.startswith("!") else ""
    words = [f"{negation}-p {protocol.removeprefix('! ')}"] if protocol else []
    kinds = [addresses(place.version), interfaces(place), states, marks]
    if protocol in ("tcp", "udp"):
        kinds += [with_ports(protocol)] * 3
    if place.outbound:
        kinds += [owners] * 2
    if draw(st.integers(0, 14)) == 0:
        mask = "255.255.255.255" if place.version == IPV4 else "ffff:" * 7 + "ffff"
        words.append(draw(unknowable).format(mask=mask))
    chosen = draw(st.lists(st.sampled_from(kinds), max_size=3))
    # An option must not stand there twice.
    words += [draw(kind) for kind in dict.fromkeys(chosen)]
    if draw(st.booleans()):
        words.append(quoted(draw(texts)))
    return " ".join([*words, draw(actions(place, protocol))]).strip()


@cache
def actions(place: Place, protocol: str) -> st.SearchStrategy[str]:
    """A target, or none."""
    plain = ["", "-j RETURN", "-j ACCEPT", "-j LOG", "-j MARK --set-xmark 0x1/0x1"]
    plain += ["-j MARK --set-xmark 0x4000/0xffffffff", "-j NFLOG --nflog-group 5"]
    plain += [f"-{how} {name}" for name in place.targets for how in "jjg"]
    kinds = [st.sampled_from(plain), rewrites(place, protocol)]
    return st.one_of(*kinds)


@cache
def rewrites(place: Place, protocol: str) -> st.SearchStrategy[str]:
    """REDIRECT or DNAT; to ports only where the protocol has some."""
    own = model.own_addresses(place.version)
    there = own
    if place.outbound:
        there = own | model.world_addresses(place.version)
    if protocol not in ("tcp", "udp"):
        return st.just("-j REDIRECT") | there.map("-j DNAT --to-destination {}".format)
    form = "{}:{}" if place.version == IPV4 else "[{}]:{}"
    return st.one_of(
        model.ports.map("-j REDIRECT --to-ports {}".format),
        st.just("-j REDIRECT"),
        st.just("-j REDIRECT --to-ports 80-81"),
        there.map("-j DNAT --to-destination {}".format),
        st.builds(form.format, there, model.ports).map(
            "-j DNAT --to-destination {}".format
        ),
    )


# === tables ===


@st.composite
def tables(draw: st.DrawFn, version: Version) -> str:
    """What iptables-restore takes for a whole nat table."""
    inner = [f"OUT-{n}" for n in range(draw(st.integers(0, 3)))]
    shared = [f"KUBE-{n}" for n in range(draw(st.integers(0, 3)))]
    places = {
        "PREROUTING": Place(version, "PREROUTING", tuple(shared), outbound=False),
        "OUTPUT": Place(version, "OUTPUT", (*inner, *shared), outbound=True),
    }
    order = [*inner, *shared]
    for at, name in enumerate(order):
        targets = tuple(order[at + 1 :])
        places[name] = Place(version, "", targets, outbound=name in inner)
    lines = ["*nat", *(f":{name} - [0:0]" for name in order)]
    for name, place in places.items():
        found = draw(st.lists(rules(place), min_size=1, max_size=7))
        lines += [f"-A {name} {rule}" for rule in found]
    return "\n".join([*lines, "COMMIT", ""])


@st.composite
def versioned(draw: st.DrawFn) -> tuple[Version, str]:
    """A table and its version."""
    version = draw(model.versions)
    return version, draw(tables(version))


@st.composite
def questions(draw: st.DrawFn) -> tuple[Version, str, list[Packet]]:
    """A table and packets of its version."""
    version, table = draw(versioned())
    return version, table, draw(model.batches(version=version))
