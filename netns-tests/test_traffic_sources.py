"""Who answers a client of the pod, by the address that it connects from."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from answers import app_at, proxy_for
from installed import install

from proxyinit.lab import CLIENT, Lab

LINKERD = ("-p", "4143", "-o", "4140", "-u", "2102")
NEAR = {4: "10.1.0.77", 6: "fd00:1::77"}
FAR = {4: "198.51.100.5", 6: "2001:db8::5"}
"""Further addresses of the client."""

Sources = Mapping[str, str]
"""Who answers, by source: "plain", "near", "far" to "app" or "proxy"."""

SUBNET_CASES = [
    pytest.param(
        "10.1.0.77/32,fd00:1::77/128",
        {"plain": "proxy", "near": "app", "far": "proxy"},
        id="one address",
    ),
    pytest.param(
        "10.1.0.0/24,fd00:1::/64",
        {"plain": "app", "near": "app", "far": "proxy"},
        id="the client's network",
    ),
    pytest.param(
        "10.1.0.64/26,fd00:1::40/122",
        {"plain": "proxy", "near": "app", "far": "proxy"},
        id="a prefix between bytes",
    ),
    pytest.param(
        "198.51.100.0/24,192.0.2.0/24, 2001:db8::/32,fd00:9::/32",
        {"plain": "proxy", "near": "proxy", "far": "app"},
        id="several of both families, with blanks",
    ),
    pytest.param(
        "0.0.0.0/0,::/0",
        {"plain": "app", "near": "app", "far": "app"},
        id="everybody",
    ),
    pytest.param(
        "10.1.0.99/25,fd00:1::99/112",
        {"plain": "app", "near": "app", "far": "proxy"},
        id="host bits are cleared",
    ),
]


def answers_by_source(lab: Lab, version: int) -> Sources:
    """Who answers connections to port 8080 from each of three sources."""
    found = {}
    for name, sources in {"plain": CLIENT, "near": NEAR, "far": FAR}.items():
        answer = lab.inbound(8080, version=version, source=sources[version])
        assert answer in (app_at(8080), proxy_for(version, 8080))
        found[name] = answer.who
    return found


@pytest.fixture
def neighbours(lab: Lab) -> Lab:
    """A lab with an application and a client that has three addresses a family."""
    lab.proxy()
    lab.app(8080)
    lab.client.add_address("eth0", NEAR[4], 24)
    lab.client.add_address("eth0", NEAR[6], 64)
    lab.client.add_address("lo", FAR[6], 128)
    return lab


@pytest.mark.parametrize("flag", ["--subnets-to-ignore", "--inbound-subnets-to-ignore"])
@pytest.mark.parametrize(("subnets", "expected"), SUBNET_CASES)
def test_ignored_sources_reach_the_application(
    neighbours: Lab, mode: str, flag: str, subnets: str, expected: Sources
) -> None:
    """By where a client is, in both families from one list."""
    install(neighbours.pod, *LINKERD, flag, subnets, mode=mode)
    assert answers_by_source(neighbours, 4) == expected
    assert answers_by_source(neighbours, 6) == expected


@pytest.mark.parametrize(
    ("subnets", "unaffected"),
    [
        pytest.param("0.0.0.0/0", 6, id="a list of IPv4 leaves IPv6 redirected"),
        pytest.param("::/0", 4, id="a list of IPv6 leaves IPv4 redirected"),
    ],
)
def test_subnets_of_one_family(
    neighbours: Lab, mode: str, subnets: str, unaffected: int
) -> None:
    """The family without a subnet in the list is wholly redirected."""
    install(neighbours.pod, *LINKERD, "--subnets-to-ignore", subnets, mode=mode)
    other = 10 - unaffected
    assert set(answers_by_source(neighbours, unaffected).values()) == {"proxy"}
    assert set(answers_by_source(neighbours, other).values()) == {"app"}


def test_both_flags_for_sources_add_up(
    neighbours: Lab, mode: str, version: int
) -> None:
    """Upstream's flag and ours are one list, each repeatable."""
    install(
        neighbours.pod,
        *LINKERD,
        *("--subnets-to-ignore", f"{NEAR[4]}/32"),
        *("--subnets-to-ignore", f"{NEAR[6]}/128"),
        *("--inbound-subnets-to-ignore", f"{FAR[4]}/32,{FAR[6]}/128"),
        mode=mode,
    )
    expected = {"plain": "proxy", "near": "app", "far": "app"}
    assert answers_by_source(neighbours, version) == expected


def test_ignored_sources_reach_the_ports_that_r_lists(
    neighbours: Lab, mode: str, version: int
) -> None:
    """-r redirects a listed port for all sources but the ignored ones."""
    subnets = f"{NEAR[4]}/32,{NEAR[6]}/128"
    flags = ("-r", "8080", "--subnets-to-ignore", subnets)
    install(neighbours.pod, *LINKERD, *flags, mode=mode)
    expected = {"plain": "proxy", "near": "app", "far": "proxy"}
    assert answers_by_source(neighbours, version) == expected


def test_destinations_ignored_for_outbound_do_not_concern_inbound(
    neighbours: Lab, mode: str, version: int
) -> None:
    """A client inside an ignored destination network still gets the proxy."""
    everywhere = ("--outbound-subnets-to-ignore", "0.0.0.0/0,::/0")
    install(neighbours.pod, *LINKERD, *everywhere, mode=mode)
    assert set(answers_by_source(neighbours, version).values()) == {"proxy"}
