"""What a namespace holds, asked of the tools of each backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyinit.backend import NFTABLES, PLACES, program_name
from proxyinit.config import RedirectConfig
from proxyinit.iptables_save import parse
from proxyinit.lab.namespace import Namespace
from proxyinit.nft_list import parse as parse_listing
from proxyinit.plan import plan, plan_inet
from proxyinit.rules import INET, OUR_TABLE, Ruleset

if TYPE_CHECKING:
    from proxyinit.rules import Version


def versions_of(kind: str) -> tuple[Version, ...]:
    """Whose packets the tables of a backend see: one each for both, or one for all."""
    return tuple(version for place, version in PLACES if place == kind)


def dump(namespace: Namespace, kind: str, version: Version) -> str:
    """The nat table in its tool's words; empty when our native one is not there."""
    if kind == NFTABLES:
        listing = namespace.exec(["nft", "-nnn", "list", "table", "inet", OUR_TABLE])
        return listing.stdout
    save = program_name(kind, version, "-save")
    return namespace.exec([save, "-t", "nat"]).stdout


def live(namespace: Namespace, kind: str, version: Version) -> Ruleset:
    """The nat table; reading one of legacy creates it."""
    text = dump(namespace, kind, version)
    return parse_listing(text) if kind == NFTABLES else parse(text, version)


def planned(config: RedirectConfig, version: Version) -> Ruleset:
    """The table that a configuration asks for."""
    return plan_inet(config, ipv6=True) if version == INET else plan(config, version)
