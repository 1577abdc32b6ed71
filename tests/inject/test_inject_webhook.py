"""The webhook without its server: what becomes of an object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonpatch
import pytest
import yaml

from proxyinit.inject import annotations as keys
from proxyinit.inject.testing import pod, review, service
from proxyinit.inject.testing.caller import UID
from tests.inject.webhook_bench import DEPLOYMENT, REPLICASET, Bench


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_pod_is_injected(bench: Bench, version: str) -> None:
    """The review comes back as it came, with the patch in it."""
    bench.cluster.owners = {"replicaset/web-5b": DEPLOYMENT}
    document = pod(owner=REPLICASET)
    reply = bench.ask(document, version=version)

    assert reply.status == 200
    found = reply.review
    response = found.pop("response")
    assert found == review(document, version=version)
    assert set(response) == {"uid", "allowed", "patch", "patchType"}
    assert (response["uid"], response["allowed"]) == (UID, True)
    assert response["patchType"] == "JSONPatch"
    patched = jsonpatch.apply_patch(document, reply.patch)
    names = [each["name"] for each in patched["spec"]["initContainers"]]
    assert names == ["linkerd-init", "linkerd-proxy"]
    assert patched["metadata"]["labels"]["linkerd.io/proxy-deployment"] == "web"
    assert patched["metadata"]["labels"]["linkerd.io/workload-ns"] == "shop"
    created = patched["metadata"]["annotations"][keys.CREATED_BY]
    assert created == "linkerd/proxy-injector v1"


def test_a_review_in_yaml(bench: Bench) -> None:
    """Upstream's decoder takes it, so does this one."""
    text = yaml.safe_dump(review(pod()))
    reply = bench.post(text.encode())

    assert reply.response["allowed"] is True
    assert reply.patch


@pytest.mark.parametrize(
    ("owner", "above", "label"),
    [
        pytest.param(REPLICASET, DEPLOYMENT, "proxy-deployment: web", id="Deployment"),
        pytest.param(
            REPLICASET,
            {**DEPLOYMENT, "kind": "Rollout"},
            "proxy-replicaset: web-5b",
            id="a ReplicaSet of a custom kind",
        ),
        pytest.param(REPLICASET, None, "proxy-replicaset: web-5b", id="not known"),
        pytest.param(
            {**REPLICASET, "apiVersion": "batch/v1", "kind": "Job", "name": "j"},
            {**DEPLOYMENT, "kind": "CronJob"},
            "",
            id="a Job of a CronJob",
        ),
        pytest.param(
            {**REPLICASET, "apiVersion": "batch/v1", "kind": "Job", "name": "j"},
            None,
            "proxy-job: j",
            id="a Job",
        ),
        pytest.param(
            {**REPLICASET, "apiVersion": "apps.example.com/v1"},
            DEPLOYMENT,
            "proxy-replicaset: web-5b",
            id="a namesake of another group",
        ),
        pytest.param(
            {**REPLICASET, "kind": "StatefulSet"},
            None,
            "proxy-statefulset: web-5b",
            id="StatefulSet",
        ),
        pytest.param({**REPLICASET, "kind": "Custom"}, None, "", id="a custom kind"),
    ],
)
def test_owners(
    bench: Bench, owner: dict[str, Any], above: dict[str, Any] | None, label: str
) -> None:
    """A ReplicaSet and a Job stand for what made them."""
    name = f"{owner['kind'].lower()}/{owner['name']}"
    bench.cluster.owners = {} if above is None else {name: above}
    document = pod(owner=owner)
    patched = jsonpatch.apply_patch(document, bench.ask(document).patch)

    labels = [
        f"{key.partition('/')[2]}: {value}"
        for key, value in patched["metadata"]["labels"].items()
        if key.startswith("linkerd.io/proxy-")
    ]
    assert labels == ([label] if label else [])


def test_two_owners_are_none(bench: Bench) -> None:
    """Then the pod is its own."""
    document = pod()
    document["metadata"]["ownerReferences"] = [REPLICASET, DEPLOYMENT]

    assert bench.ask(document).response["allowed"] is True
    assert bench.counted(
        "proxy_inject_admission_requests",
        owner_kind="pod", namespace="shop", annotation_at="namespace",
    ) == 1  # fmt: skip


def test_a_skipped_pod(bench: Bench) -> None:
    """No patch, no patchType, and the reasons in the log."""
    reply = bench.ask(pod(annotations={"linkerd.io/inject": "disabled"}))

    assert reply.response == {"uid": UID, "allowed": True}
    assert bench.said(
        " level=info ", 'skipped pod/web: pod has the annotation \\"linkerd.io/inject'
    )


@pytest.mark.parametrize(
    ("found", "namespace", "expected"),
    [
        pytest.param(service({"port": 3306}), {}, "3306", id="a service"),
        pytest.param(
            service({"port": 80}), {keys.OPAQUE_PORTS: "80"}, "80", id="the namespace's"
        ),
        pytest.param(service({"port": 80}), {}, None, id="nothing is opaque"),
        pytest.param(
            service({"port": 3306}, annotations={keys.OPAQUE_PORTS: ""}),
            {},
            None,
            id="its own, though empty",
        ),
        pytest.param(
            pod(containers=[{"name": "a", "ports": [{"containerPort": 25}]}]),
            {},
            "25",
            id="a pod that is not injected",
        ),
        pytest.param(
            {"kind": "ConfigMap", "metadata": {"name": "c"}},
            {keys.OPAQUE_PORTS: "80"},
            None,
            id="no other kind",
        ),
    ],
)
def test_opaque_ports_of_what_is_not_injected(
    bench: Bench,
    found: dict[str, Any],
    namespace: dict[str, str],
    expected: str | None,
) -> None:
    """Clients in the mesh have to know them, of whoever they call."""
    bench.cluster.found = namespace
    reply = bench.ask(found)

    assert reply.response["allowed"] is True
    added = [each["value"] for each in reply.patch if each["value"] != {}]
    assert added == ([] if expected is None else [expected])
    assert bench.events == []
    if expected is not None:
        name = f"{found['kind'].lower()}/web"
        assert bench.said(f"annotation patch generated for: {name}")


def test_warnings_reach_the_person(bench: Bench) -> None:
    """kubectl shows what is in the response's warnings."""
    annotations = {
        "config.linkerd.io/proxy-uid": "root",
        "config.linkerd.io/skip-outbound-subnets": "mysql\n",
        "config.linkerd.io/close-wait-timeout": "30s",
    }
    reply = bench.ask(pod(annotations=annotations))

    assert len(reply.patch) > 10
    warnings = reply.response["warnings"]
    assert len(warnings) == 3
    assert all(warning.isprintable() and len(warning) <= 256 for warning in warnings)
    assert warnings[1].startswith("config.linkerd.io/proxy-uid: expected")


def test_without_the_namespace_failure_policy_rules(bench: Bench) -> None:
    """Nobody knows whether to inject: no answer, and no refusal of ours."""
    bench.cluster.error = "namespace 'shop' is not known: GET /api: connection refused"
    reply = bench.ask(pod())

    assert reply.status == 500
    assert bench.said(" level=error ", "namespace 'shop' is not known")
    assert bench.counted("proxy_inject_admission_failures", status="500") == 1
    bench.cluster.error = ""
    assert bench.ask(pod()).patch


def test_a_bug_of_ours_costs_no_pod(bench: Bench) -> None:
    """It is a failure like others, with its name in the log."""
    bench.cluster.found = None  # type: ignore[assignment]  # the bug
    reply = bench.ask(pod())

    assert reply.status == 500
    assert bench.said(" level=error ", "TypeError: ")


def test_values_that_change_are_used_at_once(tmp_path: Path) -> None:
    """What was rendered before does not stand in the way."""
    bench = Bench(tmp_path)
    before = bench.ask(pod()).patch
    (tmp_path / "values").write_text("linkerdVersion: v2.0\n")
    after = bench.ask(pod()).patch

    assert before[-1]["value"]["image"].endswith(":v1")
    assert after[-1]["value"]["image"].endswith(":v2.0")
