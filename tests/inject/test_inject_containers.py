"""The containers that are added: arguments, security contexts, environment."""

from __future__ import annotations

from typing import Any

import pytest

from proxyinit.inject import containers, values
from proxyinit.inject.containers import FromPod
from proxyinit.inject.env import environment
from proxyinit.inject.errors import Unrenderable, ValuesError
from proxyinit.inject.values import Values

Chart = dict[str, Any]
ROOT = {"runAsRoot": True}


def loaded(chart: Chart | None = None, **init: Any) -> Values:
    """Values of a chart; `init` are those of proxyInit."""
    return values.load(
        {"linkerdVersion": "v1", **(chart or {}), "proxyInit": init},
        trust_anchors="PEM\n",
    )


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
    assert expected == containers.init_arguments(loaded(chart, **init))


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
    found = containers.init(loaded({}, **init), FromPod())["securityContext"]

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

    found = containers.init(base, pod)["securityContext"]["capabilities"]
    assert init == found
    sidecar = containers.proxy(base, pod, [])["securityContext"]
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
    found = containers.init(loaded({}, **init), FromPod())

    assert (image, policy) == (found["image"], found["imagePullPolicy"])
    assert command == found.get("command")


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
    found = containers.proxy(loaded({"proxy": proxy}), FromPod(), [])

    assert lifecycle == (sorted(found["lifecycle"]) if "lifecycle" in found else None)
    assert startup is ("startupProbe" in found)
    assert restart == found.get("restartPolicy")


def test_commands_of_the_life_cycle() -> None:
    """Upstream's words."""
    proxy = {"nativeSidecar": False, "waitBeforeExitSeconds": 5}
    found = containers.proxy(loaded({"proxy": proxy}), FromPod(), [])["lifecycle"]

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
        containers.init(base, FromPod(("A",), ("B",), ("t", True))),
        containers.validator(base),
        containers.debug(base),
        containers.proxy(base, FromPod(("A",), ("B",), ("t", True)), []),
        containers.proxy(loaded(), FromPod(), []),
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


def variables(chart: Chart | None = None, ports: str = "") -> dict[str, Any]:
    """The environment by name, without the proxy's prefix."""
    found = environment(loaded(chart), ports, {})
    return {
        item["name"].removeprefix("LINKERD2_PROXY_"): item.get(
            "value", item.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        )
        for item in found
    }


DEFAULT_ORDER = """
_pod_name _pod_ns _pod_uid _pod_ip _pod_nodeName _pod_containerName CORES CORES_MIN
SHUTDOWN_ENDPOINT_ENABLED LOG LOG_FORMAT DESTINATION_SVC_ADDR
DESTINATION_PROFILE_NETWORKS POLICY_SVC_ADDR POLICY_WORKLOAD INBOUND_DEFAULT_POLICY
POLICY_CLUSTER_NETWORKS CONTROL_STREAM_INITIAL_TIMEOUT CONTROL_STREAM_IDLE_TIMEOUT
CONTROL_STREAM_LIFETIME INBOUND_CONNECT_TIMEOUT OUTBOUND_CONNECT_TIMEOUT
OUTBOUND_DISCOVERY_IDLE_TIMEOUT INBOUND_DISCOVERY_IDLE_TIMEOUT CONTROL_LISTEN_ADDR
ADMIN_LISTEN_ADDR OUTBOUND_LISTEN_ADDR OUTBOUND_LISTEN_ADDRS INBOUND_LISTEN_ADDR
INBOUND_IPS INBOUND_PORTS DESTINATION_PROFILE_SUFFIXES INBOUND_ACCEPT_KEEPALIVE
OUTBOUND_CONNECT_KEEPALIVE INBOUND_ACCEPT_USER_TIMEOUT OUTBOUND_CONNECT_USER_TIMEOUT
OUTBOUND_METRICS_HOSTNAME_LABELS INBOUND_SERVER_HTTP2_KEEP_ALIVE_INTERVAL
INBOUND_SERVER_HTTP2_KEEP_ALIVE_TIMEOUT OUTBOUND_SERVER_HTTP2_KEEP_ALIVE_INTERVAL
OUTBOUND_SERVER_HTTP2_KEEP_ALIVE_TIMEOUT INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION
DESTINATION_CONTEXT _pod_sa _l5d_ns _l5d_trustdomain IDENTITY_DIR
IDENTITY_TRUST_ANCHORS IDENTITY_TOKEN_FILE IDENTITY_SVC_ADDR IDENTITY_LOCAL_NAME
IDENTITY_SVC_NAME DESTINATION_SVC_NAME POLICY_SVC_NAME
"""


def test_order_of_the_environment() -> None:
    """References are expanded from what stands before them: the order has meaning."""
    assert list(variables()) == DEFAULT_ORDER.split()


@pytest.mark.parametrize(
    ("chart", "expected"),
    [
        (
            {},
            {"LOG": "warn,linkerd=info,hickory=error,[{headers}]=off,[{request}]=off"},
        ),
        (
            {"proxy": {"logHTTPHeaders": "insecure", "logLevel": 'info,[name="x"]'}},
            {"LOG": 'info,[name="x"]'},
        ),
        (
            {"proxy": {"cores": 3, "runtime": {"workers": {"maximum": 9}}}},
            {"CORES": "3", "CORES_MIN": "3", "CORES_MAX": None},
        ),
        (
            {
                "proxy": {
                    "runtime": {"workers": {"maximum": 9, "maximumCPURatio": 0.25}}
                }
            },
            {"CORES": "1", "CORES_MAX": "9", "CORES_MAX_RATIO": "0.25"},
        ),
        (
            {"disableIPv6": False},
            {
                "CONTROL_LISTEN_ADDR": "[::]:4190",
                "ADMIN_LISTEN_ADDR": "[::]:4191",
                "INBOUND_LISTEN_ADDR": "[::]:4143",
                "OUTBOUND_LISTEN_ADDR": "127.0.0.1:4140",
                "OUTBOUND_LISTEN_ADDRS": "127.0.0.1:4140,[::1]:4140",
            },
        ),
        (
            {"clusterDomain": "c.d", "identityTrustDomain": "t.d"},
            {
                "DESTINATION_SVC_ADDR": "linkerd-dst-headless.linkerd.svc.c.d.:8086",
                "POLICY_SVC_ADDR": "linkerd-policy.linkerd.svc.c.d.:8090",
                "DESTINATION_PROFILE_SUFFIXES": "svc.c.d.",
                "_l5d_trustdomain": "t.d",
                "IDENTITY_SVC_ADDR": "linkerd-identity-headless.linkerd.svc.c.d.:8080",
                "IDENTITY_LOCAL_NAME": "$(_pod_sa).$(_pod_ns).serviceaccount.identity."
                "linkerd.t.d",
                "POLICY_SVC_NAME": "linkerd-destination.linkerd.serviceaccount.identity"
                ".linkerd.t.d",
            },
        ),
        ({"clusterDomain": "c.d"}, {"_l5d_trustdomain": "c.d"}),
        (
            {"proxy": {"isGateway": True, "isIngress": True}},
            {"INBOUND_GATEWAY_SUFFIXES": "svc.cluster.local.", "INGRESS_MODE": "true"},
        ),
        (
            {"proxy": {"enableExternalProfiles": True}},
            {"DESTINATION_PROFILE_SUFFIXES": "."},
        ),
        (
            {"proxy": {"disableInboundProtocolDetectTimeout": True}},
            {"INBOUND_DETECT_TIMEOUT": "365d", "OUTBOUND_DETECT_TIMEOUT": None},
        ),
        (
            {"proxy": {"opaquePorts": ""}},
            {"INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION": None},
        ),
        (
            {"identity": {"serviceAccountTokenProjection": False}},
            {
                "IDENTITY_TOKEN_FILE": "/var/run/secrets/kubernetes.io/serviceaccount"
                "/token"
            },
        ),
        (
            {"proxy": {"control": {"streams": {"lifetime": ""}}}},
            {"CONTROL_STREAM_LIFETIME": ""},
        ),
        (
            {"proxy": {"accessLog": "json", "shutdownGracePeriod": "5s"}},
            {"ACCESS_LOG": "json", "SHUTDOWN_GRACE_PERIOD": "5s"},
        ),
        (
            {"proxy": {"inbound": {"http1": {"balancer": {"maxInFlight": 7}}}}},
            {
                "INBOUND_HTTP1_BALANCER_MAX_IN_FLIGHT": "7",
                "INBOUND_SERVER_HTTP2_KEEP_ALIVE_TIMEOUT": None,
            },
        ),
    ],
    ids=str,
)
def test_environment(chart: Chart, expected: dict[str, str | None]) -> None:
    """Each setting with the variable that it becomes; None where there is none."""
    found = variables(chart)

    assert expected == {name: found.get(name) for name in expected}


def test_texts_with_breaks() -> None:
    """The proxy reads the anchors as PEM, and templates end with a newline."""
    found = variables(ports="80,90")

    assert found["IDENTITY_TRUST_ANCHORS"] == "PEM\n"
    assert found["POLICY_WORKLOAD"] == '{"ns":"$(_pod_ns)", "pod":"$(_pod_name)"}\n'
    assert found["INBOUND_PORTS"] == "80,90"


def test_additional_variables_come_last() -> None:
    """Those of everybody, then the experimental ones, word for word."""
    proxy = {
        "additionalEnv": [{"name": "A", "value": "0.1"}],
        "experimentalEnv": [{"name": "B", "valueFrom": {"fieldRef": {}}}],
        "accessLog": "apache",
    }
    found = environment(loaded({"proxy": proxy}), "", {})

    assert [item["name"] for item in found[-3:]] == [
        "LINKERD2_PROXY_ACCESS_LOG",
        "A",
        "B",
    ]
    assert found[-1] == {"name": "B", "valueFrom": {"fieldRef": {}}}


def test_nothing_is_rendered_without_anchors() -> None:
    """A proxy without them could trust nobody."""
    with pytest.raises(Unrenderable, match="Please provide the identity trust anchors"):
        environment(values.load({}, trust_anchors=" \n"), "", {})
