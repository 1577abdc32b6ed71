"""Who answers a client that connects to the pod, and with which original port."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from answers import app_at, proxy_for
from installed import install

from proxyinit.lab import POD, PROXY_UID, Answer, Lab, ask

PORTS = ("-p", "4143", "-o", "4140")
LINKERD = (*PORTS, "-u", "2102")


@dataclass(frozen=True, kw_only=True)
class Case:
    """Arguments, and which ports then lead to the application and to the proxy."""

    arguments: tuple[str, ...]
    app: tuple[int, ...] = ()
    proxy: tuple[int, ...] = ()


def ignore(*items: str) -> tuple[str, ...]:
    return ("--inbound-ports-to-ignore", ",".join(items))


FOURTEEN = tuple(range(6001, 6015))
FIFTEEN = (*FOURTEEN, 6015)
SIXTEEN = (*FIFTEEN, 6016)
TWELVE_RANGES = tuple((low, low + 2) for low in range(7000, 7120, 10))

PORT_CASES = [
    pytest.param(
        Case(arguments=(), proxy=(1, 22, 80, 4140, 4143, 4190, 8080, 65535)),
        id="any port, served or not, the proxy's own included",
    ),
    pytest.param(
        Case(
            arguments=ignore("4190", "4191"),
            app=(4190, 4191),
            proxy=(4189, 4192, 8080),
        ),
        id="ignored ports and their neighbours",
    ),
    pytest.param(
        Case(
            arguments=ignore("6000-6003"),
            app=(6000, 6001, 6003),
            proxy=(5999, 6004),
        ),
        id="both ends of an ignored range belong to it",
    ),
    pytest.param(
        Case(arguments=ignore("1", "65535"), app=(1, 65535), proxy=(2, 65534)),
        id="the lowest and the highest port",
    ),
    pytest.param(
        Case(arguments=ignore("1-65535"), app=(1, 4143, 8080, 65535)),
        id="all ports ignored, the proxy's as well",
    ),
    pytest.param(
        Case(arguments=ignore("5000-5000"), app=(5000,), proxy=(4999, 5001)),
        id="a range of one port",
    ),
    pytest.param(
        Case(
            arguments=(*ignore("4190", " 4191 "), *ignore("4567-4568"), *ignore("25")),
            app=(4190, 4191, 4567, 4568, 25),
            proxy=(4569, 8080),
        ),
        id="lists with blanks, by comma and by repetition",
    ),
    pytest.param(
        Case(
            arguments=ignore(*map(str, FIFTEEN)),
            app=FIFTEEN,
            proxy=(6000, 6016),
        ),
        id="fifteen ports, one multiport full",
    ),
    pytest.param(
        Case(
            arguments=ignore(*map(str, SIXTEEN)),
            app=SIXTEEN,
            proxy=(6000, 6017),
        ),
        id="sixteen ports, one more than a multiport holds",
    ),
    pytest.param(
        Case(
            arguments=ignore(*map(str, FOURTEEN), "6020-6022", "6030"),
            app=(*FOURTEEN, 6020, 6021, 6022, 6030),
            proxy=(6000, 6015, 6019, 6023, 6029, 6031),
        ),
        id="a range that would begin in the fifteenth slot",
    ),
    pytest.param(
        Case(
            arguments=ignore(*(f"{low}-{high}" for low, high in TWELVE_RANGES)),
            app=tuple(port for ends in TWELVE_RANGES for port in ends),
            proxy=(6999, 7003, 7063, 7069, 7073, 7109, 7113),
        ),
        id="twelve ranges in two multiports",
    ),
    pytest.param(
        Case(
            arguments=("-r", "9090", "-r", "9099, 80"),
            app=(8080, 9091, 9098, 65535),
            proxy=(9090, 9099, 80),
        ),
        id="-r redirects what it lists and nothing else",
    ),
    pytest.param(
        Case(
            arguments=("-r", "9090,9091,9092", *ignore("9091", "9000-9080")),
            app=(9091, 9050, 8080),
            proxy=(9090, 9092),
        ),
        id="an ignored port stays ignored though -r lists it",
    ),
    pytest.param(
        Case(arguments=("-r", "9090", *ignore("9000-9099")), app=(9090, 8080)),
        id="a range ignores all that -r lists",
    ),
    pytest.param(
        Case(arguments=("-r", "4143"), app=(8080,), proxy=(4143,)),
        id="the proxy's own port in -r",
    ),
    pytest.param(
        Case(
            arguments=("-r", ",".join(str(port) for port in range(9000, 9020))),
            app=(8999, 9020),
            proxy=tuple(range(9000, 9020)),
        ),
        id="twenty ports in -r",
    ),
    pytest.param(
        Case(arguments=("--outbound-ports-to-ignore", "8080"), proxy=(8080,)),
        id="ports ignored for outbound are not ignored for inbound",
    ),
]


@pytest.mark.parametrize("case", PORT_CASES)
def test_who_answers_at_which_port(
    lab: Lab, mode: str, version: int, case: Case
) -> None:
    """The proxy gets what is redirected, with its original port; the rest goes on."""
    lab.proxy()
    lab.app(*(port for port in case.app + case.proxy if port not in (4140, 4143)))
    install(lab.pod, *LINKERD, *case.arguments, mode=mode)

    seen = {p: lab.inbound(p, version=version) for p in case.app + case.proxy}

    expected = {port: app_at(port) for port in case.app}
    if 4143 in case.app:  # the proxy listens there, reached directly or not
        expected[4143] = proxy_for(version, 4143)
    expected |= {port: proxy_for(version, port) for port in case.proxy}
    assert seen == expected


def test_every_port_of_the_pod_reaches_the_proxy_on_other_ports(
    lab: Lab, mode: str, version: int
) -> None:
    """The proxy's ports are the ones given, not Linkerd's."""
    lab.proxy(inbound=15006, outbound=15001)
    lab.app(8080, 4143)
    install(lab.pod, "-p", "15006", "-o", "15001", "-u", str(PROXY_UID), mode=mode)
    seen = [lab.inbound(port, version=version) for port in (8080, 4143, 15001)]
    assert seen == [
        Answer("proxy", 15006, (POD[version], port)) for port in (8080, 4143, 15001)
    ]


def test_without_a_proxy_nobody_answers(lab: Lab, mode: str, version: int) -> None:
    """While the proxy is not up the application is not reached past it."""
    lab.app(8080)
    install(lab.pod, *LINKERD, mode=mode)
    with pytest.raises(ConnectionRefusedError):
        lab.inbound(8080, version=version)


def test_one_client_port_to_several_ports_of_the_pod(
    lab: Lab, mode: str, version: int
) -> None:
    """The proxy tells the connections apart though all are sent to its one port."""
    ports = (8080, 8081, 8082)
    lab.proxy()
    install(lab.pod, *LINKERD, mode=mode)
    with contextlib.ExitStack() as stack:
        opened = lab.client.run(connect_from_one_port, POD[version], ports, stack)
        said = [json.loads(connection.makefile().readline()) for connection in opened]
    assert [(answer["who"], answer["original"]) for answer in said] == [
        ("proxy", [POD[version], port]) for port in ports
    ]


def connect_from_one_port(
    address: str, ports: Sequence[int], stack: contextlib.ExitStack
) -> list[socket.socket]:
    """Connections that differ in nothing but the port they go to."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    opened: list[socket.socket] = []
    for port in ports:
        connection = stack.enter_context(socket.socket(family))
        connection.settimeout(5)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        connection.bind(opened[0].getsockname()[:2] if opened else ("", 0))
        connection.connect((address, port))
        opened.append(connection)
    return opened


# === families ===


def test_without_ipv6_only_ipv4_is_redirected(lab: Lab, mode: str) -> None:
    """--ipv6=false leaves IPv6 to the application."""
    lab.proxy()
    lab.app(8080)
    install(lab.pod, *LINKERD, "--ipv6=false", mode=mode)
    assert lab.inbound(8080, version=4) == proxy_for(4, 8080)
    assert lab.inbound(8080, version=6) == app_at(8080)


def test_original_address_is_the_one_connected_to(
    lab: Lab, mode: str, version: int
) -> None:
    """A pod with two addresses: the proxy learns which one was meant."""
    second = {4: "10.1.0.3", 6: "fd00:1::3"}[version]
    lab.proxy()
    lab.app(8080)
    lab.pod.add_address("eth0", second, {4: 24, 6: 64}[version])
    install(lab.pod, *LINKERD, mode=mode)
    answer = lab.client.run(ask, second, 8080)
    assert answer == Answer("proxy", 4143, (second, 8080))


def test_link_local_address(lab: Lab, mode: str) -> None:
    """A neighbour that knows the pod by its link-local address gets the proxy, too."""
    lab.proxy()
    lab.app(8080)
    lab.client.add_address("eth0", "fe80::76", 64)
    lab.pod.add_address("eth0", "fe80::77", 64)
    install(lab.pod, *LINKERD, mode=mode)

    def answer() -> str:
        # Unlike `ask` this looks up the interface that the address names.
        with socket.create_connection(("fe80::77%eth0", 8080), 5) as connection:
            return connection.makefile().readline()

    said = json.loads(lab.client.run(answer))
    expected = {"who": "proxy", "port": 4143, "original": ["fe80::77", 8080]}
    assert said == expected
