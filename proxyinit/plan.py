"""From what is wanted to the rules that do it: pure, byte-compatible with upstream.

Chains, order, matches and comments are those of linkerd2-proxy-init 2.4
(contract and seeds); the rules for outbound subnets and for further uids are
ours and stand where a reader of upstream's rules expects them.
"""

from __future__ import annotations

from proxyinit.rules import (
    OUTPUT_CHAIN,
    REDIRECT_CHAIN,
    RETURN,
    Chain,
    Comment,
    Destination,
    OutInterface,
    OwnerGid,
    OwnerUid,
    PortRange,
    Protocol,
    Rule,
    Ruleset,
    Source,
    TcpPort,
    TcpPorts,
    Verdict,
    redirect_to,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from proxyinit.config import RedirectConfig
    from proxyinit.rules import Match, Version

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


def _outbound(config: RedirectConfig, version: Version) -> Iterator[Rule]:
    for uid in config.proxy_uids:
        yield _rule("ignore-proxy-user-id", RETURN, OwnerUid(uid))
    for gid in config.proxy_gids:
        yield _rule("ignore-proxy-group-id", RETURN, OwnerGid(gid))
    yield _rule("ignore-loopback", RETURN, OutInterface("lo"))
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


def _rule(reason: str, verdict: Verdict, *matches: Match) -> Rule:
    return Rule((*matches, Comment(f"proxy-init/{reason}")), verdict)
