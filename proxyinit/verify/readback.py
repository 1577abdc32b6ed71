"""From live rules back to the flags that made them: the inverse of `plan`. Pure.

Reading is lenient: rules of a known shape say what they say wherever they stand,
others say nothing. What does not fit shows when the plan of the configuration read
is held against the same rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from proxyinit.config import RedirectConfig, parse_subnet
from proxyinit.plan import plan, plan_inet
from proxyinit.reconcile import differences, jumps
from proxyinit.rules import (
    INET,
    IPV4,
    IPV6,
    OUR_CHAINS,
    OUTPUT_CHAIN,
    REDIRECT_CHAIN,
    RETURN,
    Comment,
    Destination,
    Destinations,
    Family,
    OwnerGid,
    OwnerUid,
    PortRange,
    Protocol,
    Source,
    Sources,
    Subnet,
    TcpPort,
    TcpPorts,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from proxyinit.rules import Match, Rule, Ruleset, Version

_EVERYWHERE = {IPV4: parse_subnet("0.0.0.0/0"), IPV6: parse_subnet("::/0")}


@dataclass(slots=True)
class _Direction:
    """What the rules of one of our chains say."""

    port: int | None = None
    uids: list[int] = field(default_factory=list)
    gids: list[int] = field(default_factory=list)
    redirected: list[int] = field(default_factory=list)
    ports: list[PortRange] = field(default_factory=list)
    subnets: list[Subnet] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a namespace should redirect: the flags of an install, as values."""

    config: RedirectConfig
    ipv6: bool

    @property
    def versions(self) -> tuple[Version, ...]:
        """The IP versions that are to be redirected."""
        return (IPV4, IPV6) if self.ipv6 else (IPV4,)

    def table(self, version: Version) -> Ruleset:
        """The nat table that is wanted for a version, or in nftables for both."""
        if version == INET:
            return plan_inet(self.config, ipv6=self.ipv6)
        return plan(self.config, version)


def readback(tables: Mapping[Version, Ruleset]) -> Wanted | None:
    """What the tables of one backend ask for, as near as their rules come to it.

    Where families differ, the one in better order counts. Subnets come from the
    table of their own IP version, IPv4's first. None when no table redirects both
    directions to a port.
    """
    ipv6 = IPV6 in tables or (INET in tables and not _guarded(tables[INET]))
    found = [
        (_oddness(said, version, table), number, said)
        for number, (version, table) in enumerate(tables.items())
        if (said := readback_one(table, ipv6=ipv6))
    ]
    if not found:
        return None
    _, _, lead = min(found, key=lambda candidate: candidate[:2])
    inbound, outbound = (
        tuple(s for t in tables.values() for s in _direction(t.rules(name)).subnets)
        for name in OUR_CHAINS
    )
    values: dict[str, Any] = dict(lead.config.__dict__)
    values["inbound_subnets_to_ignore"] = inbound
    values["outbound_subnets_to_ignore"] = outbound
    return Wanted(RedirectConfig(**values), ipv6)


def _oddness(said: Wanted, version: Version, table: Ruleset) -> int:
    """How far a table is from what an install would have made of it."""
    unowned = not said.config.proxy_uids and not said.config.proxy_gids
    return len(differences(said.table(version), table)) + unowned


def redirected_to(rules: Iterable[Rule]) -> int | None:
    """The port to which the rules of a chain redirect whatever gets that far."""
    return _direction(rules).port


def _guarded(table: Ruleset) -> bool:
    """Whether the jumps of a table for both versions are for IPv4 alone."""
    return any(Family(IPV4) in rule.matches for _, rule in jumps(table))


def readback_one(table: Ruleset, *, ipv6: bool) -> Wanted | None:
    """What one table asks for alone, of subnets those that it has."""
    inbound = _direction(table.rules(REDIRECT_CHAIN))
    outbound = _direction(table.rules(OUTPUT_CHAIN))
    if inbound.port is None or outbound.port is None:
        return None
    config = RedirectConfig(
        inbound.port,
        outbound.port,
        proxy_uids=tuple(outbound.uids),
        proxy_gids=tuple(outbound.gids),
        ports_to_redirect=tuple(inbound.redirected),
        inbound_ports_to_ignore=tuple(inbound.ports),
        outbound_ports_to_ignore=tuple(outbound.ports),
        inbound_subnets_to_ignore=tuple(inbound.subnets),
        outbound_subnets_to_ignore=tuple(outbound.subnets),
    )
    return Wanted(config, ipv6)


def _direction(rules: Iterable[Rule]) -> _Direction:
    """Everything that the rules of one chain say in a shape that `plan` writes."""
    said = _Direction()
    for rule in rules:
        matches = tuple(
            match
            for match in rule.matches
            if not isinstance(match, Comment) and match != Protocol("tcp")
        )
        port = redirect_port(rule)
        if port is not None:
            _note_redirect(said, port, matches)
        elif rule.verdict == RETURN:
            _note_return(said, matches, rule.reason)
    return said


def redirect_port(rule: Rule) -> int | None:
    """The port that a rule redirects to; None when it does anything else."""
    verdict = rule.verdict
    if verdict is None or verdict.target != "REDIRECT" or len(verdict.args) != 2:
        return None
    option, port = verdict.args
    return int(port) if option == "--to-ports" and port.isdigit() else None


def _note_redirect(said: _Direction, port: int, matches: tuple[Match, ...]) -> None:
    match matches:
        case ():
            said.port = said.port or port
        case (TcpPort(negated=False) as only,):
            said.port = said.port or port
            said.redirected += _each_port((only.ports,))
        case (TcpPorts(negated=False) as several,):
            said.port = said.port or port
            said.redirected += _each_port(several.ranges)


def _each_port(ranges: Iterable[PortRange]) -> Iterator[int]:
    for ports in ranges:
        yield from range(ports.low, ports.high + 1)


def _note_return(said: _Direction, matches: tuple[Match, ...], reason: str) -> None:
    match matches:
        case (OwnerUid(negated=False) as owner,):
            said.uids.append(owner.uid)
        case (OwnerGid(negated=False) as group,):
            said.gids.append(group.gid)
        case (TcpPort(negated=False) as only,):
            said.ports.append(only.ports)
        case (TcpPorts(negated=False) as several,):
            said.ports += several.ranges
        case (Source(negated=False) | Destination(negated=False) as single,):
            said.subnets.append(single.subnet)
        case (Sources(negated=False) | Destinations(negated=False) as many,):
            said.subnets += many.subnets
        case (Family(negated=False) as family,) if family.version in _EVERYWHERE:
            said.subnets.append(_EVERYWHERE[family.version])
        case ():  # the kernel keeps no match for "from anywhere"
            said.subnets += _subnet_of_reason(reason)


def _subnet_of_reason(reason: str) -> Iterator[Subnet]:
    text = reason.removeprefix("proxy-init/ignore-subnet-")
    if text != reason and text.endswith("/0"):
        try:
            yield parse_subnet(text)
        except ValueError:
            return  # a comment that somebody wrote by hand


# === as flags ===


def flags(wanted: Wanted) -> list[str]:
    """The flags of proxy-init that ask for a configuration, ready for a shell."""
    config = wanted.config
    given = [
        f"--incoming-proxy-port {config.inbound_port}",
        f"--outgoing-proxy-port {config.outbound_port}",
    ]
    lists: tuple[tuple[str, Iterable[object]], ...] = (
        ("proxy-uid", config.proxy_uids),
        ("proxy-gid", config.proxy_gids),
        ("ports-to-redirect", config.ports_to_redirect),
        ("inbound-ports-to-ignore", map(_dashed, config.inbound_ports_to_ignore)),
        ("outbound-ports-to-ignore", map(_dashed, config.outbound_ports_to_ignore)),
        ("inbound-subnets-to-ignore", config.inbound_subnets_to_ignore),
        ("outbound-subnets-to-ignore", config.outbound_subnets_to_ignore),
    )
    for name, items in lists:
        text = ",".join(map(str, items))
        if text:
            given.append(f"--{name} {text}")
    return given if wanted.ipv6 else [*given, "--ipv6=false"]


def _dashed(ports: PortRange) -> str:
    return str(ports).replace(":", "-")
