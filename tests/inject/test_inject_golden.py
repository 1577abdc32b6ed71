"""Whole patches, one file for each variant of the containers.

To renew the golden files after a change that is meant, and look at the difference:
``REFRESH_GOLDEN=1 .venv/bin/pytest tests/inject/test_inject_golden.py;
git diff tests/inject/golden``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonpatch
import kubernetes_validate  # type: ignore[import-untyped]  # has no types
import pytest

from proxyinit.inject import patch, values, workload
from proxyinit.inject.decision import Origin, Reason, decide
from proxyinit.inject.injection import Request, inject
from proxyinit.inject.owner import Owner
from proxyinit.inject.testing import pod

GOLDEN = Path(__file__).with_name("golden")
KUBERNETES = "1.33"
C = "config.linkerd.io/"

MOUNT = {
    "name": "kube-api-access",
    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    "readOnly": True,
}
CONTAINER = {
    "name": "web",
    "image": "example/web:1",
    "ports": [{"containerPort": 8080}, {"containerPort": 3306, "name": "mysql"}],
    "readinessProbe": {"httpGet": {"path": "/", "port": 9090}},
    "securityContext": {"capabilities": {"add": ["SYS_TIME"], "drop": ["NET_RAW"]}},
    "volumeMounts": [MOUNT],
}
FULL = {
    "containers": [CONTAINER, {"name": "side", "image": "example/side:1"}],
    "initContainers": [{"name": "setup", "image": "example/setup:1"}],
    "volumes": [{"name": "kube-api-access", "emptyDir": {}}],
}
QUOTES = 'info,linkerd[name="x"]=debug\n\t~1/~0 <a+b> \\ "' + "\N{GRINNING FACE}"

CASES: dict[str, tuple[dict[str, Any], dict[str, str], dict[str, Any], dict[str, str]]]
CASES = {
    # name: (values of the chart, the pod's annotations, its spec, the namespace's)
    "native-sidecar": ({}, {}, FULL, {}),
    "bare-pod": ({}, {}, {}, {}),
    "not-native": ({"proxy": {"nativeSidecar": False}}, {}, FULL, {}),
    "not-native-no-await": (
        {"proxy": {"nativeSidecar": False, "waitBeforeExitSeconds": 30}},
        {f"{C}proxy-await": "disabled"},
        FULL,
        {},
    ),
    "cni": ({"cniEnabled": True}, {}, FULL, {}),
    "cni-not-native-ipv6": (
        {"cniEnabled": True, "disableIPv6": False, "proxy": {"nativeSidecar": False}},
        {},
        {},
        {},
    ),
    "ipv6": ({"disableIPv6": False}, {}, {}, {}),
    "legacy": ({"proxyInit": {"iptablesMode": "legacy"}}, {}, {}, {}),
    "run-as-root": ({"proxyInit": {"runAsRoot": True}}, {}, {}, {}),
    "privileged": ({"proxyInit": {"privileged": True}}, {}, {}, {}),
    "close-wait": (
        {"proxyInit": {"runAsRoot": True}},
        {f"{C}close-wait-timeout": "1h0m30s"},
        {},
        {},
    ),
    "gid": ({"proxy": {"gid": 1000700001, "uid": 1000700000}}, {}, {}, {}),
    "debug": (
        {"debugContainer": {"image": {"version": "d1", "pullPolicy": "Always"}}},
        {f"{C}enable-debug-sidecar": "true"},
        {},
        {},
    ),
    "tracing": (
        {
            "proxy": {
                "tracing": {
                    "enabled": True,
                    "collector": {
                        "endpoint": "collector.traces:4317",
                        "meshIdentity": {
                            "serviceAccountName": "collector",
                            "namespace": "traces",
                        },
                    },
                    "labels": {"k8s.pod.uid": "$(_pod_uid)"},
                }
            }
        },
        {"resource.opentelemetry.io/service.version": "1"},
        {},
        {},
    ),
    "ingress": ({}, {}, {}, {"linkerd.io/inject": "ingress"}),
    "own-token": (
        {"identity": {"serviceAccountTokenProjection": False}},
        {},
        FULL,
        {},
    ),
    "own-init-image": (
        {
            "proxyInit": {
                "image": {"name": "example/proxy-init", "version": "2"},
                "xtMountPath": {"mountPath": "/run", "name": "locks"},
            }
        },
        {f"{C}skip-outbound-subnets": "10.0.0.0/8", f"{C}skip-subnets": "fd00::/8"},
        {},
        {f"{C}skip-inbound-subnets": "192.168.0.0/16"},
    ),
    "resources": (
        {"proxy": {"resources": {"cpu": {"request": "100m"}}}},
        {f"{C}proxy-memory-limit": "250Mi", f"{C}proxy-cpu-limit": "1500m"},
        {},
        {f"{C}proxy-cpu-request": "1"},
    ),
    "quotes": ({}, {}, {}, {f"{C}proxy-log-level": QUOTES, f"{C}access-log": QUOTES}),
}


def made(case: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The pod of a case, and the patch that injects it."""
    chart, annotations, spec, namespace = CASES[case]
    document = pod(annotations=annotations or None, **spec)
    found = inject(
        Request(
            workload=workload.read(document),
            values=values.load(
                {"linkerdVersion": "v1.2.3", **chart}, trust_anchors="ANCHORS\n\n"
            ),
            origin=Origin.WEBHOOK,
            namespace="shop",
            creator="linkerd/proxy-injector v1.2.3",
            owner=Owner("deployment", "web"),
            ns_annotations={"linkerd.io/inject": "enabled", **namespace},
        )
    )
    assert json.loads(found.json) == found.operations
    return document, found.operations


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    """The patch is, word for word, what its file says."""
    file = GOLDEN / f"{case}.json"
    found = json.dumps(made(case)[1], indent=1, ensure_ascii=False) + "\n"
    if "REFRESH_GOLDEN" in os.environ:
        file.write_text(found)

    assert file.read_text() == found


def test_there_is_no_golden_file_too_many() -> None:
    """Each belongs to a case."""
    assert sorted(CASES) == sorted(file.stem for file in GOLDEN.glob("*.json"))


@pytest.mark.parametrize("case", CASES)
def test_patches_make_valid_pods(case: str) -> None:
    """An independent library applies them, and the result is what Kubernetes takes."""
    document, operations = made(case)
    patched = jsonpatch.apply_patch(document, operations)

    assert patched == patch.apply(document, operations)
    kubernetes_validate.validate(_decoded(patched), KUBERNETES, strict=True)


@pytest.mark.parametrize("case", CASES)
def test_a_second_pass_changes_nothing(case: str) -> None:
    """The sidecar is seen; where a plugin redirects, too."""
    document, operations = made(case)
    again = workload.read(jsonpatch.apply_patch(document, operations))
    chart = values.load({"linkerdVersion": "v1", **CASES[case][0]})
    namespace = {"linkerd.io/inject": "enabled"}

    found = decide(again, chart, Origin.WEBHOOK, namespace)
    assert Reason.SIDECAR in found.reasons


def _decoded(value: Any) -> Any:
    """Without nulls, which the API server's decoder drops before it validates."""
    if isinstance(value, dict):
        return {k: _decoded(v) for k, v in value.items() if v is not None}
    return list(map(_decoded, value)) if isinstance(value, list) else value
