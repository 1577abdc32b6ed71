"""Who answers a process of the pod, by its owner and its destination."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from installed import install

from proxyinit.lab import CLIENT, POD, PROXY_UID, WORLD, Answer, Lab

PORTS = ("-p", "4143", "-o", "4140")
LINKERD = (*PORTS, "-u", "2102")
FURTHER = {4: "203.0.113.8", 6: "2001:db8::8"}
"""The neighbour of WORLD's address."""
MAX_ID = 4294967294


def proxy_for(address: str, port: int) -> Answer:
    """The proxy's answer to a connection to this destination."""
    return Answer("proxy", 4140, (address, port))


# === who connects ===


@dataclass(frozen=True, kw_only=True)
class Owners:
    """Arguments, and which (uid, gid) then leave directly and through the proxy."""

    arguments: tuple[str, ...]
    world: tuple[tuple[int, int], ...] = ()
    proxy: tuple[tuple[int, int], ...] = ()


OWNER_CASES = [
    pytest.param(
        Owners(
            arguments=("-u", "2102"),
            world=((2102, 1000), (2102, 0)),
            proxy=((1000, 1000), (0, 0), (2101, 2102), (MAX_ID, 7)),
        ),
        id="the proxy's user in any group",
    ),
    pytest.param(
        Owners(
            arguments=("-g", "2103"),
            world=((1000, 2103), (0, 2103), (2102, 2103)),
            proxy=((1000, 1000), (2103, 1000), (2102, 2102), (0, 0)),
        ),
        id="the proxy's group with any user",
    ),
    pytest.param(
        Owners(
            arguments=("-u", "2102", "-g", "2103"),
            world=((2102, 1), (1, 2103), (2102, 2103)),
            proxy=((2103, 2102), (1000, 1000)),
        ),
        id="the proxy's user or the proxy's group",
    ),
    pytest.param(
        Owners(
            arguments=("-u", "2102, 3000", "-u", "4000"),
            world=((2102, 1), (3000, 1), (4000, 1)),
            proxy=((1000, 1), (2999, 1)),
        ),
        id="several users",
    ),
    pytest.param(
        Owners(
            arguments=("-g", "2102,3000", "-g", "4000"),
            world=((1, 2102), (1, 3000), (1, 4000)),
            proxy=((2102, 1), (1, 2999)),
        ),
        id="several groups",
    ),
    pytest.param(
        Owners(arguments=("-u", "0"), world=((0, 0), (0, 5)), proxy=((2102, 0),)),
        id="root is honoured as the proxy's user",
    ),
    pytest.param(
        Owners(arguments=("-g", "0"), world=((0, 0), (5, 0)), proxy=((0, 2102),)),
        id="group 0 is honoured as the proxy's group",
    ),
    pytest.param(
        Owners(arguments=("-u", str(MAX_ID)), world=((MAX_ID, 1),), proxy=((2102, 1),)),
        id="the highest user id there is",
    ),
    pytest.param(
        Owners(arguments=(), proxy=((2102, 2102), (0, 0), (1000, 1000))),
        id="nobody is exempt when nobody is named",
    ),
]


@pytest.mark.parametrize("owners", OWNER_CASES)
def test_whose_connections_pass_the_proxy(
    lab: Lab, mode: str, version: int, owners: Owners
) -> None:
    """The proxy gets everybody's connections with their destination, not its own."""
    lab.proxy()
    lab.world(9090)
    install(lab.pod, *PORTS, *owners.arguments, mode=mode)

    seen = {
        (uid, gid): lab.outbound(WORLD[version], 9090, uid=uid, gid=gid)
        for uid, gid in owners.world + owners.proxy
    }

    expected = dict.fromkeys(owners.world, Answer("world", 9090))
    expected |= dict.fromkeys(owners.proxy, proxy_for(WORLD[version], 9090))
    assert seen == expected


# === where to ===


@dataclass(frozen=True, kw_only=True)
class Where:
    """Arguments, and which destinations then are reached directly, and which not.

    Destinations are ports of WORLD, or "further" and "client" at port 9090.
    """

    arguments: tuple[str, ...]
    world: tuple[int | str, ...] = ()
    proxy: tuple[int | str, ...] = ()


SIXTEEN = tuple(range(6001, 6017))

WHERE_CASES = [
    pytest.param(
        Where(arguments=(), proxy=(1, 80, 4140, 4143, 65535, "further", "client")),
        id="any destination, the proxy's own ports included",
    ),
    pytest.param(
        Where(
            arguments=("--outbound-ports-to-ignore", "25, 4567-4568,1,65535"),
            world=(25, 4567, 4568, 1, 65535),
            proxy=(24, 26, 4566, 4569, 2, 65534),
        ),
        id="ignored ports and ranges, and their neighbours",
    ),
    pytest.param(
        Where(
            arguments=(
                *("--outbound-ports-to-ignore", ",".join(map(str, SIXTEEN))),
                *("--outbound-ports-to-ignore", "7000-7010"),
            ),
            world=(*SIXTEEN, 7000, 7005, 7010),
            proxy=(6000, 6017, 6999, 7011),
        ),
        id="more ports than a multiport holds",
    ),
    pytest.param(
        Where(arguments=("--inbound-ports-to-ignore", "9090"), proxy=(9090, "client")),
        id="ports ignored for inbound are not ignored for outbound",
    ),
    pytest.param(
        Where(arguments=("-r", "80"), proxy=(80, 81)),
        id="-r is about inbound alone",
    ),
    pytest.param(
        Where(
            arguments=(
                "--outbound-subnets-to-ignore",
                "203.0.113.7/32,2001:db8::7/128",
            ),
            world=(9090, 80),
            proxy=("further", "client"),
        ),
        id="one destination address",
    ),
    pytest.param(
        Where(
            arguments=(
                *("--outbound-subnets-to-ignore", "192.0.2.0/24, 203.0.113.0/24"),
                *("--outbound-subnets-to-ignore", "2001:db8::/32"),
            ),
            world=(9090, "further"),
            proxy=("client",),
        ),
        id="destination networks of both families",
    ),
    pytest.param(
        Where(
            arguments=("--outbound-subnets-to-ignore", "10.0.0.0/8,fd00::/8"),
            world=("client",),
            proxy=(9090, "further"),
        ),
        id="the pod's own network",
    ),
    pytest.param(
        Where(
            arguments=("--outbound-subnets-to-ignore", "0.0.0.0/0,::/0"),
            world=(9090, "further", "client"),
        ),
        id="every destination",
    ),
    pytest.param(
        Where(
            arguments=("--subnets-to-ignore", "0.0.0.0/0,::/0"),
            proxy=(9090, "further", "client"),
        ),
        id="sources to ignore are no destinations to ignore",
    ),
    pytest.param(
        Where(
            arguments=(
                *("--outbound-subnets-to-ignore", "10.0.0.0/8,fd00::/8"),
                *("--outbound-ports-to-ignore", "80"),
            ),
            world=("client", 80),
            proxy=(9090, "further"),
        ),
        id="either an ignored port or an ignored destination suffices",
    ),
]


@pytest.mark.parametrize("where", WHERE_CASES)
def test_which_destinations_pass_the_proxy(
    lab: Lab, mode: str, version: int, where: Where
) -> None:
    """The proxy learns the original address and port; the rest is reached itself."""
    pairs = {
        item: (WORLD[version], item)
        if isinstance(item, int)
        else ({"further": FURTHER, "client": CLIENT}[item][version], 9090)
        for item in where.world + where.proxy
    }
    lab.proxy()
    lab.world(*{port for _, port in pairs.values()})
    install(lab.pod, *LINKERD, *where.arguments, mode=mode)

    seen = {item: lab.outbound(*pair) for item, pair in pairs.items()}

    expected = {item: Answer("world", pairs[item][1]) for item in where.world}
    expected |= {item: proxy_for(*pairs[item]) for item in where.proxy}
    assert seen == expected


@pytest.mark.parametrize(
    ("subnets", "unaffected"),
    [
        pytest.param("0.0.0.0/0", 6, id="a list of IPv4 leaves IPv6 redirected"),
        pytest.param("::/0", 4, id="a list of IPv6 leaves IPv4 redirected"),
    ],
)
def test_destinations_of_one_family(
    lab: Lab, mode: str, subnets: str, unaffected: int
) -> None:
    """The family without a subnet in the list is wholly redirected."""
    lab.proxy()
    lab.world(9090)
    install(lab.pod, *LINKERD, "--outbound-subnets-to-ignore", subnets, mode=mode)
    address = WORLD[unaffected]
    assert lab.outbound(address, 9090) == proxy_for(address, 9090)
    assert lab.outbound(WORLD[10 - unaffected], 9090) == Answer("world", 9090)


def test_without_ipv6_only_ipv4_leaves_through_the_proxy(lab: Lab, mode: str) -> None:
    """--ipv6=false leaves IPv6 alone."""
    lab.proxy()
    lab.world(9090)
    install(lab.pod, *LINKERD, "--ipv6=false", mode=mode)
    assert lab.outbound(WORLD[4], 9090) == proxy_for(WORLD[4], 9090)
    assert lab.outbound(WORLD[6], 9090) == Answer("world", 9090)


def test_without_a_proxy_nothing_leaves(lab: Lab, mode: str, version: int) -> None:
    """While the proxy is not up applications do not get past it, ignored ports do."""
    lab.world(9090, 25)
    install(lab.pod, *LINKERD, "--outbound-ports-to-ignore", "25", mode=mode)
    with pytest.raises(ConnectionRefusedError):
        lab.outbound(WORLD[version], 9090)
    assert lab.outbound(WORLD[version], 25) == Answer("world", 25)


# === inside the pod ===


@pytest.mark.parametrize(
    "uid", [pytest.param(1000, id="application"), pytest.param(PROXY_UID, id="proxy")]
)
def test_connections_inside_the_pod_stay_inside(
    lab: Lab, mode: str, version: int, uid: int
) -> None:
    """Loopback, and the pod's own address, lead to the application directly."""
    lab.proxy()
    lab.app(8080)
    install(lab.pod, *LINKERD, mode=mode)
    addresses = {4: ["127.0.0.1", "127.9.8.7", POD[4]], 6: ["::1", POD[6]]}[version]
    seen = {address: lab.outbound(address, 8080, uid=uid) for address in addresses}
    assert seen == dict.fromkeys(addresses, Answer("app", 8080))


def test_proxy_is_spoken_to_inside_the_pod(lab: Lab, mode: str, version: int) -> None:
    """Its ports are ports like others there, and nothing loops."""
    lab.proxy()
    install(lab.pod, *LINKERD, mode=mode)
    local = {4: "127.0.0.1", 6: "::1"}[version]
    for port in (4143, 4140):
        assert lab.outbound(local, port) == Answer("proxy", port, (local, port))
