"""Live connections prove who answers, harm no proxy, and leave nothing behind."""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from installed import PROGRAM, sh

from proxyinit.lab import PROXY_UID, WORLD, Lab, Namespace

ARGUMENTS = ("-p", "4143", "-o", "4140", "-u", str(PROXY_UID))
BOTH = [f"probe {what}, IPv{v}" for v in (4, 6) for what in ("in", "out", "as proxy")]


def install(namespace: Namespace, mode: str, *more: str) -> None:
    done = namespace.exec([PROGRAM, *ARGUMENTS, *more, "--iptables-mode", mode])
    assert done.returncode == 0, done.stderr


def probe(namespace: Namespace, *more: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the checks that are live connections, by name."""
    argv = [PROGRAM, "verify", "--probe", "--format", "json", *more]
    done = namespace.exec(argv)
    assert done.stderr == ""
    checks = json.loads(done.stdout)["namespaces"][0]["checks"]
    return done.returncode, {
        check["name"]: check for check in checks if check["name"].startswith("probe")
    }


def links(namespace: Namespace) -> str:
    return namespace.exec(["ip", "-o", "link"]).stdout


def test_where_no_proxy_runs(lab: Lab, mode: str) -> None:
    """A stand-in on the proxy's ports says the token, and knows where it went."""
    install(lab.pod, mode)
    before = links(lab.pod)
    code, checks = probe(lab.pod)

    assert (code, list(checks)) == (0, BOTH)
    for name in ("in", "out"):
        found = checks[f"probe {name}, IPv4"]["found"]
        port = 4143 if name == "in" else 4140
        assert (
            f"answered with its destination kept by a stand-in on port {port}" in found
        )
    assert {check["state"] for check in checks.values()} == {"ok"}
    assert links(lab.pod) == before


def test_where_the_proxy_runs(lab: Lab, mode: str, version: int) -> None:
    """Its own socket accepts; it serves before, meanwhile and afterwards."""
    install(lab.pod, mode)
    lab.proxy()
    lab.app(8080)
    lab.world(9090)
    code, checks = probe(lab.pod)

    assert (code, list(checks)) == (0, BOTH)
    for name, port in (("in", 4143), ("out", 4140)):
        found = checks[f"probe {name}, IPv{version}"]["found"]
        assert found.endswith(f"was accepted on port {port}")
    assert lab.inbound(8080, version=version).who == "proxy"
    assert lab.outbound(WORLD[version], 9090).who == "proxy"


@pytest.mark.parametrize(
    ("address", "family"),
    [
        pytest.param("127.0.0.1", socket.AF_INET, id="loopback alone"),
        pytest.param("::", socket.AF_INET6, id="one socket for both versions"),
    ],
)
def test_a_proxy_that_accepts_nothing_yet(
    lab: Lab, address: str, family: socket.AddressFamily
) -> None:
    """The kernel's handshake is proof; no program has to take part."""
    install(lab.pod, "nft")

    def listen() -> socket.socket:
        both = family == socket.AF_INET6
        return socket.create_server((address, 4140), family=family, dualstack_ipv6=both)

    with lab.pod.run(listen, uid=PROXY_UID):
        _, checks = probe(lab.pod)

    assert checks["probe out, IPv4"]["found"].endswith("was accepted on port 4140")


def test_what_passes_by_is_caught(lab: Lab, iptables_mode: str) -> None:
    """An ACCEPT in front: the connection reaches the outside, and that is said."""
    install(lab.pod, iptables_mode)
    sh(lab.pod, f"iptables-{iptables_mode} -t nat -I OUTPUT -p tcp -j ACCEPT")
    code, checks = probe(lab.pod)

    assert code == 3
    assert checks["probe out, IPv4"]["state"] == "fail"
    assert "was reached directly: it passed by" in checks["probe out, IPv4"]["found"]
    assert checks["probe out, IPv6"]["state"] == "ok"


def test_what_no_rule_shows_is_caught(lab: Lab, mode: str) -> None:
    """Rules in order and yet no way to the proxy: the firewall drops it."""
    install(lab.pod, mode)
    sh(lab.pod, "iptables-nft -t filter -A INPUT -p tcp --dport 4143 -j REJECT")
    code, checks = probe(lab.pod)

    assert code == 3
    assert checks["probe in, IPv4"]["state"] == "fail"
    assert checks["probe in, IPv6"]["state"] == "ok"


def test_a_loop_is_caught(lab: Lab, iptables_mode: str) -> None:
    """Without its rule the proxy's own connection comes back to it."""
    install(lab.pod, iptables_mode)
    sh(lab.pod, f"iptables-{iptables_mode} -t nat -D PROXY_INIT_OUTPUT 1")
    code, checks = probe(lab.pod, *ARGUMENTS)

    assert code == 3
    assert checks["probe as proxy, IPv4"]["state"] == "fail"
    assert checks["probe as proxy, IPv6"]["state"] == "ok"


@pytest.mark.parametrize("running", [False, True], ids=["no proxy", "a proxy"])
def test_another_program_that_answers_is_caught(lab: Lab, *, running: bool) -> None:
    """Redirected to a port where somebody listens who is not the proxy."""
    install(lab.pod, "nft")
    chain, rule = "PROXY_INIT_OUTPUT 3", "-p tcp -j REDIRECT --to-ports 4150"
    sh(lab.pod, f"iptables-nft -t nat -R {chain} {rule}")
    lab.stand_in(lab.pod, "impostor", (4150,), uid=1000)
    if running:
        lab.proxy()
    code, checks = probe(lab.pod, *ARGUMENTS)

    assert code == 3
    found = checks["probe out, IPv4"]["found"]
    assert "another program answered, not port 4140" in found


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(("-r", "81"), id="one port is redirected"),
        pytest.param(
            (
                *("--inbound-ports-to-ignore", "1-50000"),
                *("--outbound-ports-to-ignore", "1-64000,64010-65535"),
            ),
            id="most ports are ignored",
        ),
        pytest.param(
            (
                *("--subnets-to-ignore", "198.51.100.0/24,2001:db8:5afe::/64"),
                *("--outbound-subnets-to-ignore", "203.0.113.0/24"),
            ),
            id="networks for documentation are ignored",
        ),
        pytest.param(("-u", "0,2102", "-g", "65534"), id="root is the proxy"),
    ],
)
def test_ports_users_and_addresses_that_count(lab: Lab, more: tuple[str, ...]) -> None:
    """What is ignored proves nothing: the probe takes what is redirected."""
    install(lab.pod, "nft", *more)
    code, checks = probe(lab.pod)

    assert code == 0, checks
    assert list(checks) == BOTH


def test_nothing_to_connect_to(lab: Lab) -> None:
    """Where everything is ignored nothing can be proved: could not tell."""
    install(lab.pod, "nft", "--outbound-ports-to-ignore", "1-65535")
    code, checks = probe(lab.pod)

    assert code == 1
    assert [check["state"] for check in checks.values()] == ["unknown"]


def test_a_pod_without_any_network(namespace: Namespace, mode: str) -> None:
    """Neither an address nor a route is needed: the neighbour has both."""
    install(namespace, mode)
    code, checks = probe(namespace)

    assert (code, list(checks)) == (0, BOTH)


def test_without_privileges(lab: Lab) -> None:
    """Who may not lay a cable is told so; nothing is claimed."""
    install(lab.pod, "nft")
    dropped = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-all", "--"]
    argv = [*dropped, PROGRAM, "verify", "--probe"]
    done = lab.pod.exec(argv)

    assert done.returncode == 1
    assert re.search(r"^\?  +probe  +can't lay a cable", done.stdout, re.MULTILINE)
    assert re.search(r"^ok  +rules  +complete", done.stdout, re.MULTILINE)


NEW_LINK, DELETED_LINK = 16, 17
"""RTM_NEWLINK and RTM_DELLINK (linux/rtnetlink.h)."""


@pytest.fixture
def events(namespace: Namespace) -> Iterator[socket.socket]:
    """What happens to the interfaces of a namespace, as it happens."""

    def listen() -> socket.socket:
        link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        link.bind((0, 1))  # RTMGRP_LINK
        return link

    with namespace.run(listen) as link:
        link.settimeout(30)
        yield link


def await_event(events: socket.socket, kind: int, name: str) -> None:
    """Wait for an event of that kind about that interface."""
    while True:
        message = events.recv(65536)
        (found,) = struct.unpack_from("=H", message, 4)
        if found == kind and f"{name}\0".encode() in message:
            return


def test_killed_in_the_middle(namespace: Namespace, events: socket.socket) -> None:
    """The cable goes with the process, whatever ends it."""
    install(namespace, "nft")
    sh(namespace, "iptables-nft -t filter -A INPUT -p tcp -j DROP")
    process = namespace.run(
        lambda: subprocess.Popen(
            [PROGRAM, "verify", "--probe"], stdout=subprocess.DEVNULL
        )
    )
    interface = f"pi{process.pid}"
    await_event(events, NEW_LINK, interface)
    process.kill()
    process.wait()

    await_event(events, DELETED_LINK, interface)
    assert interface not in links(namespace)
