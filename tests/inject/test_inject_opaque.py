"""Opaque and inbound ports: which a pod or a service has, by default and by name."""

from __future__ import annotations

from typing import Any

import pytest

from proxyinit.inject import opaque, values, workload
from proxyinit.inject.workload import Workload

VALUES = values.Values()


def pod(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = ()) -> Workload:
    """A pod of these containers."""
    spec = {"containers": list(containers), "initContainers": list(init)}
    return workload.read({"kind": "Pod", "spec": spec})


def serving(*numbers: int) -> dict[str, Any]:
    """A container that serves on these ports."""
    return {"ports": [{"containerPort": number} for number in numbers]}


@pytest.mark.parametrize(
    ("text", "expected", "mistakes"),
    [
        ("", "", []),
        ("3306", "3306", []),
        (" 25 , 80-90 ", "25,80-90", []),
        ("25,", "25", []),
        ("80-80", "80", []),
        ("0,65535", "0,65535", []),
        ("mysql,25", "3306,25", []),
        ("25,,26", "25,26", [""]),
        ("25,,", "25", [""]),
        ("65536", "", ["65536"]),
        ("90-80,1", "1", ["90-80"]),
        pytest.param("9" * 5000, "", ["9" * 5000], id="more digits than int takes"),
        ("1-2-3,a,-1,+1,1_0,٣", "", ["1-2-3", "a", "-1", "+1", "1_0", "٣"]),
    ],
)
def test_ports_that_people_type(text: str, expected: str, mistakes: list[str]) -> None:
    """Good items count, as numbers; bad ones are told."""
    found, wrong = opaque.parse(text, {"mysql": 3306})

    assert expected == found
    assert mistakes == [item for item, _ in wrong]


def test_names_of_all_containers_count() -> None:
    """Init containers' too."""
    named = {"ports": [{"name": "db", "containerPort": 5432}]}
    found = pod({"ports": [{"name": "web", "containerPort": 80}, {}]}, init=(named,))

    assert opaque.named_ports(found) == {"db": 5432, "web": 80}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(pod(), "", id="none"),
        pytest.param(pod(serving(9090, 80, 11211)), "11211,80,9090", id="as text"),
        pytest.param(pod(serving(80), serving(80, 80)), "80", id="each once"),
        pytest.param(pod(serving(80), init=(serving(99),)), "80,99", id="init too"),
        pytest.param(
            pod(
                {
                    "readinessProbe": {"httpGet": {"port": 8081}},
                    "livenessProbe": {"httpGet": {"port": 8082}},
                    "startupProbe": {"httpGet": {"port": 8083}},
                }
            ),
            "8081,8082",
            id="of probes the two",
        ),
        pytest.param(
            pod(
                {
                    "readinessProbe": {"httpGet": {"port": "http"}},
                    "livenessProbe": {"tcpSocket": {"port": 8082}},
                }
            ),
            "",
            id="no names, no TCP",
        ),
    ],
)
def test_inbound_ports(found: Workload, expected: str) -> None:
    """What the pod declares or is probed on, sorted as text."""
    assert expected == opaque.inbound_ports(found)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(pod(serving(80)), "", id="none of them"),
        pytest.param(pod(serving(3306, 80, 25)), "3306,25", id="in order"),
        pytest.param(pod(serving(25), serving(25)), "25,25", id="twice"),
        pytest.param(pod(serving(25), init=(serving(3306),)), "3306,25", id="init"),
    ],
)
def test_defaults_of_pods(found: Workload, expected: str) -> None:
    """The container ports that the chart has for opaque."""
    assert expected == opaque.default_for_pod(found, VALUES)


def test_ranges_of_the_default_never_match() -> None:
    """The list is compared item by item, as text."""
    ranged = values.load({"proxy": {"opaquePorts": "3000-4000,25"}})

    assert opaque.default_for_pod(pod(serving(3306, 25)), ranged) == "25"


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        pytest.param({"port": 3306}, "3306", id="no target"),
        pytest.param({"port": 3306, "targetPort": 0}, "3306", id="zero is none"),
        pytest.param({"port": 80, "targetPort": 3306}, "80", id="the target decides"),
        pytest.param({"port": 3306, "targetPort": 80}, "", id="and not the port"),
        pytest.param({"port": 3306, "targetPort": "mysql"}, "", id="a name never"),
        pytest.param({"port": 80}, "", id="not opaque"),
    ],
)
def test_defaults_of_services(port: dict[str, Any], expected: str) -> None:
    """The target is looked at, the port is told."""
    service = {"kind": "Service", "spec": {"ports": [port]}}

    assert expected == opaque.default_for_service(service, VALUES)
