"""Upstream's integration lab, case by case, in every mode and both families."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from upstream_cluster import (
    ALL_PORTS,
    BLACKLISTED,
    EXISTING_RULES,
    NO_RULES,
    SUBNETS,
    WHITELISTED,
    Cluster,
)

CLOSED = (8088, 8888, 8988)
"""What upstream's cases try although nothing listens there."""
LOOPBACK = {4: "127.0.0.1", 6: "::1"}


@pytest.fixture(scope="module")
def cluster(mode: str, version: int) -> Iterator[Cluster]:
    """The lab, ready for the tester."""
    with Cluster(version) as made:
        made.join()
        made.serve()
        made.init(mode)
        for name in (NO_RULES, ALL_PORTS):
            made.publish(name, 8080)
        yield made


# === upstream's cases, in its order ===


def test_no_rules_the_exposed_port(cluster: Cluster) -> None:
    """The container's port answers."""
    assert cluster.get(cluster.address(NO_RULES), 8080) == f"{NO_RULES}:8080"


@pytest.mark.parametrize("port", CLOSED)
def test_no_rules_any_other_port(cluster: Cluster, port: int) -> None:
    """Nothing listens, so the connection is refused."""
    assert cluster.refuses(cluster.address(NO_RULES), port)


def test_no_rules_through_a_service(cluster: Cluster) -> None:
    """The service leads to the container's port."""
    assert cluster.get(cluster.service(NO_RULES), 8080) == f"{NO_RULES}:8080"


@pytest.mark.parametrize("port", CLOSED)
def test_no_rules_through_another_port_of_the_service(
    cluster: Cluster, port: int
) -> None:
    """A service has its own ports only."""
    assert cluster.refuses(cluster.service(NO_RULES), port)


def test_existing_rules(cluster: Cluster) -> None:
    """A pod whose init ran twice becomes ready, its rules standing there once."""
    first, second = cluster.logs[EXISTING_RULES]
    assert "redirect in place" in first
    assert "nothing written" in second
    assert "<<EOF" not in second
    # There is no proxy in that pod: its port 8080 gets what is redirected.
    for port in (8080, *CLOSED):
        answer = cluster.get(cluster.address(EXISTING_RULES), port)
        assert answer == f"{EXISTING_RULES}:8080"


def test_all_ports_the_exposed_port(cluster: Cluster) -> None:
    """The proxy's own port answers."""
    assert cluster.get(cluster.address(ALL_PORTS), 8080) == "proxy"


@pytest.mark.parametrize("port", [*CLOSED, 9090])
def test_all_ports_any_other_port(cluster: Cluster, port: int) -> None:
    """The proxy answers, whether an application listens there or not."""
    assert cluster.get(cluster.address(ALL_PORTS), port) == "proxy"


def test_all_ports_through_a_service(cluster: Cluster) -> None:
    """The service leads to the proxy."""
    assert cluster.get(cluster.service(ALL_PORTS), 8080) == "proxy"


@pytest.mark.parametrize("port", CLOSED)
def test_all_ports_through_another_port_of_the_service(
    cluster: Cluster, port: int
) -> None:
    """A service has its own ports only, whatever its pods redirect."""
    assert cluster.refuses(cluster.service(ALL_PORTS), port)


@pytest.mark.parametrize("port", [8080, 9090, 9099])
def test_some_ports_redirected(cluster: Cluster, port: int) -> None:
    """The proxy answers at its own port and at those listed."""
    assert cluster.get(cluster.address(WHITELISTED), port) == "proxy"


@pytest.mark.parametrize("port", CLOSED)
def test_some_ports_redirected_and_no_others(cluster: Cluster, port: int) -> None:
    """At a port that is not listed nobody answers."""
    assert cluster.refuses(cluster.address(WHITELISTED), port)


@pytest.mark.parametrize("port", [8080, 9090, 9099])
def test_some_ports_ignored_and_others_not(cluster: Cluster, port: int) -> None:
    """The proxy answers outside the ignored range."""
    assert cluster.get(cluster.address(BLACKLISTED), port) == "proxy"


def test_some_ports_ignored(cluster: Cluster) -> None:
    """The application answers inside the ignored range."""
    assert cluster.get(cluster.address(BLACKLISTED), 7070) == f"{BLACKLISTED}:7070"


def test_outbound_from_an_application(cluster: Cluster) -> None:
    """Its call of another pod ends at its own pod's proxy."""
    answer = cluster.call(BLACKLISTED, 7070, cluster.address(NO_RULES), 7070)
    assert answer == f"me:[{BLACKLISTED}:7070]downstream:[proxy]"


def test_outbound_from_the_proxy(cluster: Cluster) -> None:
    """Its call of another pod gets there."""
    answer = cluster.call(BLACKLISTED, 8080, cluster.address(NO_RULES), 9090)
    assert answer == f"me:[proxy]downstream:[{NO_RULES}:9090]"


def test_outbound_to_loopback(cluster: Cluster) -> None:
    """A call inside the pod gets to the application."""
    answer = cluster.call(BLACKLISTED, 7070, LOOPBACK[cluster.version], 9090)
    assert answer == f"me:[{BLACKLISTED}:7070]downstream:[{BLACKLISTED}:9090]"


def test_ignored_subnets(cluster: Cluster) -> None:
    """Clients of an ignored network get to the application."""
    assert cluster.get(cluster.address(SUBNETS), 9090) == f"{SUBNETS}:9090"


def test_ignored_subnets_the_proxy_itself(cluster: Cluster) -> None:
    """They reach the proxy at its own port."""
    assert cluster.get(cluster.address(SUBNETS), 8080) == "proxy"


# === what its cases leave out ===


def test_outbound_to_the_pod_itself(cluster: Cluster) -> None:
    """A call of the pod's own address gets to the application."""
    own = cluster.address(BLACKLISTED)
    answer = cluster.call(BLACKLISTED, 7070, own, 9090)
    assert answer == f"me:[{BLACKLISTED}:7070]downstream:[{BLACKLISTED}:9090]"


def test_outbound_through_two_proxies(cluster: Cluster) -> None:
    """The proxy's call of a redirected pod ends at that pod's proxy."""
    answer = cluster.call(BLACKLISTED, 8080, cluster.address(ALL_PORTS), 9090)
    assert answer == "me:[proxy]downstream:[proxy]"
