"""The init container: arguments, security context, image and command."""

from __future__ import annotations

import pytest

from proxyinit.inject import init_container, proxy_container
from proxyinit.inject.containers import FromPod
from proxyinit.inject.errors import ValuesError
from tests.inject.charts import ROOT, Chart, loaded

BASE = [
    *("--incoming-proxy-port", "4143", "--outgoing-proxy-port", "4140"),
    *("--proxy-uid", "2102", "--inbound-ports-to-ignore", "4190,4191,4567,4568"),
    *("--outbound-ports-to-ignore", "4567,4568"),
]
NFT = ["--firewall-bin-path", "iptables-nft"]
NFT += ["--firewall-save-bin-path", "iptables-nft-save"]
NO_IPV6 = ["--ipv6=false"]


@pytest.mark.parametrize(
    ("chart", "init", "expected"),
    [
        pytest.param({}, {}, [*NFT, *NO_IPV6, *BASE], id="the chart's defaults"),
        pytest.param(
            {}, {"iptablesMode": "legacy"}, [*NO_IPV6, *BASE], id="legacy says nothing"
        ),
        pytest.param({"disableIPv6": False}, {}, [*NFT, *BASE], id="IPv6"),
        pytest.param(
            {"proxy": {"gid": 5}},
            {},
            [*NFT, *NO_IPV6, *BASE[:6], "--proxy-gid", "5", *BASE[6:]],
            id="gid",
        ),
        pytest.param(
            {"proxy": {"gid": 0, "uid": 0}},
            {"iptablesMode": "legacy"},
            [*NO_IPV6, *BASE[:5], "0", "--proxy-gid", "0", *BASE[6:]],
            id="ids of 0 are ids",
        ),
        pytest.param(
            {},
            {"ignoreInboundPorts": "", "ignoreOutboundPorts": ""},
            [*NFT, *NO_IPV6, *BASE[:7], "4190,4191"],
            id="nothing ignored: no comma, no flag",
        ),
        pytest.param(
            {},
            {
                **ROOT,
                "closeWaitTimeoutSecs": 30,
                "logFormat": "json",
                "logLevel": "debug",
                "skipSubnets": "10.0.0.0/8",
                "skipInboundSubnets": "fd00::/8",
                "skipOutboundSubnets": "1.2.3.4/32",
                "kubeAPIServerPorts": "443,6443",
            },
            [
                *(*NFT, *NO_IPV6, *BASE, "--timeout-close-wait-secs", "30"),
                *("--log-format", "json", "--log-level", "debug"),
                *("--subnets-to-ignore", "10.0.0.0/8"),
                *("--inbound-subnets-to-ignore", "fd00::/8"),
                *("--outbound-subnets-to-ignore", "1.2.3.4/32"),
            ],
            id="all, in order",
        ),
        pytest.param(
            {"proxy": {"uid": 1.0007e9}},
            {},
            [*NFT, *NO_IPV6, *BASE[:5], "1000700000", *BASE[6:]],
            id="large numbers stay whole (OpenShift's uids)",
        ),
    ],
)
def test_arguments_of_the_init_container(
    chart: Chart, init: Chart, expected: list[str]
) -> None:
    """In upstream's order, each value an item of its own."""
    assert expected == init_container.arguments(loaded(chart, **init))


@pytest.mark.parametrize(
    ("init", "elevated", "user"),
    [
        pytest.param({}, False, (True, 65534, 65534), id="neither"),
        pytest.param(
            {"runAsUser": 0, "runAsGroup": 0},
            False,
            (True, 65534, 65534),
            id="0 means nobody",
        ),
        pytest.param(
            {"runAsUser": 7, "runAsGroup": 8}, False, (True, 7, 8), id="a user"
        ),
        pytest.param(ROOT, False, (False, 0, 0), id="root"),
        pytest.param(
            {"privileged": True}, True, (True, 65534, 65534), id="privileged alone"
        ),
        pytest.param(
            {"privileged": True, **ROOT}, True, (False, 0, 0), id="privileged root"
        ),
        pytest.param(
            {"closeWaitTimeoutSecs": 1, **ROOT}, True, (False, 0, 0), id="close-wait"
        ),
    ],
)
def test_security_of_the_init_container(
    init: Chart, *, elevated: bool, user: tuple[bool, int, int]
) -> None:
    """The table of the contract, row by row."""
    found = init_container.init(loaded({}, **init), FromPod())["securityContext"]

    assert found == {
        "allowPrivilegeEscalation": elevated,
        "capabilities": {"add": ["NET_ADMIN", "NET_RAW"]},
        "privileged": elevated,
        "readOnlyRootFilesystem": True,
        "runAsGroup": user[2],
        "runAsNonRoot": user[0],
        "runAsUser": user[1],
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_close_wait_without_root_can_not_be_rendered() -> None:
    """Neither from the values, nor from what became of them."""
    with pytest.raises(ValuesError, match=r"proxyInit\.runAsRoot must be set"):
        loaded({}, closeWaitTimeoutSecs=1)


@pytest.mark.parametrize(
    ("pod", "init", "proxy"),
    [
        pytest.param(
            FromPod(drop=("ALL",)),
            {"add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"]},
            {"drop": ["ALL"]},
            id="ALL stays",
        ),
        pytest.param(
            FromPod(add=("SYS_TIME", "NET_ADMIN"), drop=("NET_RAW", "NET_ADMIN")),
            {"add": ["NET_ADMIN", "NET_RAW", "SYS_TIME", "NET_ADMIN"]},
            {"add": ["SYS_TIME", "NET_ADMIN"], "drop": ["NET_RAW", "NET_ADMIN"]},
            id="what the redirect needs is not dropped",
        ),
        pytest.param(
            FromPod(drop=("CAP_NET_RAW",)),
            {"add": ["NET_ADMIN", "NET_RAW"], "drop": ["CAP_NET_RAW"]},
            {"drop": ["CAP_NET_RAW"]},
            id="by exact text",
        ),
        pytest.param(FromPod(), {"add": ["NET_ADMIN", "NET_RAW"]}, None, id="none"),
    ],
)
def test_capabilities_of_the_pod(
    pod: FromPod, init: Chart, proxy: Chart | None
) -> None:
    """The first container's go to both, filtered for the one that redirects."""
    base = loaded()

    found = init_container.init(base, pod)["securityContext"]["capabilities"]
    assert init == found
    sidecar = proxy_container.proxy(base, pod, [])["securityContext"]
    assert proxy == sidecar.get("capabilities")


@pytest.mark.parametrize(
    ("init", "image", "policy", "command"),
    [
        pytest.param(
            {},
            "cr.l5d.io/linkerd/proxy:v1",
            "IfNotPresent",
            ["/usr/lib/linkerd/linkerd2-proxy-init"],
            id="the proxy's image",
        ),
        pytest.param(
            {"image": {"name": "example/proxy-init"}},
            "example/proxy-init:v1",
            "IfNotPresent",
            None,
            id="an image of its own, by its entry point",
        ),
        pytest.param(
            {
                "image": {"name": "i", "version": "2", "pullPolicy": "Always"},
                "command": ["proxy-init"],
            },
            "i:2",
            "Always",
            ["proxy-init"],
            id="image and command",
        ),
        pytest.param(
            {"command": ["/proxy-init", "-w"]},
            "cr.l5d.io/linkerd/proxy:v1",
            "IfNotPresent",
            ["/proxy-init", "-w"],
            id="another command",
        ),
    ],
)
def test_image_and_command_of_the_init_container(
    init: Chart, image: str, policy: str, command: list[str] | None
) -> None:
    """Linkerd's, or ours."""
    found = init_container.init(loaded({}, **init), FromPod())

    assert (image, policy) == (found["image"], found["imagePullPolicy"])
    assert command == found.get("command")
