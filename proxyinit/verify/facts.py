"""What is known of one network namespace: values, gathered elsewhere. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxyinit.rules import OUR_TABLE
from proxyinit.verify.ids import SAME, Ids

if TYPE_CHECKING:
    from typing import TypeAlias

    from proxyinit.rules import Ruleset, Version

    Place: TypeAlias = tuple[str, Version]
    """Where a table is: the kind of backend (`legacy`, `nft`, ...), its version."""


UNSEEN = "only root may see whether there is a nat table"
"""Why a table is not read that may not even be there."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What was read: tables by place, and why others could not be read.

    A place that is in neither has no nat table.
    """

    tables: dict[Place, Ruleset]
    problems: dict[Place, str]


@dataclass(frozen=True, slots=True)
class Listener:
    """A TCP socket that waits for connections, and the user who opened it.

    `dual` when it is an IPv6 socket that takes IPv4 connections as well.
    """

    version: int
    address: str
    port: int
    uid: int
    dual: bool = False

    def hears(self, version: int) -> bool:
        """Whether connections of an IP version can arrive at all."""
        return self.version == version or (self.dual and version == 4)

    @property
    def on_loopback(self) -> bool:
        """Whether only loopback's own addresses are listened on."""
        return self.address == "::1" or self.address.startswith("127.")


@dataclass(frozen=True, slots=True)
class NatHook:
    """A chain of nf_tables that the kernel asks for nat, at one of its hooks.

    `family` is nf_tables' name: ip, ip6 or inet. Lower priorities are asked first; a
    `dormant` table's chains are not asked at all.
    """

    family: str
    table: str
    chain: str
    hook: str
    priority: int
    dormant: bool = False

    def __str__(self) -> str:
        return f"table {self.family} {self.table}, chain {self.chain}"

    @property
    def of_others(self) -> bool:
        """Whether it is neither iptables-nft's nor ours."""
        known = (("ip", "nat"), ("ip6", "nat"), ("inet", OUR_TABLE))
        return (self.family, self.table) not in known


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A namespace: its tables, and what rules alone don't tell.

    `ipv6` is whether the kernel speaks it. `addresses` are those of interfaces
    other than loopback that are not link-local. `rivals` are redirections in native
    tables of others, as (table, rule). None stands for what could not be looked at:
    `listeners`, `nat_hooks`, `rivals`, and connection tracking's (count, limit).
    Users are those of the namespace itself; `uids` and `gids` tell them as the
    reader knows them.
    """

    survey: Survey
    ipv6: bool = True
    addresses: tuple[str, ...] = ()
    listeners: tuple[Listener, ...] | None = ()
    nat_hooks: tuple[NatHook, ...] | None = ()
    rivals: tuple[tuple[str, str], ...] | None = ()
    conntrack: tuple[int, int] | None = None
    uids: Ids = SAME
    gids: Ids = SAME
