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
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg

from proxyinit.host import read_text
from proxyinit.nf_netlink import DORMANT, nft_tables
from proxyinit.verify.facts import Listener, NatHook

_ROUTE, _SOCK_DIAG, _NETFILTER = 0, 4, 12
"""Netlink protocols (linux/netlink.h)."""
_GETADDR, _DIAG_BY_FAMILY, _GETCHAIN = 22, 20, 0x0A04
"""Their requests, in this order."""
_REQUEST_DUMP = 0x301
_ERROR, _DONE = 2, 3

_LISTEN = 1 << 10
_ACCEPTED = 0xFFF & ~(_LISTEN | 1 << 2 | 1 << 3)
"""Masks of TCP states (net/tcp_states.h): what listens, and what was connected, be
it closed again by now; not SYN_SENT and SYN_RECV."""

_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
_NFT_FAMILIES = {1: "inet", 2: "ip", 10: "ip6"}
_HOOKS = {0: "prerouting", 3: "output"}
_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_HOOK, _CHAIN_TYPE = 1, 3, 4, 7
_NESTED_MASK = 0x3FFF
"""NLA_TYPE_MASK: without the flags that say nested, or in network order."""
_LINK_LOCAL = 253
"""RT_SCOPE_LINK (linux/rtnetlink.h); wider scopes have lower numbers."""


def _dump(protocol: int, kind: int, request: Any, reply: type[Any]) -> list[Any]:
    """All that the kernel has to say to a request, in pyroute2's form."""
    request["header"]["type"] = kind
    request["header"]["flags"] = _REQUEST_DUMP
    request.encode()
    found = []
    for message in _replies(protocol, bytes(request.data)):
        decoded = reply(message)
        decoded.decode()
        found.append(decoded)
    return found


def _replies(protocol: int, request: bytes) -> Iterator[bytes]:
    """The messages that answer a dump; raises OSError when the kernel refuses."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as link:
        link.send(request)
        while True:
            for kind, message in _messages(link.recv(1 << 18)):
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    (number,) = struct.unpack_from("=i", message, 16)
                    raise OSError(-number, os.strerror(-number))
                yield message


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
        message["idiag_dst"].removeprefix("::ffff:") == peer[0]
        for version in _FAMILIES
        for message in _sockets(version, _ACCEPTED, port, peer[1])
    )


def _sockets(version: int, states: int, port: int = 0, peer: int = 0) -> list[Any]:
    """TCP sockets in these states, of these two ports where they are given."""
    request = inet_diag_req()
    request["sdiag_family"] = _FAMILIES[version]
    request["sdiag_protocol"] = socket.IPPROTO_TCP
    request["idiag_states"] = states
    request["idiag_sport"] = port  # the kernel chooses: a proxy has thousands
    request["idiag_dport"] = peer
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
    request = struct.pack("=IHHIIBBH", 20, _GETCHAIN, _REQUEST_DUMP, 1, 0, 0, 0, 0)
    try:
        asleep = {key for key, flags in nft_tables() if flags & DORMANT}
        found = map(_nat_hook, _replies(_NETFILTER, request))
        return tuple(
            replace(hook, dormant=key in asleep) for key, hook in filter(None, found)
        )
    except OSError as error:
        # A kernel without nf_tables has no chains.
        return None if error.errno in (errno.EPERM, errno.EACCES) else ()


def _nat_hook(message: bytes) -> tuple[tuple[int, str], NatHook] | None:
    """The chain and its table's key, if it is one that is asked for nat here.

    In pyroute2's form a chain takes ten times as long to read (linux/netfilter/
    nf_tables.h: NFTA_CHAIN_* and NFTA_HOOK_*; numbers are big endian).
    """
    chain = _attributes(message[20:])
    declared = _attributes(chain.get(_CHAIN_HOOK, b""))
    if not declared or chain.get(_CHAIN_TYPE) != b"nat\0":
        return None
    family = _NFT_FAMILIES.get(message[16])
    hook = _HOOKS.get(int.from_bytes(declared[1], "big"))
    if not family or not hook:
        return None
    table, name = (
        chain[kind].rstrip(b"\0").decode("utf-8", "replace")
        for kind in (_CHAIN_TABLE, _CHAIN_NAME)
    )
    priority = int.from_bytes(declared[2], "big", signed=True)
    return (message[16], table), NatHook(family, table, name, hook, priority)


def _attributes(data: bytes) -> dict[int, bytes]:
    """The attributes of a message by their kinds."""
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        found[kind & _NESTED_MASK] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return found


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
