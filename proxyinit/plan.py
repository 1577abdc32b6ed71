"""From what is wanted to the rules that do it: pure, byte-compatible with upstream.

Chains, order, matches and comments are those of linkerd2-proxy-init 2.4
(contract and seeds); the rules for outbound subnets and for further uids are
ours and stand where a reader of upstream's rules expects them.
"""

from __future__ import annotations

from proxyinit.intervals import merge_ports, merge_subnets
from proxyinit.rules import (
    INET,
    IPV4,
    IPV6,
    NAT_OUTPUT,
    NAT_PREROUTING,
    OUTPUT_CHAIN,
    REDIRECT_CHAIN,
    RETURN,
    Chain,
    Comment,
    Destination,
    Destinations,
    Family,
    OutInterface,
    OwnerGid,
    OwnerUid,
    PortRange,
    Protocol,
    Rule,
    Ruleset,
    Source,
    Sources,
    TcpPort,
    TcpPorts,
    Verdict,
    redirect_to,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from proxyinit.config import RedirectConfig
    from proxyinit.rules import Match, Subnet, Version

MULTIPORT_SLOTS = 15
"""XT_MULTI_PORTS of the kernel's xt_multiport: a range takes two slots."""


def plan(config: RedirectConfig, version: Version) -> Ruleset:
    """The nat table that `config` asks for: our chains and the jumps to them."""
    jump_in = _rule("install-proxy-init-prerouting", Verdict(REDIRECT_CHAIN))
    jump_out = _rule("install-proxy-init-output", Verdict(OUTPUT_CHAIN))
    return Ruleset(
        version,
        (
            Chain("PREROUTING", (jump_in,)),
            Chain("OUTPUT", (jump_out,)),
            Chain(REDIRECT_CHAIN, tuple(_inbound(config, version))),
            Chain(OUTPUT_CHAIN, tuple(_outbound(config, version))),
        ),
    )


def _inbound(config: RedirectConfig, version: Version) -> Iterator[Rule]:
    tcp = Protocol("tcp")
    yield from _ignored_ports(config.inbound_ports_to_ignore)
    for subnet in config.inbound_subnets_to_ignore:
        if subnet.version == version:
            # A zero-length prefix is every address: the kernel keeps no match.
            where = (Source(subnet),) if subnet.prefix else ()
            yield _rule(f"ignore-subnet-{subnet}", RETURN, *where)
    to_proxy = redirect_to(config.inbound_port)
    if not config.ports_to_redirect:
        yield _rule("redirect-all-incoming-to-proxy-port", to_proxy, tcp)
    for port in config.ports_to_redirect:
        reason = f"redirect-port-{port}-to-proxy-port"
        yield _rule(reason, to_proxy, tcp, TcpPort(PortRange(port, port)))


def _local(config: RedirectConfig) -> Iterator[Rule]:
    """What leaves as it is because of who sends it, or because it stays here."""
    for uid in config.proxy_uids:
        yield _rule("ignore-proxy-user-id", RETURN, OwnerUid(uid))
    for gid in config.proxy_gids:
        yield _rule("ignore-proxy-group-id", RETURN, OwnerGid(gid))
    yield _rule("ignore-loopback", RETURN, OutInterface("lo"))


def _outbound(config: RedirectConfig, version: Version) -> Iterator[Rule]:
    yield from _local(config)
    yield from _ignored_ports(config.outbound_ports_to_ignore)
    for subnet in config.outbound_subnets_to_ignore:
        if subnet.version == version:
            where = (Destination(subnet),) if subnet.prefix else ()
            yield _rule(f"ignore-subnet-{subnet}", RETURN, *where)
    to_proxy = redirect_to(config.outbound_port)
    yield _rule("redirect-all-outgoing-to-proxy-port", to_proxy, Protocol("tcp"))


def _ignored_ports(ranges: Iterable[PortRange]) -> Iterator[Rule]:
    for group in pack_multiport(ranges):
        reason = f"ignore-port-{','.join(map(str, group))}"
        yield _rule(reason, RETURN, Protocol("tcp"), TcpPorts(group))


def pack_multiport(ranges: Iterable[PortRange]) -> Iterator[tuple[PortRange, ...]]:
    """Groups of at most 15 slots, in the order given, as upstream packs them."""
    group: list[PortRange] = []
    used = 0
    for ports in ranges:
        slots = 1 if ports.low == ports.high else 2
        if used + slots > MULTIPORT_SLOTS:
            yield tuple(group)
            group, used = [], 0
        group.append(ports)
        used += slots
    if group:
        yield tuple(group)


# === nftables: one table for both IP versions, sets of any length ===


MAX_COMMENT = 128
"""Longest comment that nft takes (NFTNL_UDATA_COMMENT_MAXLEN)."""


def plan_inet(config: RedirectConfig, *, ipv6: bool) -> Ruleset:
    """The native table that `config` asks for: `plan`'s chains, one rule for a list.

    Without `ipv6` the jumps are for IPv4 alone.
    """
    guard = () if ipv6 else (Family(IPV4),)
    versions: tuple[Version, ...] = (IPV4, IPV6) if ipv6 else (IPV4,)
    jump_in = _rule("install-proxy-init-prerouting", Verdict(REDIRECT_CHAIN), *guard)
    jump_out = _rule("install-proxy-init-output", Verdict(OUTPUT_CHAIN), *guard)
    inbound = tuple(_inbound_inet(config, versions))
    outbound = tuple(_outbound_inet(config, versions))
    return Ruleset(
        INET,
        (
            Chain("PREROUTING", (jump_in,), "ACCEPT", NAT_PREROUTING),
            Chain("OUTPUT", (jump_out,), "ACCEPT", NAT_OUTPUT),
            Chain(REDIRECT_CHAIN, inbound),
            Chain(OUTPUT_CHAIN, outbound),
        ),
    )


def _inbound_inet(
    config: RedirectConfig, versions: tuple[Version, ...]
) -> Iterator[Rule]:
    yield from _ignored_set(config.inbound_ports_to_ignore)
    subnets = config.inbound_subnets_to_ignore
    yield from _ignored_subnets(subnets, versions, Sources)
    to_proxy = redirect_to(config.inbound_port)
    tcp = Protocol("tcp")
    if config.ports_to_redirect:
        ports = merge_ports([PortRange(p, p) for p in config.ports_to_redirect])
        which = _listed("port-", ports) or f"{len(ports)}-ports"
        yield _rule(f"redirect-{which}-to-proxy-port", to_proxy, tcp, TcpPorts(ports))
    else:
        yield _rule("redirect-all-incoming-to-proxy-port", to_proxy, tcp)


def _outbound_inet(
    config: RedirectConfig, versions: tuple[Version, ...]
) -> Iterator[Rule]:
    yield from _local(config)
    yield from _ignored_set(config.outbound_ports_to_ignore)
    subnets = config.outbound_subnets_to_ignore
    yield from _ignored_subnets(subnets, versions, Destinations)
    to_proxy = redirect_to(config.outbound_port)
    yield _rule("redirect-all-outgoing-to-proxy-port", to_proxy, Protocol("tcp"))


def _ignored_set(ranges: Iterable[PortRange]) -> Iterator[Rule]:
    if ports := merge_ports(ranges):
        which = _listed("port-", ports) or f"{len(ports)}-port-ranges"
        yield _rule(f"ignore-{which}", RETURN, Protocol("tcp"), TcpPorts(ports))


def _ignored_subnets(
    subnets: Iterable[Subnet],
    versions: tuple[Version, ...],
    kind: type[Sources | Destinations],
) -> Iterator[Rule]:
    for version in versions:
        merged = merge_subnets(s for s in subnets if s.version == version)
        if not merged:
            continue
        which = _listed("subnet-", merged) or f"{len(merged)}-subnets"
        everywhere = merged[0].prefix == 0
        where = Family(version) if everywhere else kind(merged)
        yield _rule(f"ignore-{which}", RETURN, where)


def _listed(what: str, items: Iterable[object]) -> str:
    """All items by name, or nothing when a comment can't hold them."""
    text = what + ",".join(map(str, items))
    return text if len(text) <= MAX_COMMENT - 40 else ""


def _rule(reason: str, verdict: Verdict, *matches: Match) -> Rule:
    return Rule((*matches, Comment(f"proxy-init/{reason}")), verdict)
