"""What the kernel tells of a namespace by netlink: sockets, addresses, nat hooks.

Everything here asks for the namespace that the calling thread is in, and needs no
privilege but for nf_tables' chains.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

from pyroute2 import DiagSocket, IPRoute
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.nftables.main import NFTables

from proxyinit.facts import Listener, NatHook
from proxyinit.host import read_text

_LISTEN = 1 << 10
_ACCEPTED = 0xFFF & ~(_LISTEN | 1 << 2 | 1 << 3)
"""Masks of TCP states (net/tcp_states.h): what listens, and what was connected, be
it closed again by now; not SYN_SENT and SYN_RECV."""

_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
_NFT_FAMILIES = {1: "inet", 2: "ip", 10: "ip6"}
_HOOKS = {0: "prerouting", 3: "output"}
_DORMANT = 1
"""NFT_TABLE_F_DORMANT (linux/netfilter/nf_tables.h)."""
_LINK_LOCAL = 253
"""RT_SCOPE_LINK (linux/rtnetlink.h); wider scopes have lower numbers."""


def listeners() -> tuple[Listener, ...]:
    """Every TCP socket that listens in this namespace."""
    found = []
    with DiagSocket() as diag:
        for version in _FAMILIES:
            for message in _sockets(diag, version, _LISTEN):
                dual = version == 6 and not message.get("INET_DIAG_SKV6ONLY")
                found.append(
                    Listener(
                        version,
                        message["idiag_src"],
                        message["idiag_sport"],
                        message["idiag_uid"],
                        dual,
                    )
                )
    return tuple(found)


def accepted(port: int, peer: tuple[str, int]) -> int | None:
    """The user of the socket on `port` that is connected with `peer`; None if none.

    A connection that its program has not accepted yet belongs to user 0.
    """
    version = 6 if ":" in peer[0] else 4
    with DiagSocket() as diag:
        # A socket of IPv6 that takes IPv4 shows its peer as ::ffff:a.b.c.d.
        for family in _FAMILIES:
            for message in _sockets(diag, family, _ACCEPTED):
                there = message["idiag_dst"].removeprefix("::ffff:")
                if (
                    message["idiag_sport"] == port
                    and (there, message["idiag_dport"]) == peer
                    and family >= version
                ):
                    return int(message["idiag_uid"])
    return None


def _sockets(diag: Any, version: int, states: int) -> Iterator[Any]:
    try:
        yield from diag.get_sock_stats(family=_FAMILIES[version], states=states)
    except NetlinkError:
        return  # a kernel without this IP version


def addresses() -> tuple[str, ...]:
    """Addresses of interfaces that others can reach: not loopback's, not local ones."""
    found = []
    with IPRoute() as links:
        for message in links.get_addr():
            if message["scope"] < _LINK_LOCAL:
                local = message.get("IFA_LOCAL") or message.get("IFA_ADDRESS")
                found.append(str(local))
    return tuple(found)


def nat_hooks() -> tuple[NatHook, ...] | None:
    """Chains of nf_tables that are asked for nat; None when only root may see them."""
    try:
        with NFTables(nfgen_family=0) as tables:
            chains = list(tables.get_chains())
            dormant = {
                (table["nfgen_family"], table.get("NFTA_TABLE_NAME"))
                for table in (tables.get_tables() if chains else ())
                if table.get("NFTA_TABLE_FLAGS", 0) & _DORMANT
            }
    except (NetlinkError, OSError) as error:
        # A kernel without nf_tables has no chains.
        return None if _errno(error) in (1, 13) else ()
    found = []
    for chain in chains:
        family = _NFT_FAMILIES.get(chain["nfgen_family"])
        declared = chain.get("NFTA_CHAIN_HOOK")
        if not declared or chain.get("NFTA_CHAIN_TYPE") != "nat" or not family:
            continue
        hook = _HOOKS.get(declared.get("NFTA_HOOK_HOOKNUM"))
        if hook:
            names = chain.get("NFTA_CHAIN_TABLE"), chain.get("NFTA_CHAIN_NAME")
            priority = declared.get("NFTA_HOOK_PRIORITY")
            asleep = (chain["nfgen_family"], names[0]) in dormant
            found.append(NatHook(family, *names, hook, priority, asleep))
    return tuple(found)


def _errno(error: Exception) -> int | None:
    if isinstance(error, NetlinkError):
        return int(error.code)
    return error.errno if isinstance(error, OSError) else None


def conntrack() -> tuple[int, int] | None:
    """How many connections are tracked in this namespace, and how many may be."""
    texts = [
        read_text(f"/proc/sys/net/netfilter/nf_conntrack_{name}")
        for name in ("count", "max")
    ]
    try:
        count, limit = (int(text or "") for text in texts)
    except ValueError:
        return None
    return count, limit
