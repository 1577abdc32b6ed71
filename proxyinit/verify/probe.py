"""Live connections that prove who answers, and harm nobody.

Each is opened in a direction and IP version of its own, between the namespace and a
neighbour that exists for the moment (`outside`), so nothing of it leaves the node.
Where the proxy's port is free it is taken meanwhile, and who answers has to say a
random token. Where a program has it, the kernel tells which socket accepted: it is
opened and closed without a byte, as by any client that thought better of it.
"""

from __future__ import annotations

import contextlib
import errno
import random
import secrets
import select
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from proxyinit.config import MAX_PORT, RedirectConfig, parse_subnet
from proxyinit.intervals import span
from proxyinit.lab.traffic import original_destination
from proxyinit.rules import PortRange, Subnet
from proxyinit.verify import sockets
from proxyinit.verify.checks import FAIL, OK, UNKNOWN, Check
from proxyinit.verify.facts import Facts
from proxyinit.verify.outside import Ends, NoOutside, Outside, caller, listen, outside
from proxyinit.verify.readback import Wanted
from proxyinit.verify.surroundings import versions_in_use
from proxyinit.verify.verdict import Judgement

TIMEOUT_S = 2.0
_NETWORKS = {
    4: ("198.51.100.0/30", "203.0.113.0/30", "192.0.2.0/30"),
    6: ("2001:db8:5afe::/126", "2001:db8:cafe::/126", "2001:db8:beef::/126"),
}
"""For documentation alone (RFC 5737, RFC 3849): no pod has business there."""
_STRANGERS = range(65534, 64000, -1)
"""Users, or groups, from nobody downwards, to be one of that the proxy is not."""


def add(judgement: Judgement, facts: Facts) -> Judgement:
    """The judgement, and what live connections show beside it."""
    if judgement.wanted is None:
        return judgement  # there is nowhere to connect to
    checks = tuple(probe(judgement.wanted, facts))
    return replace(judgement, checks=(*judgement.checks, *checks))


def probe(wanted: Wanted, facts: Facts) -> Iterator[Check]:
    """One check for each direction and IP version, and for the proxy's own way out."""
    ends: dict[int, Ends] = {}
    for version in map(int, versions_in_use(facts, wanted)):
        found = _ends(wanted.config, version)
        if found:
            ends[version] = found
        else:
            text = f"IPv{version}: every network for documentation is ignored"
            yield Check("probe", UNKNOWN, text, "connect from and to a real neighbour")
    if not ends:
        return
    try:
        inbound = _inbound_port(wanted.config, facts)
        outbound = _outbound_port(wanted.config, facts)
        with outside(ends, outbound) as neighbour:
            for version in ends:
                trial = _Trial(wanted.config, facts, neighbour, version)
                yield trial.inbound(inbound)
                yield trial.outbound(outbound)
                if wanted.config.proxy_uids:
                    yield trial.bypass(outbound)
    except NoOutside as error:
        yield Check("probe", UNKNOWN, str(error), "run as root, or without --probe")


@dataclass(frozen=True, slots=True)
class _Trial:
    """Connections of one IP version."""

    config: RedirectConfig
    facts: Facts
    neighbour: Outside
    version: int

    def inbound(self, port: int) -> Check:
        """From the neighbour to an address of the namespace."""
        name = f"probe in, IPv{self.version}"
        address = next(
            (a for a in self.facts.addresses if (":" in a) == (self.version == 6)),
            self.neighbour.ends[self.version].pod,
        )
        client = self.neighbour.callers[self.version]
        return self._judge(name, client, (address, port), self.config.inbound_port)

    def outbound(self, port: int) -> Check:
        """From the namespace, as a user who is not the proxy, to the neighbour."""
        name = f"probe out, IPv{self.version}"
        uid = _other_than(self.config.proxy_uids)
        gid = _other_than(self.config.proxy_gids)
        destination = (self.neighbour.ends[self.version].outside, port)
        with self._caller(uid, gid) as client:
            return self._judge(name, client, destination, self.config.outbound_port)

    def bypass(self, port: int) -> Check:
        """From the namespace, as the proxy, to the neighbour: it has to get there."""
        name = f"probe as proxy, IPv{self.version}"
        uid, gid = self.config.proxy_uids[0], _other_than(self.config.proxy_gids)
        destination = (self.neighbour.ends[self.version].outside, port)
        with self._caller(uid, gid) as client:
            problem = _connect(client, destination)
            if problem is None and _arrived(self._beyond, TIMEOUT_S):
                return Check(name, OK, f"user {uid} reaches the outside")
        text = problem or "another program answered"
        advice = "look at the rules for the proxy's user, --proxy-uid"
        return Check(
            name, FAIL, f"user {uid} does not reach the outside: {text}", advice
        )

    def _caller(self, uid: int, gid: int) -> socket.socket:
        """A socket of one of the namespace's users."""
        here = self.facts.uids.outside(uid), self.facts.gids.outside(gid)
        if here[0] is None or here[1] is None:
            raise NoOutside(
                f"user {uid} or group {gid} is none of the namespace's: its user "
                "namespace has other ids"
            )
        return caller(self.version, here[0], here[1])

    def _judge(
        self,
        name: str,
        client: socket.socket,
        destination: tuple[str, int],
        proxy_port: int,
    ) -> Check:
        """Connect, and find out who is at the other end."""
        where = _shown(destination)
        try:
            server = listen(self.version, proxy_port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            server = None
        with server or contextlib.nullcontext():
            problem = _connect(client, destination)
            proof = ""
            if not problem and server:
                select.select([server, self._beyond], [], [], TIMEOUT_S)
                proof = _answer(server, client, destination)
            elif not problem:
                proof = self._accepted(proxy_port, client)
            if proof:
                return Check(name, OK, f"{where} {proof} on port {proxy_port}")
            if problem:
                text = f"{where}: {problem}"
            elif _arrived(self._beyond, 0):
                text = f"{where} was reached directly: it passed by the proxy"
            else:
                text = f"{where}: another program answered, not port {proxy_port}"
        advice = "look at the failures above, and at firewall rules beside nat"
        return Check(name, FAIL, text, advice)

    @property
    def _beyond(self) -> socket.socket:
        """What listens at the outside's end."""
        return self.neighbour.servers[self.version]

    def _accepted(self, port: int, client: socket.socket) -> str:
        """Whether the program on a port is at the other end; the kernel knows.

        Its socket is there an instant after the handshake, unless the connection has
        arrived outside.
        """
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            if sockets.accepted(port, client.getsockname()[:2]):
                return "was accepted"
            if select.select([self._beyond], [], [], 0.02)[0]:
                return ""
        return ""


def _connect(client: socket.socket, destination: tuple[str, int]) -> str | None:
    """Connect; why it failed, or None."""
    client.settimeout(TIMEOUT_S)
    try:
        client.connect(destination)
    except TimeoutError:
        return f"nobody answered within {TIMEOUT_S:g} s"
    except OSError as error:
        return str(error.strerror)
    return None


def _arrived(server: socket.socket, timeout_s: float) -> bool:
    """Whether a connection arrives here in time; it is closed at once."""
    server.settimeout(timeout_s)
    try:
        connection, _ = server.accept()
    except (BlockingIOError, TimeoutError):
        return False
    connection.close()
    return True


def _answer(
    server: socket.socket, client: socket.socket, destination: tuple[str, int]
) -> str:
    """Let the stand-in say a token, and hear it; what is proved, empty for nothing."""
    server.settimeout(0)
    token = secrets.token_bytes(16)
    try:
        connection, _ = server.accept()
        with connection:
            connection.settimeout(TIMEOUT_S)
            original = original_destination(connection)
            connection.sendall(token)
        if client.recv(len(token), socket.MSG_WAITALL) != token:
            return ""
    except OSError:
        return ""
    kept = " with its destination kept" if original == destination else ""
    return f"was answered{kept} by a stand-in"


def _shown(destination: tuple[str, int]) -> str:
    address, port = destination
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


# === where to, and who ===


def _ends(config: RedirectConfig, version: int) -> Ends | None:
    """Addresses that no list of the configuration ignores, if there are any."""
    ignored = (*config.inbound_subnets_to_ignore, *config.outbound_subnets_to_ignore)
    for text in _NETWORKS[version]:
        network = parse_subnet(text)
        if not any(_overlap(network, subnet) for subnet in ignored):
            head = network.address.removesuffix("0")
            return Ends(f"{head}1", f"{head}2")
    return None


def _overlap(one: Subnet, other: Subnet) -> bool:
    if one.version != other.version:
        return False
    (low, high), (first, last) = span(one), span(other)
    return low <= last and first <= high


def _inbound_port(config: RedirectConfig, facts: Facts) -> int:
    candidates: Sequence[int] = config.ports_to_redirect or range(1024, MAX_PORT + 1)
    return _port(candidates, config.inbound_ports_to_ignore, config, facts)


def _outbound_port(config: RedirectConfig, facts: Facts) -> int:
    candidates = range(1024, MAX_PORT + 1)
    return _port(candidates, config.outbound_ports_to_ignore, config, facts)


def _port(
    candidates: Sequence[int],
    ignored: Sequence[PortRange],
    config: RedirectConfig,
    facts: Facts,
) -> int:
    """A port that is redirected, if possible one on which nobody listens."""
    redirected = [
        p for p in candidates if not any(r.low <= p <= r.high for r in ignored)
    ]
    if not redirected:
        raise NoOutside("every port is ignored: there is nothing to connect to")
    taken = {listener.port for listener in facts.listeners or ()}
    taken |= {config.inbound_port, config.outbound_port}
    free = [port for port in redirected if port not in taken]
    return random.choice(free or redirected)  # noqa: S311  (any will do)


def _other_than(ids: Sequence[int]) -> int:
    return next(stranger for stranger in _STRANGERS if stranger not in ids)
