"""The cluster of upstream's integration lab: its pods, and the network between them.

One namespace for each of its pods, joined by a bridge, and one for the tester.
The cluster's services are addresses that the tester translates, as kube-proxy
does on a node.

Upstream gives the proxy one port for both directions; proxy-init refuses that,
so here the proxy's stand-in has 8081 for outbound.
"""

from __future__ import annotations

import contextlib
import os
import threading
import urllib.parse
from dataclasses import dataclass, field
from typing import Self

from installed import PROGRAM
from pyroute2 import IPRoute
from upstream_service import FAMILY, Server, get, url_of

from proxyinit.lab import PROXY_UID, Namespace

ARGUMENTS = ("-p", "8080", "-o", "8081", "-u", "2102", "-g", "2102")
PROXY_PORTS = (8080, 8081)
APP_UID = 1000
PREFIX = {4: 24, 6: 64}
POD_NETWORK = {4: "10.244.0.", 6: "fd00:244::"}
SERVICE_NETWORK = {4: "10.96.0.", 6: "fd00:96::"}
EVERYONE = {4: "0.0.0.0/0", 6: "::/0"}
NODAD = 0x02  # linux/if_addr.h: an address is usable at once


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod of the lab: the ports of its servers, and what each init run adds."""

    number: int
    app: tuple[int, ...] = ()
    proxy: tuple[int, ...] = ()
    runs: tuple[tuple[str, ...], ...] = ()


TESTER = "tester"
NO_RULES = "pod-with-no-rules"
EXISTING_RULES = "pod-with-existing-rules"
ALL_PORTS = "pod-redirects-all-ports"
WHITELISTED = "pod-redirects-whitelisted"
BLACKLISTED = "pod-doesnt-redirect-blacklisted"
SUBNETS = "pod-ignores-subnets"


def pods(version: int) -> dict[str, Pod]:
    """The pods of the lab's manifest, by name."""
    ignored_sources = ("--subnets-to-ignore", EVERYONE[version])
    ignored_ports = ("--inbound-ports-to-ignore", "6000-8000")
    listed = ("-r", "9090", "-r", "9099")
    return {
        TESTER: Pod(number=2),
        NO_RULES: Pod(number=3, app=(8080, 9090)),
        EXISTING_RULES: Pod(number=4, app=(8080, 9090), runs=((), ())),
        ALL_PORTS: Pod(number=5, app=(9090,), proxy=PROXY_PORTS, runs=((),)),
        WHITELISTED: Pod(number=6, proxy=PROXY_PORTS, runs=(listed,)),
        BLACKLISTED: Pod(
            number=7, app=(9090, 7070), proxy=PROXY_PORTS, runs=(ignored_ports,)
        ),
        SUBNETS: Pod(number=8, app=(9090,), proxy=PROXY_PORTS, runs=(ignored_sources,)),
    }


@dataclass
class Cluster:
    """The lab's pods, running and initialised, in one mode and one family."""

    version: int
    namespaces: dict[str, Namespace] = field(default_factory=dict)
    logs: dict[str, list[str]] = field(default_factory=dict)
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add_namespace(self, name: str) -> Namespace:
        made = Namespace(name)
        self._stack.callback(made.close)
        return made

    def join(self) -> None:
        """Lay the network: a bridge, and a pair of interfaces for each pod."""
        hub = self.add_namespace("hub")
        hub.run(_make_bridge)
        for name, pod in pods(self.version).items():
            namespace = self.add_namespace(name)
            self.namespaces[name] = namespace
            hub.run(_connect, namespace.path, f"veth{pod.number}")
            namespace.run(_configure, self.version, self.address(name))

    def serve(self) -> None:
        """Start every pod's servers."""
        for name, pod in pods(self.version).items():
            for port in pod.app:
                self._start(name, f"{name}:{port}", port, APP_UID)
            for port in pod.proxy:
                self._start(name, "proxy", port, PROXY_UID)

    def _start(self, name: str, who: str, port: int, uid: int) -> None:
        namespace = self.namespaces[name]
        server = namespace.run(Server, who, port, self.version)

        def live() -> None:
            with namespace.inside(uid=uid, gid=uid):
                server.serve()

        thread = threading.Thread(target=live)
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(server.close)

    def init(self, mode: str) -> None:
        """Run proxy-init in every pod that the manifest gives an init container."""
        family = () if self.version == 6 else ("--ipv6=false",)
        for name, pod in pods(self.version).items():
            for extra in pod.runs:
                arguments = [*ARGUMENTS, *extra, *family, "--iptables-mode", mode]
                done = self.namespaces[name].exec([PROGRAM, *arguments])
                assert done.returncode == 0, done.stderr
                self.logs.setdefault(name, []).append(done.stderr)

    def publish(self, name: str, port: int) -> None:
        """Make one port of a pod a service, for the tester."""
        program = {4: "iptables-legacy", 6: "ip6tables-legacy"}[self.version]
        target = url_of(self.address(name), port, "").removeprefix("http://")
        to = f"-d {self.service(name)} -p tcp"
        for rule in (
            f"-t nat -A OUTPUT {to} --dport {port} -j DNAT --to-destination {target}",
            f"-A OUTPUT {to} -j REJECT --reject-with tcp-reset",
        ):
            done = self.namespaces[TESTER].exec([program, *rule.split()])
            assert done.returncode == 0, done.stderr

    def address(self, name: str) -> str:
        return f"{POD_NETWORK[self.version]}{pods(self.version)[name].number}"

    def service(self, name: str) -> str:
        return f"{SERVICE_NETWORK[self.version]}{pods(self.version)[name].number}"

    def get(self, host: str, port: int, path: str = "/") -> str:
        """What the tester is answered at an address."""
        return self.namespaces[TESTER].run(get, url_of(host, port, path))

    def refuses(self, host: str, port: int) -> bool:
        """Whether the tester is refused at an address."""
        try:
            self.get(host, port)
        except ConnectionRefusedError:
            return True
        return False

    def call(self, name: str, port: int, target: str, target_port: int) -> str:
        """What the server at a pod's port says when told to call another."""
        query = urllib.parse.urlencode({"url": url_of(target, target_port)})
        return self.get(self.address(name), port, f"/call?{query}")


def _make_bridge() -> None:
    with IPRoute() as links:
        links.link("add", ifname="hub", kind="bridge")
        links.link("set", index=links.link_lookup(ifname="hub")[0], state="up")


def _connect(pod_path: str, name: str) -> None:
    pod = os.open(pod_path, os.O_RDONLY)
    try:
        with IPRoute() as links:
            peer = {"ifname": "eth0", "net_ns_fd": pod}
            links.link("add", ifname=name, kind="veth", peer=peer)
            (bridge,) = links.link_lookup(ifname="hub")
            (index,) = links.link_lookup(ifname=name)
            links.link("set", index=index, master=bridge, state="up")
    finally:
        os.close(pod)


def _configure(version: int, address: str) -> None:
    family, prefix = FAMILY[version], PREFIX[version]
    with IPRoute() as links:
        (index,) = links.link_lookup(ifname="eth0")
        links.link("set", index=index, state="up")
        links.addr(
            "add",
            index=index,
            address=address,
            prefixlen=prefix,
            family=family,
            flags=NODAD if version == 6 else 0,
        )
        # Packets to a service get their pod's address before they leave.
        services = f"{SERVICE_NETWORK[version]}{'0' if version == 4 else ''}/{prefix}"
        links.route("add", dst=services, oif=index, family=family)
