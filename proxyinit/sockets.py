"""What the kernel tells of a namespace by netlink: sockets, addresses, nat hooks.

Everything here asks for the namespace that the calling thread is in, and needs no
privilege but for nf_tables' chains. Messages are pyroute2's; they go over plain
sockets, as its own bring an event loop each, and there are hundreds of namespaces.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pyroute2.netlink.diag import inet_diag_msg, inet_diag_req
from pyroute2.netlink.nfnetlink.nftsocket import nft_chain_msg, nft_table_msg
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg

from proxyinit.facts import Listener, NatHook
from proxyinit.host import read_text

_ROUTE, _SOCK_DIAG, _NETFILTER = 0, 4, 12
"""Netlink protocols (linux/netlink.h)."""
_GETADDR, _DIAG_BY_FAMILY, _GETTABLE, _GETCHAIN = 22, 20, 0x0A01, 0x0A04
"""Requests of these, in this order, two for netfilter."""
_REQUEST_DUMP = 0x301
_ERROR, _DONE = 2, 3

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


def _dump(protocol: int, kind: int, request: Any, reply: type[Any]) -> list[Any]:
    """All that the kernel has to say to a request; raises OSError when it refuses."""
    request["header"]["type"] = kind
    request["header"]["flags"] = _REQUEST_DUMP
    request.encode()
    found: list[Any] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as link:
        link.send(request.data)
        while True:
            data = link.recv(1 << 18)
            for of_kind, message in _messages(data):
                if of_kind == _DONE:
                    return found
                if of_kind == _ERROR:
                    (number,) = struct.unpack_from("=i", message, 16)
                    raise OSError(-number, os.strerror(-number))
                decoded = reply(message)
                decoded.decode()
                found.append(decoded)


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(type, whole message) of the netlink messages in a datagram."""
    while len(data) >= 16:
        length, kind = struct.unpack_from("=IH", data)
        yield kind, data[:length]
        data = data[(length + 3) & ~3 :]


def listeners() -> tuple[Listener, ...]:
    """Every TCP socket that listens in this namespace."""
    return tuple(
        Listener(
            version,
            message["idiag_src"],
            message["idiag_sport"],
            message["idiag_uid"],
            version == 6 and not message.get("INET_DIAG_SKV6ONLY"),
        )
        for version in _FAMILIES
        for message in _sockets(version, _LISTEN)
    )


def accepted(port: int, peer: tuple[str, int]) -> bool:
    """Whether a socket on `port` is connected with `peer`, accepted yet or not."""
    # A socket of IPv6 that takes IPv4 shows its peer as ::ffff:a.b.c.d.
    return any(
        message["idiag_sport"] == port
        and message["idiag_dst"].removeprefix("::ffff:") == peer[0]
        and message["idiag_dport"] == peer[1]
        for version in _FAMILIES
        for message in _sockets(version, _ACCEPTED)
    )


def _sockets(version: int, states: int) -> list[Any]:
    request = inet_diag_req()
    request["sdiag_family"] = _FAMILIES[version]
    request["sdiag_protocol"] = socket.IPPROTO_TCP
    request["idiag_states"] = states
    try:
        return _dump(_SOCK_DIAG, _DIAG_BY_FAMILY, request, inet_diag_msg)
    except OSError as error:
        if error.errno == errno.ENOENT:  # a kernel without this IP version
            return []
        raise


def addresses() -> tuple[str, ...]:
    """Addresses of interfaces that others can reach: not loopback's, not local ones."""
    return tuple(
        str(message.get("IFA_LOCAL") or message.get("IFA_ADDRESS"))
        for message in _dump(_ROUTE, _GETADDR, ifaddrmsg(), ifaddrmsg)
        if message["scope"] < _LINK_LOCAL
    )


def nat_hooks() -> tuple[NatHook, ...] | None:
    """Chains of nf_tables that are asked for nat; None when only root may see them."""
    try:
        chains = _dump(_NETFILTER, _GETCHAIN, nft_chain_msg(), nft_chain_msg)
        found = tuple(hook for hook in map(_nat_hook, chains) if hook)
        return _with_sleepers(found) if found else ()
    except OSError as error:
        # A kernel without nf_tables has no chains.
        return None if error.errno in (errno.EPERM, errno.EACCES) else ()


def _nat_hook(chain: Any) -> NatHook | None:
    """The chain, if it is one that is asked for nat where we are."""
    declared = chain.get("NFTA_CHAIN_HOOK")
    family = _NFT_FAMILIES.get(chain["nfgen_family"])
    if not declared or not family or chain.get("NFTA_CHAIN_TYPE") != "nat":
        return None
    hook = _HOOKS.get(declared.get("NFTA_HOOK_HOOKNUM"))
    names = chain.get("NFTA_CHAIN_TABLE"), chain.get("NFTA_CHAIN_NAME")
    priority = declared.get("NFTA_HOOK_PRIORITY")
    return NatHook(family, *names, hook, priority) if hook else None


def _with_sleepers(hooks: tuple[NatHook, ...]) -> tuple[NatHook, ...]:
    """The same, those marked whose table is dormant."""
    asleep = {
        (_NFT_FAMILIES.get(table["nfgen_family"]), table.get("NFTA_TABLE_NAME"))
        for table in _dump(_NETFILTER, _GETTABLE, nft_table_msg(), nft_table_msg)
        if table.get("NFTA_TABLE_FLAGS", 0) & _DORMANT
    }
    return tuple(
        replace(hook, dormant=(hook.family, hook.table) in asleep) for hook in hooks
    )


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
