"""Which namespaces there are, how they are joined, and who stands where."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from pyroute2 import IPRoute

from proxyinit.lab.namespace import FAMILY, IFA_F_NODAD, Namespace, version_of
from proxyinit.lab.traffic import Answer, StandIn, ask

T = TypeVar("T")

PROXY_UID = 2102
"""The user of Linkerd's proxy in its charts."""

CLIENT = {4: "10.1.0.1", 6: "fd00:1::1"}
POD = {4: "10.1.0.2", 6: "fd00:1::2"}
WORLD = {4: "203.0.113.7", 6: "2001:db8::7"}
"""An address beyond the pod's own network; the client answers for it."""

_PREFIX = {4: 24, 6: 64}
_WORLD_ROUTES = ("203.0.113.0/24", "198.51.100.0/24", "2001:db8::/64")


@dataclass(frozen=True)
class Neighbour:
    """One more namespace of a lab, and its addresses by IP version."""

    namespace: Namespace
    addresses: Mapping[int, str]


class Lab:
    """A pod and a client, joined; the client answers for the rest of the world.

    A context manager: leaving it stops every stand-in and removes all its
    namespaces. The pod's interface is ``eth0`` with the addresses `POD`.
    """

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self.neighbours: dict[str, Neighbour] = {}
        self.pod = self._namespace("pod")
        try:
            self.client = self._namespace("client")
            self.client.run(_join, self.pod.path)
            self.pod.run(_configure, POD, CLIENT)
            self.client.run(_configure, CLIENT, {})
            self.client.run(answer_for, _WORLD_ROUTES)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _namespace(self, label: str) -> Namespace:
        namespace = Namespace(label)
        self._stack.callback(namespace.close)
        return namespace

    def add(self, label: str) -> Neighbour:
        """One more pod, which the client joins with the first by forwarding."""
        number = len(self.neighbours) + 1
        interface = f"eth{number}"
        mine = {4: f"10.1.{number}.2", 6: f"fd00:1:{number}::2"}
        gateways = {4: f"10.1.{number}.1", 6: f"fd00:1:{number}::1"}
        made = Neighbour(self._namespace(label), mine)
        self.client.run(_join, made.namespace.path, interface)
        self.client.run(_configure, gateways, {}, interface)
        self.client.run(_forward)
        made.namespace.run(_configure, mine, gateways)
        self.neighbours[label] = made
        return made

    def keep(self, resource: AbstractContextManager[T]) -> T:
        """Enter a context that is left with the lab, before its namespaces go."""
        return self._stack.enter_context(resource)

    def proxy(self, *, inbound: int = 4143, outbound: int = 4140) -> StandIn:
        """Start the proxy's stand-in in the pod, as the proxy's user."""
        ports = (inbound, outbound)
        return self.stand_in(self.pod, "proxy", ports, uid=PROXY_UID, transparent=True)

    def app(self, *ports: int) -> StandIn:
        """Start the application's stand-in in the pod."""
        return self.stand_in(self.pod, "app", ports, uid=1000)

    def world(self, *ports: int) -> StandIn:
        """Start a server that answers for every address beyond the pod."""
        return self.stand_in(self.client, "world", ports)

    def stand_in(
        self,
        namespace: Namespace,
        who: str,
        ports: Sequence[int],
        *,
        uid: int = 0,
        transparent: bool = False,
    ) -> StandIn:
        """Start a stand-in that stops when the lab is left."""
        server = StandIn(namespace, who, ports, uid=uid, transparent=transparent)
        self._stack.callback(server.close)
        return server

    def inbound(self, port: int, *, version: int = 4, source: str = "") -> Answer:
        """Who answers the client at a port of the pod."""
        return self.client.run(lambda: ask(POD[version], port, source=source))

    def outbound(
        self, address: str, port: int, *, uid: int = 1000, gid: int = 1000
    ) -> Answer:
        """Who answers a user of the pod at an address anywhere."""
        return self.pod.run(lambda: ask(address, port), uid=uid, gid=gid)


def _join(peer_path: str, interface: str = "eth0") -> None:
    """Lay a cable between this namespace and another, which has eth0 at its end."""
    peer = os.open(peer_path, os.O_RDONLY)
    try:
        with IPRoute() as links:
            links.link(
                "add",
                ifname=interface,
                kind="veth",
                peer={"ifname": "eth0", "net_ns_fd": peer},
            )
    finally:
        os.close(peer)


def _configure(
    addresses: dict[int, str], gateways: dict[int, str], interface: str = "eth0"
) -> None:
    # Or nothing would be forwarded until the link-local address counts as unique.
    _sysctl(f"ipv6/conf/{interface}/accept_dad", 0)
    with IPRoute() as links:
        index = links.link_lookup(ifname=interface)[0]
        links.link("set", index=index, state="up")
        for version, address in addresses.items():
            links.addr(
                "add",
                index=index,
                address=address,
                prefixlen=_PREFIX[version],
                family=FAMILY[version],
                flags=IFA_F_NODAD if version == 6 else 0,
            )
        for version, gateway in gateways.items():
            links.route("add", dst="default", gateway=gateway, family=FAMILY[version])


def _forward() -> None:
    for name in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        _sysctl(name, 1)


def _sysctl(name: str, value: int) -> None:
    Path("/proc/sys/net", name).write_text(f"{value}\n", encoding="ascii")


def answer_for(networks: tuple[str, ...]) -> None:
    """Take every address of the networks for one of this namespace."""
    with IPRoute() as links:
        for network in networks:
            links.route(
                "replace",
                dst=network,
                oif=1,
                type="local",
                table=255,  # the local table: delivered here, not forwarded
                scope=254 if version_of(network) == 4 else 0,
                family=FAMILY[version_of(network)],
            )
