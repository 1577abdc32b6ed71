"""A pod and a client on this machine: namespaces, stand-ins, and who answered.

What the demo shows, the kernel tests prove and the benchmarks load is the same
laboratory: two network namespaces joined by a veth pair, a stand-in for the
proxy and for the application in the pod, and a client that plays the rest of the
world. A connection is judged by who answered it and which original destination
the kernel kept, not by the text of any rule.

Sockets belong to the namespace, and to the user, of the thread that opens them;
so no process is needed to connect from inside a pod as any user. Needs root.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import selectors
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from pyroute2 import IPRoute, netns

from proxyinit.netns import CLONE_NEWNET, enter, open_namespace

T = TypeVar("T")

PROXY_UID = 2102
"""The user of Linkerd's proxy in its charts."""

CLIENT = {4: "10.1.0.1", 6: "fd00:1::1"}
POD = {4: "10.1.0.2", 6: "fd00:1::2"}
WORLD = {4: "203.0.113.7", 6: "2001:db8::7"}
"""An address beyond the pod's own network; the client answers for it."""

_PREFIX = {4: 24, 6: 64}
_WORLD_ROUTES = ("203.0.113.0/24", "198.51.100.0/24", "2001:db8::/64")
_SO_ORIGINAL_DST = 80  # linux/netfilter_ipv4.h, and _ipv6.h for IPv6
_IFA_F_NODAD = 0x02
_numbers = itertools.count()


def version_of(address: str) -> int:
    """4 or 6."""
    return 6 if ":" in address else 4


class Namespace:
    """A network namespace of its own name, with loopback up; gone after `close`."""

    def __init__(self, label: str) -> None:
        self.name = f"proxyinit-{os.getpid()}-{next(_numbers)}-{label}"
        _make_namespace(self.name)
        self.path = f"/var/run/netns/{self.name}"
        self._fd = open_namespace(self.path)
        try:
            self.run(self._loopback_up)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _loopback_up() -> None:
        with IPRoute() as links:
            links.link("set", index=1, state="up")

    def close(self) -> None:
        """Remove the namespace; what runs inside must have ended before."""
        os.close(self._fd)
        netns.remove(self.name)

    def enter(self) -> None:
        """Move the calling thread into the namespace; made for ``preexec_fn``."""
        enter(self._fd)

    def run(
        self, function: Callable[..., T], *args: Any, uid: int = 0, gid: int = 0
    ) -> T:
        """Call a function inside the namespace; sockets it opens belong to `uid`."""
        outcome: list[T] = []
        failure: list[BaseException] = []

        def inside() -> None:
            try:
                with self.inside(uid=uid, gid=gid):
                    outcome.append(function(*args))
            except BaseException as error:  # noqa: BLE001  (raised again below)
                failure.append(error)

        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
        if failure:
            raise failure[0]
        return outcome[0]

    @contextlib.contextmanager
    def inside(self, *, uid: int = 0, gid: int = 0) -> Iterator[None]:
        """Make the calling thread live inside; it must end without leaving.

        The kernel compares owners with the *file system* ids a socket was opened
        under, which unlike the other ids belong to a single thread.
        """
        self.enter()
        libc = ctypes.CDLL(None)
        libc.setfsgid(gid)
        libc.setfsuid(uid)
        yield

    def exec(
        self, argv: Sequence[str], *, text: str = "", timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a program inside; never raises for its exit status."""
        # Started from a thread that lives inside: code between fork and exec could
        # deadlock with the stand-ins' threads, and takes twice as long.
        return self.run(
            lambda: subprocess.run(
                argv,
                input=text,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        )

    def add_address(self, interface: str, address: str, prefix: int) -> None:
        """Give an interface one more address, usable at once."""

        def add() -> None:
            with IPRoute() as links:
                flags = _IFA_F_NODAD if version_of(address) == 6 else 0
                index = links.link_lookup(ifname=interface)[0]
                links.addr(
                    "add",
                    index=index,
                    address=address,
                    prefixlen=prefix,
                    family=_FAMILY[version_of(address)],
                    flags=flags,
                )

        self.run(add)


_FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}


def _make_namespace(name: str) -> None:
    """Name the new namespace of a thread that then ends.

    pyroute2's own `create` forks, and gives up on a child that a busy machine
    does not run within two seconds.
    """

    def make() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), name)
        netns.attach(name, "thread-self")

    with ThreadPoolExecutor(max_workers=1) as threads:
        threads.submit(make).result()


@dataclass(frozen=True)
class Answer:
    """Who answered a connection.

    `who` is the stand-in's name and `port` where it listens. `original` is the
    destination before redirection, told by a stand-in that looks for it.
    """

    who: str
    port: int
    original: tuple[str, int] | None = None

    def __str__(self) -> str:
        return self.who if self.original is None else f"{self.who} ({self.port})"


class StandIn:
    """A server that answers every connection with who it is, then closes it.

    `ports` are listened on in both families, under `uid`. With `transparent` it
    asks the kernel for the original destination as a proxy does.
    """

    def __init__(
        self,
        namespace: Namespace,
        who: str,
        ports: Sequence[int],
        *,
        uid: int = 0,
        transparent: bool = False,
    ) -> None:
        self.who = who
        self.transparent = transparent
        self._listeners = namespace.run(_listen, tuple(ports), uid=uid)
        self._stop = os.eventfd(0)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        os.close(self._stop)
        for listener in self._listeners:
            listener.close()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._stop, selectors.EVENT_READ)
            for listener in self._listeners:
                selector.register(listener, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if not isinstance(key.fileobj, socket.socket):
                        return
                    with contextlib.suppress(OSError):
                        self._answer(key.fileobj)

    def _answer(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            original = original_destination(connection) if self.transparent else None
            port = listener.getsockname()[1]
            fields = {"who": self.who, "port": port, "original": original}
            connection.sendall(json.dumps(fields).encode() + b"\n")


def _listen(ports: Sequence[int]) -> list[socket.socket]:
    listeners = []
    for port, family in itertools.product(ports, _FAMILY.values()):
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(("", port))
        listener.listen(1024)
        listener.settimeout(0)
        listeners.append(listener)
    return listeners


def original_destination(connection: socket.socket) -> tuple[str, int] | None:
    """Where a redirected connection was going; None when conntrack knows nothing."""
    if connection.family == socket.AF_INET6:
        level, size, where = socket.IPPROTO_IPV6, 28, slice(8, 24)
    else:
        level, size, where = socket.IPPROTO_IP, 16, slice(4, 8)
    try:
        raw = connection.getsockopt(level, _SO_ORIGINAL_DST, size)
    except OSError:
        return None
    (port,) = struct.unpack_from("!H", raw, 2)
    return socket.inet_ntop(connection.family, raw[where]), port


def ask(address: str, port: int, *, source: str = "", timeout: float = 2) -> Answer:
    """Connect from the calling thread's namespace and hear who answers.

    Raises OSError (refused, timed out, reset) when nobody does.
    """
    with socket.socket(_FAMILY[version_of(address)]) as connection:
        connection.settimeout(timeout)
        if source:
            connection.bind((source, 0))
        connection.connect((address, port))
        with connection.makefile("rb") as stream:
            line = stream.readline()
    if not line:
        raise ConnectionResetError(f"{address} port {port} closed without an answer")
    said = json.loads(line)
    original = said["original"]
    return Answer(said["who"], said["port"], tuple(original) if original else None)


@dataclass
class Load:
    """Connections opened without pause, and who answered how many of them."""

    answers: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """All connections tried."""
        return sum(self.answers.values()) + len(self.errors)


@contextlib.contextmanager
def load(
    namespace: Namespace, targets: Sequence[tuple[str, int]], *, threads: int = 4
) -> Iterator[Load]:
    """Open connections to the targets in turn from `threads` threads until left."""
    seen = Load()
    stop = threading.Event()
    lock = threading.Lock()

    def work() -> None:
        with namespace.inside():
            for address, port in itertools.cycle(targets):
                if stop.is_set():
                    return
                _count(seen, lock, address, port)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield seen
    finally:
        stop.set()
        for worker in workers:
            worker.join()


def _count(seen: Load, lock: threading.Lock, address: str, port: int) -> None:
    try:
        who = ask(address, port).who
    except OSError as error:
        with lock:
            seen.errors.append(f"{address} port {port}: {error}")
    else:
        with lock:
            seen.answers[who] = seen.answers.get(who, 0) + 1


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
            self.client.run(_answer_for_the_world)
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
    with IPRoute() as links:
        index = links.link_lookup(ifname=interface)[0]
        links.link("set", index=index, state="up")
        for version, address in addresses.items():
            links.addr(
                "add",
                index=index,
                address=address,
                prefixlen=_PREFIX[version],
                family=_FAMILY[version],
                flags=_IFA_F_NODAD if version == 6 else 0,
            )
        for version, gateway in gateways.items():
            links.route("add", dst="default", gateway=gateway, family=_FAMILY[version])


def _forward() -> None:
    for path in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        Path("/proc/sys/net", path).write_text("1\n", encoding="ascii")


def _answer_for_the_world() -> None:
    """Take every address of the world's networks for one of this namespace."""
    with IPRoute() as links:
        for network in _WORLD_ROUTES:
            links.route(
                "add",
                dst=network,
                oif=1,
                type="local",
                table=255,  # the local table: delivered here, not forwarded
                scope=254 if version_of(network) == 4 else 0,
                family=_FAMILY[version_of(network)],
            )
