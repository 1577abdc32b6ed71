"""What containers have in common, the sidecar's life, and the smaller containers."""

from __future__ import annotations

import pytest

from proxyinit.inject import containers, init_container, proxy_container
from proxyinit.inject.containers import FromPod
from proxyinit.inject.values import Values
from tests.inject.charts import Chart, loaded


@pytest.mark.parametrize(
    ("chart", "connect", "listen"),
    [
        ({}, "1.1.1.1:20001", "0.0.0.0:4140"),
        ({"disableIPv6": False}, "[fd00::1]:20001", "[::]:4140"),
        (
            {"proxy": {"ports": {"outbound": 9999}}},
            "1.1.1.1:20001",
            "0.0.0.0:4140",
        ),
        (
            {"networkValidator": {"connectAddr": "a:1", "listenAddr": "b:2"}},
            "a:1",
            "b:2",
        ),
    ],
    ids=["IPv4", "IPv6", "the proxy's port does not matter", "set"],
)
def test_validator(chart: Chart, connect: str, listen: str) -> None:
    """No volumes, no environment, and upstream's addresses."""
    found = containers.validator(loaded(chart))

    assert found["args"] == [
        *("--log-format", "plain", "--log-level", "debug", "--connect-addr", connect),
        *("--listen-addr", listen, "--timeout", "10s"),
    ]
    assert found["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsGroup": 65534,
        "runAsNonRoot": True,
        "runAsUser": 65534,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert {"env", "volumeMounts", "terminationMessagePolicy"} & set(found) == set()


@pytest.mark.parametrize(
    ("proxy", "lifecycle", "startup", "restart"),
    [
        pytest.param({}, None, True, "Always", id="native"),
        pytest.param({"await": False}, None, False, "Always", id="native, no await"),
        pytest.param(
            {"waitBeforeExitSeconds": 5}, None, True, "Always", id="native never waits"
        ),
        pytest.param(
            {"nativeSidecar": False}, ["postStart"], False, None, id="not native"
        ),
        pytest.param(
            {"nativeSidecar": False, "waitBeforeExitSeconds": 5},
            ["postStart", "preStop"],
            False,
            None,
            id="waits at both ends",
        ),
        pytest.param(
            {"nativeSidecar": False, "await": False}, None, False, None, id="neither"
        ),
    ],
)
def test_life_of_the_sidecar(
    proxy: Chart, lifecycle: list[str] | None, *, startup: bool, restart: str | None
) -> None:
    """What waits for it and what it waits for."""
    found = proxy_container.proxy(loaded({"proxy": proxy}), FromPod(), [])

    assert lifecycle == (sorted(found["lifecycle"]) if "lifecycle" in found else None)
    assert startup is ("startupProbe" in found)
    assert restart == found.get("restartPolicy")


def test_commands_of_the_life_cycle() -> None:
    """Upstream's words."""
    proxy = {"nativeSidecar": False, "waitBeforeExitSeconds": 5}
    found = proxy_container.proxy(loaded({"proxy": proxy}), FromPod(), [])["lifecycle"]

    await_command = ["/usr/lib/linkerd/linkerd-await", "--timeout=2m", "--port=4191"]
    assert found["postStart"] == {"exec": {"command": await_command}}
    assert found["preStop"] == {"exec": {"command": ["/bin/sleep", "5"]}}


def test_resources() -> None:
    """The key stays without any; original texts are kept."""
    assert containers.resources(Values().proxy) is None
    limited = {"cpu": {"limit": "1500m"}, "memory": {"request": "64Mi", "limit": "1e9"}}
    found = loaded({"proxy": {"resources": limited}})

    assert containers.resources(found.proxy) == {
        "limits": {"cpu": "1500m", "memory": "1e9"},
        "requests": {"memory": "64Mi"},
    }


def test_keys_are_sorted() -> None:
    """Patches compare equal to upstream's as text, container by container."""
    base = loaded({"proxy": {"nativeSidecar": False}})
    for made in (
        init_container.init(base, FromPod(("A",), ("B",), ("t", True))),
        containers.validator(base),
        containers.debug(base),
        proxy_container.proxy(base, FromPod(("A",), ("B",), ("t", True)), []),
        proxy_container.proxy(loaded(), FromPod(), []),
    ):
        assert_sorted(made)


def assert_sorted(value: object) -> None:
    """Every object in it has its keys in order."""
    if isinstance(value, dict):
        assert list(value) == sorted(value)
        for item in value.values():
            assert_sorted(item)
    elif isinstance(value, list):
        for item in value:
            assert_sorted(item)
