"""The cases that Linkerd's own suite has for its command line, as facts.

The manifests are ours; the facts are those that its golden files agree on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxyinit.inject.cli import main

Injected = Callable[..., list[dict[str, Any]]]

VALUES = """\
linkerdVersion: dev-undefined
proxy: {image: {version: test-inject-proxy-version}}
debugContainer: {image: {version: test-inject-debug-version}}
"""
ANCHORS = "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n"
POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: shop
spec:
  containers:
  - name: web
    image: nginx
"""
WORKLOAD = """\
apiVersion: apps/v1
kind: {kind}
metadata:
  name: web
spec:
  template:
    metadata:
      labels: {{app: web}}
    spec:
      containers:
      - name: web
        image: nginx
"""
INIT, PROXY = "linkerd-init", "linkerd-proxy"


@pytest.fixture
def injected(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Injected:
    """The objects that a manifest becomes with --manual and these flags."""

    def call(
        text: str, *flags: str, values: str = "", manual: bool = True
    ) -> list[dict[str, Any]]:
        base = yaml.safe_load(VALUES) | yaml.safe_load(values or "{}")
        (tmp_path / "values").write_text(yaml.safe_dump(base))
        (tmp_path / "ca").write_text(ANCHORS)
        (tmp_path / "it.yaml").write_text(text)
        known = ("--values", f"{tmp_path}/values", "--trust-anchors", f"{tmp_path}/ca")
        mode = ("--manual",) if manual else ()
        status = main(["inject", *mode, *known, *flags, f"{tmp_path}/it.yaml"])
        said = capsys.readouterr()
        assert status == 0, said.err
        return [found for found in yaml.safe_load_all(said.out) if found]

    return call


def pod_of(found: dict[str, Any]) -> dict[str, Any]:
    """The pod template of an object, or the object."""
    spec: dict[str, Any] = found["spec"]
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    template: dict[str, Any] = spec.get("template", found)
    return template


def container(found: dict[str, Any], name: str) -> dict[str, Any]:
    """A container by its name."""
    spec = pod_of(found)["spec"]
    named = {c["name"]: c for c in spec.get("initContainers", []) + spec["containers"]}
    made: dict[str, Any] = named[name]
    return made


def env(found: dict[str, Any]) -> dict[str, str]:
    """The proxy's variables, without the prefix."""
    prefix = "LINKERD2_PROXY_"
    return {
        each["name"].removeprefix(prefix): each.get("value", "")
        for each in container(found, PROXY)["env"]
    }


def names(found: dict[str, Any], field: str) -> list[str]:
    """The names in a list of the pod's spec."""
    return [item["name"] for item in pod_of(found)["spec"][field]]


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        ("Deployment", "linkerd.io/proxy-deployment"),
        ("StatefulSet", "linkerd.io/proxy-statefulset"),
        ("DaemonSet", "linkerd.io/proxy-daemonset"),
        ("ReplicaSet", "linkerd.io/proxy-replicaset"),
        ("ReplicationController", "linkerd.io/proxy-replicationcontroller"),
        ("Job", "linkerd.io/proxy-job"),
    ],
)
def test_workloads(injected: Injected, kind: str, label: str) -> None:
    """Containers, volumes, labels and annotations of every kind with a template."""
    (found,) = injected(WORKLOAD.format(kind=kind))

    metadata = pod_of(found)["metadata"]
    assert names(found, "initContainers") == [INIT, PROXY]
    assert names(found, "containers") == ["web"]
    assert sorted(names(found, "volumes")) == [
        *("linkerd-identity-end-entity", "linkerd-identity-token"),
        "linkerd-proxy-init-xtables-lock",
    ]
    assert metadata["labels"] == {
        "app": "web",
        "linkerd.io/control-plane-ns": "linkerd",
        "linkerd.io/workload-ns": "",
        label: "web",
    }
    assert re.fullmatch(
        "linkerd/cli .+", metadata["annotations"].pop("linkerd.io/created-by")
    )
    assert set(metadata["annotations"]) == {
        *("linkerd.io/proxy-version", "linkerd.io/trust-root-sha256")
    }
    assert found["metadata"] == {"name": "web"}


def test_pods(injected: Injected) -> None:
    """A bare pod says its namespace and has no owner."""
    (found,) = injected(POD)

    assert found["metadata"]["labels"] == {
        "linkerd.io/control-plane-ns": "linkerd",
        "linkerd.io/workload-ns": "shop",
    }


def test_overridden_port(injected: Injected) -> None:
    """Written out it is in containers and annotations; else in annotations alone."""
    (rendered,) = injected(POD, "--admin-port", "1234")
    (annotated,) = injected(POD, "--admin-port", "1234", manual=False)

    assert env(rendered)["ADMIN_LISTEN_ADDR"].endswith(":1234")
    key = "config.linkerd.io/admin-port"
    assert rendered["metadata"]["annotations"][key] == "1234"
    assert annotated["metadata"]["annotations"] == {
        key: "1234",
        "linkerd.io/inject": "enabled",
    }
    assert annotated["spec"] == yaml.safe_load(POD)["spec"]


def test_access_log_and_parameters(injected: Injected) -> None:
    """What only values can say reaches the proxy."""
    (found,) = injected(
        POD,
        values="""
            proxy:
              image: {version: v}
              accessLog: apache
              inbound: {server: {http2: {keepAliveInterval: 7s}}}
              outbound: {tcp: {connect: {someTimeout: 8s}}}
            """,
    )

    assert env(found)["ACCESS_LOG"] == "apache"
    assert env(found)["INBOUND_SERVER_HTTP2_KEEP_ALIVE_INTERVAL"] == "7s"
    assert env(found)["OUTBOUND_TCP_CONNECT_SOME_TIMEOUT"] == "8s"


def test_no_init_container(injected: Injected) -> None:
    """Where a CNI plugin redirects, a validator proves that it did."""
    (found,) = injected(POD, values="cniEnabled: true")

    assert names(found, "initContainers") == ["linkerd-network-validator", PROXY]
    assert "linkerd-proxy-init-xtables-lock" not in names(found, "volumes")


def test_ingress(injected: Injected) -> None:
    """Each pod of a stream is in ingress mode, and says so."""
    first, second = injected(f"{POD}---\n{POD}", "--ingress")

    for found in (first, second):
        assert env(found)["INGRESS_MODE"] == "true"
        assert found["metadata"]["annotations"]["linkerd.io/inject"] == "ingress"


def test_debug(injected: Injected) -> None:
    """The flag adds the container, in the version that values say."""
    (found,) = injected(POD, "--enable-debug-sidecar")

    assert container(found, "linkerd-debug")["image"].endswith(
        "/debug:test-inject-debug-version"
    )


def test_ignored_and_opaque_ports(injected: Injected) -> None:
    """Ports to skip replace the default's; opaque ones are as they were typed."""
    (found,) = injected(
        POD,
        *("--skip-inbound-ports", "22,8100-8102", "--skip-outbound-ports", "5432"),
        *("--opaque-ports", "3000,5000-6000,mysql"),
    )

    args = container(found, INIT)["args"]
    assert args[args.index("--inbound-ports-to-ignore") + 1] == "4190,4191,22,8100-8102"
    assert args[args.index("--outbound-ports-to-ignore") + 1] == "5432"
    ports = "3000,5000-6000,mysql"
    assert env(found)["INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION"] == ports
    annotations = found["metadata"]["annotations"]
    assert annotations["config.linkerd.io/opaque-ports"] == ports


def test_opaque_ports_of_the_manifest_are_read(injected: Injected) -> None:
    """In an annotation names are looked up, and unknown ones left out."""
    text = POD.replace(
        "  namespace: shop\n",
        "  annotations: {config.linkerd.io/opaque-ports: '1,db,none'}\n",
    ).replace("    image: nginx\n", "    ports: [{containerPort: 5432, name: db}]\n")

    (found,) = injected(text)

    assert env(found)["INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION"] == "1,5432"


def test_policy(injected: Injected) -> None:
    """Without containers the policy is an annotation for the webhook."""
    flags = ("--default-inbound-policy", "all-authenticated")

    for text in (POD, WORKLOAD.format(kind="Deployment")):
        (found,) = injected(text, *flags, manual=False)

        assert pod_of(found)["metadata"]["annotations"] == {
            "config.linkerd.io/default-inbound-policy": "all-authenticated",
            "linkerd.io/inject": "enabled",
        }


def test_capabilities(injected: Injected) -> None:
    """The first container's are the init container's and the proxy's too."""
    text = POD + (
        "    securityContext: {capabilities: {add: [SYS_TIME], drop: [ALL, NET_RAW]}}\n"
    )

    (found,) = injected(text)

    assert container(found, INIT)["securityContext"]["capabilities"] == {
        "add": ["NET_ADMIN", "NET_RAW", "SYS_TIME"],
        "drop": ["ALL"],
    }
    assert container(found, PROXY)["securityContext"]["capabilities"] == {
        "add": ["SYS_TIME"],
        "drop": ["ALL", "NET_RAW"],
    }


@pytest.mark.parametrize(
    "more",
    [
        pytest.param("    resources: {}\n", id="empty resources"),
        pytest.param("  hostNetwork: false\n", id="hostNetwork false"),
        pytest.param("  volumes: []\n  initContainers: []\n", id="empty lists"),
        pytest.param("  volumes:\n  initContainers: null\n", id="null lists"),
    ],
)
def test_what_says_nothing_changes_nothing(injected: Injected, more: str) -> None:
    """Fields at their defaults are as if they were not there."""
    (plain,) = injected(POD)
    (found,) = injected(POD + more)

    for part in ("initContainers", "volumes"):
        assert found["spec"][part] == plain["spec"][part]


def test_requests(injected: Injected) -> None:
    """The proxy's resources are the init container's as well."""
    (found,) = injected(
        POD,
        *("--proxy-cpu-request", "110m", "--proxy-cpu-limit", "160m"),
        *("--proxy-memory-request", "100Mi", "--proxy-memory-limit", "150Mi"),
    )

    resources = {
        "limits": {"cpu": "160m", "memory": "150Mi"},
        "requests": {"cpu": "110m", "memory": "100Mi"},
    }
    assert container(found, INIT)["resources"] == resources
    assert container(found, PROXY)["resources"] == resources


@pytest.mark.parametrize("metadata", ["", "        metadata: {}\n"])
def test_cron_jobs(injected: Injected, metadata: str) -> None:
    """Their templates are deeper, and often without metadata."""
    text = (
        "apiVersion: batch/v1beta1\nkind: CronJob\nmetadata: {name: job}\n"
        "spec:\n  jobTemplate:\n    spec:\n      template:\n"
        + metadata
        + "        spec:\n          containers: [{name: a}]\n"
    )

    (annotated,) = injected(text, manual=False)
    (rendered,) = injected(text)

    assert pod_of(annotated)["metadata"] == {
        "annotations": {"linkerd.io/inject": "enabled"}
    }
    labels = pod_of(rendered)["metadata"]["labels"]
    assert labels["linkerd.io/proxy-cronjob"] == "job"


def test_namespaces(injected: Injected) -> None:
    """They pass on what flags say, and are enabled always."""
    text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"

    (plain,) = injected(text, manual=False)
    (with_flag,) = injected(text, "--admin-port", "1234", manual=False)

    assert plain["metadata"]["annotations"] == {"linkerd.io/inject": "enabled"}
    assert with_flag["metadata"]["annotations"] == {
        "config.linkerd.io/admin-port": "1234",
        "linkerd.io/inject": "enabled",
    }


def test_own_init_containers_come_later(injected: Injected) -> None:
    """They find the redirect and a proxy that runs."""
    (found,) = injected(POD + "  initContainers:\n  - name: envoy-initconfig\n")

    assert names(found, "initContainers") == [INIT, PROXY, "envoy-initconfig"]


def test_the_control_plane(injected: Injected) -> None:
    """Its own pods are injected by hand alone."""
    text = WORKLOAD.format(kind="Deployment").replace(
        "{app: web}", "{linkerd.io/control-plane-component: tap}"
    )

    (found,) = injected(text, "--enable-debug-sidecar")

    assert names(found, "containers") == ["web", "linkerd-debug"]
    labels = pod_of(found)["metadata"]["labels"]
    assert labels["linkerd.io/control-plane-component"] == "tap"


def test_what_is_not_ours_comes_back(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Objects of other kinds keep even what would be a mistake in ours."""
    text = (
        "kind: Widget\nmetadata: {name: a, name: b}\nspec: !own {x: 1}\n---\n"
        "kind: list\nitems: [{kind: Pod}]\n---\n[kind, Pod]\n---\nword\n---\n"
        "kind: 7\n---\nkind: {Pod: 1}\n---\n"
    )
    (tmp_path / "it").write_text(text)

    assert main(["inject", str(tmp_path / "it")]) == 0

    out, err = capsys.readouterr()
    assert out == text
    missing = 'document missing "kind" field, skipped\n'
    assert err.endswith('\nwidget "a" skipped\nlist "" skipped\n' + missing * 4 + "\n")


def test_two_kinds_are_none(tmp_path: Path) -> None:
    """Which one counts is up to the reader: refused."""
    (tmp_path / "it").write_text("kind: Widget\nkind: Pod\n")

    assert main(["inject", str(tmp_path / "it")]) == 1


def test_a_merged_kind_is_found(injected: Injected) -> None:
    """An object whose kind is merged into it is injected, too."""
    text = (
        "x-base: &base {apiVersion: v1, kind: Pod}\n<<: *base\n"
        "metadata: {name: a}\nspec: {containers: [{name: a}]}\n"
    )

    (found,) = injected(text)

    assert names(found, "initContainers") == [INIT, PROXY]


def test_case_of_kinds_and_groups_make_no_difference(injected: Injected) -> None:
    """Kinds are compared without case, API groups not at all."""
    text = POD.replace("kind: Pod", "kind: POD").replace("v1", "apps/v9", 1)

    (found,) = injected(text)

    assert names(found, "initContainers") == [INIT, PROXY]
