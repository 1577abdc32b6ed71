"""The proxy's environment: order, and each setting with its variable."""

from __future__ import annotations

from typing import Any

import pytest

from proxyinit.inject import values
from proxyinit.inject.env import environment
from proxyinit.inject.errors import Unrenderable
from tests.inject.charts import Chart, loaded


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
