"""For a moment, a neighbour of the namespace this thread is in, to connect from and to.

PREROUTING is passed only by what comes in through an interface, so who is inside
can't try it alone, and from the node a pod may be reached through much that belongs
to others. So a virtual cable is laid to a network namespace that has no name: what
is tried leaves the pod and goes no further. The kernel takes the cable away with
that namespace, which lives as long as the sockets here, even if this process is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from proxyinit import netns
from proxyinit.errors import ProxyInitError

FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
_PREFIX = {4: 30, 6: 126}
_IFA_F_NODAD = 0x02
"""Use an IPv6 address at once, without asking whether another has it."""


class NoOutside(ProxyInitError):
    """The neighbour can't be made."""


@dataclass(frozen=True, slots=True)
class Ends:
    """The addresses of both ends of the cable, for one IP version."""

    pod: str
    outside: str


@dataclass(frozen=True, slots=True)
class Outside:
    """The neighbour: its addresses and the namespace's, by IP version.

    `callers` are sockets of the neighbour to connect from, `servers` those that
    listen there.
    """

    ends: Mapping[int, Ends]
    callers: Mapping[int, socket.socket]
    servers: Mapping[int, socket.socket]


@contextlib.contextmanager
def outside(ends: Mapping[int, Ends], port: int) -> Iterator[Outside]:
    """A neighbour with these addresses that listens on `port`; gone afterwards.

    Raises `NoOutside` when the kernel refuses.
    """
    interface = f"pi{os.getpid()}"
    with contextlib.ExitStack() as stack:
        try:
            home = netns.open_namespace("/proc/thread-self/ns/net")
            stack.callback(os.close, home)
            made = _lay(stack, home, interface, ends, port)
            stack.callback(_remove, interface)
            _configure(interface, {v: e.pod for v, e in ends.items()}, {})
        except (OSError, NetlinkError) as error:
            raise NoOutside(
                f"can't lay a cable into the namespace: {error}; it needs "
                "CAP_NET_ADMIN and CAP_SYS_ADMIN: run as root"
            ) from error
        yield made


def _lay(
    stack: contextlib.ExitStack,
    home: int,
    interface: str,
    ends: Mapping[int, Ends],
    port: int,
) -> Outside:
    """Make the neighbour, its end of the cable and its sockets; come back home."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(netns.CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    try:
        with IPRoute() as links:
            peer = {"ifname": interface, "net_ns_fd": home}
            links.link("add", ifname="pod", kind="veth", peer=peer)
        addresses = {version: end.outside for version, end in ends.items()}
        _configure(
            "pod", addresses, {version: end.pod for version, end in ends.items()}
        )
        callers = {v: stack.enter_context(socket.socket(FAMILIES[v])) for v in ends}
        servers = {v: stack.enter_context(listen(v, port)) for v in ends}
    finally:
        netns.enter(home)
    return Outside(ends, callers, servers)


def _configure(
    interface: str, addresses: Mapping[int, str], gateways: Mapping[int, str]
) -> None:
    _allow_ipv6(interface)
    with IPRoute() as links:
        index = links.link_lookup(ifname=interface)[0]
        links.link("set", index=index, state="up")
        for version, address in addresses.items():
            links.addr(
                "add",
                index=index,
                address=address,
                prefixlen=_PREFIX[version],
                family=FAMILIES[version],
                flags=_IFA_F_NODAD if version == 6 else 0,
            )
        for version, gateway in gateways.items():
            links.route("add", dst="default", gateway=gateway, family=FAMILIES[version])


def _allow_ipv6(interface: str) -> None:
    """Turn IPv6 on for the cable, where it is off for interfaces to come alone.

    Where it is off for all, loopback's among them, nothing could be redirected.
    """
    switches = Path("/proc/sys/net/ipv6/conf")
    with contextlib.suppress(OSError):
        if (switches / "all/disable_ipv6").read_text() == "0\n":
            (switches / interface / "disable_ipv6").write_text("0")


def _remove(interface: str) -> None:
    with IPRoute() as links, contextlib.suppress(NetlinkError, IndexError):
        links.link("del", index=links.link_lookup(ifname=interface)[0])


def listen(version: int, port: int) -> socket.socket:
    """A socket that listens on a port of every address of one IP version.

    Raises OSError with EADDRINUSE when another program does.
    """
    server = socket.socket(FAMILIES[version])
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if version == 6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        server.bind(("", port))
        server.listen()
    except OSError:
        server.close()
        raise
    return server


def caller(version: int, uid: int, gid: int) -> socket.socket:
    """A socket of this namespace that belongs to a user and a group.

    The kernel compares owners with the file system ids that a socket was opened
    under; those belong to one thread, and are what they were when this returns.
    """
    libc = ctypes.CDLL(None)
    return _under(
        libc.setfsgid, gid, lambda: _under(libc.setfsuid, uid, _open(version))
    )


def _open(version: int) -> Callable[[], socket.socket]:
    return lambda: socket.socket(FAMILIES[version])


def _under(
    change: Any, wanted: int, make: Callable[[], socket.socket]
) -> socket.socket:
    before = change(ctypes.c_uint(wanted))
    try:
        if change(ctypes.c_uint(wanted)) != ctypes.c_int(wanted).value:
            raise NoOutside(
                f"can't open a socket as user or group {wanted}: it needs CAP_SETUID "
                "and CAP_SETGID: run as root"
            )
        return make()
    finally:
        change(ctypes.c_uint(before & 0xFFFFFFFF))
