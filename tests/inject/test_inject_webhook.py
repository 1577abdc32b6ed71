"""The webhook without its server: reviews in, answers out, and a reason for each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonpatch
import orjson
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from proxyinit.inject import annotations as keys
from proxyinit.inject import events
from proxyinit.inject.configuration import Configuration, Locations
from proxyinit.inject.errors import NotKnown
from proxyinit.inject.metrics import Metrics
from proxyinit.inject.testing import Reply, pod, review, service
from proxyinit.inject.testing.caller import UID
from proxyinit.inject.webhook import MOST_BYTES, Webhook
from proxyinit.logs import Log

REPLICASET = {
    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5b", "uid": "r1",
}  # fmt: skip
DEPLOYMENT = {
    "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d1",
}  # fmt: skip
ENABLED = {"linkerd.io/inject": "enabled"}


@dataclass
class Surroundings:
    """A cluster that knows one namespace, and one ReplicaSet if it does."""

    found: Mapping[str, str] = field(default_factory=lambda: dict(ENABLED))
    owners: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    async def annotations(self, _namespace: str) -> Mapping[str, str]:
        """The namespace's, or what keeps us from knowing."""
        if self.error:
            raise NotKnown(self.error)
        return self.found

    async def owned(self, kind: str, _namespace: str, name: str) -> Any:
        """Who stands behind it."""
        above = self.owners.get(f"{kind}/{name}")
        return None if above is None else {"metadata": {"ownerReferences": [above]}}


class Bench:
    """A webhook, and all that it says and counts."""

    def __init__(self, folder: Path, **options: Any) -> None:
        values, roots = folder / "values", folder / "roots"
        values.write_text("linkerdVersion: v1\n")
        roots.write_text("PEM\n")
        self.lines: list[str] = []
        self.events: list[events.Event] = []
        self.metrics = Metrics()
        self.cluster = Surroundings()
        log = Log("debug", write=self.lines.append)
        self.webhook = Webhook(
            configuration=Configuration(Locations(values, roots, "linkerd"), log),
            cluster=self.cluster,
            metrics=self.metrics,
            log=log,
            creator="linkerd/proxy-injector v1",
            **{"send": self.events.append, **options},
        )

    def post(self, body: bytes) -> Reply:
        """Answer a body."""
        found = asyncio.run(self.webhook.answer(body))
        return Reply(found.status, found.body.decode())

    def ask(self, found: Mapping[str, Any], **more: Any) -> Reply:
        """Answer the review of an object."""
        return self.post(json.dumps(review(found, **more)).encode())

    def said(self, *words: str) -> bool:
        """Whether a line has all of these."""
        return any(all(word in line for word in words) for line in self.lines)

    def counted(self, name: str, **labels: str) -> float | None:
        """A counter, with its other labels empty."""
        for metric in self.metrics.registry.collect():
            for sample in metric.samples:
                if sample.name == f"{name}_total" and labels == {
                    key: value for key, value in sample.labels.items() if value
                }:
                    return sample.value
        return None


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A webhook in a namespace that injects."""
    return Bench(tmp_path)


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


def test_what_is_said_of_a_pod(bench: Bench) -> None:
    """Upstream's lines, in upstream's words; a pod without a name has another."""
    document = pod(name="")
    document["metadata"]["generateName"] = "web-"
    bench.ask(document)

    said = [line.partition("msg=")[2].rstrip() for line in bench.lines]
    assert said == [
        f'"received admission review request \\"{UID}\\""',
        '"received pod/web-"',
        '"injection patch generated for: pod/web-"',
    ]


def test_objects_and_patches_are_for_debugging(tmp_path: Path) -> None:
    """They may hold secrets: nobody logs them who did not ask for it."""
    secret = pod(containers=[{"name": "a", "env": [{"name": "P", "value": "s3cret"}]}])
    bench = Bench(tmp_path)
    bench.ask(secret)
    assert not bench.said("s3cret")

    bench = Bench(tmp_path, verbose=True)
    bench.ask(secret)
    assert bench.said(" level=debug ", "request object bytes: ", "s3cret")
    assert bench.said(" level=debug ", "injection patch: ", "linkerd-init")


def test_events_go_to_the_owner(bench: Bench) -> None:
    """Injected, or skipped with the reasons; with the uid that the cluster knows."""
    bench.cluster.owners = {"replicaset/web-5b": DEPLOYMENT}
    bench.ask(pod(owner=REPLICASET))
    bench.ask(pod(owner=REPLICASET, hostNetwork=True))

    first, second = bench.events
    assert (first.reason, first.message) == (
        "Injected",
        "Linkerd sidecar proxy injected",
    )
    assert (second.reason, second.message) == (
        "InjectionSkipped",
        "Linkerd sidecar proxy injection skipped: hostNetwork is enabled",
    )
    for event in bench.events:
        assert (event.kind, event.name, event.uid) == ("Deployment", "web", "d1")


def test_nobody_waits_for_what_is_told(tmp_path: Path) -> None:
    """The answer is out before it is logged, counted and sent."""
    waiting: list[Callable[[], None]] = []
    bench = Bench(tmp_path, later=waiting.append)
    assert bench.ask(pod(owner=DEPLOYMENT)).patch

    where = {"owner_kind": "deployment", "namespace": "shop"}
    where |= {"annotation_at": "namespace"}
    requests = "proxy_inject_admission_requests"
    assert not bench.said("patch generated")
    assert (bench.counted(requests, **where), bench.events) == (None, [])
    (tell,) = waiting
    tell()
    assert bench.said("injection patch generated for: pod/web")
    assert (bench.counted(requests, **where), len(bench.events)) == (1, 1)


def test_what_can_not_be_told_costs_no_pod(tmp_path: Path) -> None:
    """A bug has its name in the log, and the review its answer."""

    def send(_event: events.Event) -> None:
        raise LookupError("the bug")

    bench = Bench(tmp_path, send=send)

    assert bench.ask(pod(owner=DEPLOYMENT)).patch
    assert bench.said(" level=error ", "tell of pod/web", "LookupError: the bug")


def test_nothing_is_sent_for_a_dry_run(bench: Bench) -> None:
    """The configuration says that there are no side effects."""
    bench.ask(pod(owner=DEPLOYMENT), dryRun=True)
    bench.ask(pod())

    assert bench.events == []


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


def test_counters(bench: Bench) -> None:
    """As upstream has them: by owner, annotations of the pod's own, and reasons."""
    bench.cluster.found = {**ENABLED, "config.linkerd.io/admin-port": "9999"}
    own = {"config.linkerd.io/proxy-log-level": "debug"}
    bench.ask(pod(owner=DEPLOYMENT, annotations=own))
    where = {"owner_kind": "deployment", "namespace": "shop"}
    where |= {"annotation_at": "namespace", "proxy_log_level": "debug"}

    assert bench.counted("proxy_inject_admission_requests", **where) == 1
    responses = "proxy_inject_admission_responses"
    assert bench.counted(responses, **where, skip="false") == 1
    bench.ask(pod(annotations={"linkerd.io/inject": "disabled"}, hostNetwork=True))
    assert bench.counted(
        responses,
        owner_kind="pod", namespace="shop", skip="true", annotation_at="workload",
        skip_reason="host_network_enabled,injection_disable_annotation_present",
    ) == 1  # fmt: skip
    before = bench.metrics.render()
    bench.ask(service({"port": 80}))
    after = bench.metrics.render()
    lines = [line for line in after.splitlines() if responses.encode() in line]
    assert all(line in before for line in lines), "an untouched Service is not counted"


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


def nested(depth: int) -> bytes:
    """A review around an object that is nested so deep."""
    inner = b'{"a":' * depth + b"1" + b"}" * depth
    body = orjson.dumps(review({"kind": "Pod", "spec": "X"}))
    return body.replace(b'"X"', inner)


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        pytest.param(b"", 200, "received empty payload", id="empty"),
        pytest.param(b"{", 400, "failed to decode", id="truncated"),
        pytest.param(b"\xff\xfe", 400, "failed to decode", id="binary"),
        pytest.param(b"null", 400, "failed to decode", id="null"),
        pytest.param(b"[]", 400, "failed to decode", id="a list"),
        pytest.param(b"a: &a [*a]", 400, "failed to decode", id="aliases"),
        pytest.param(b"a: {\n\t}", 400, "failed to decode", id="tab"),
        pytest.param(
            yaml.safe_dump(review(pod(annotations={"a": 10**25}))).encode(),
            400,
            "Integer exceeds 64-bit range",
            id="a number in YAML that is none in JSON",
        ),
        pytest.param(b"[" * 10**6, 400, "failed to decode", id="deep brackets"),
        pytest.param(nested(3000), 400, "failed to decode", id="deep object"),
        pytest.param(
            b'{"kind":"AdmissionReview"}', 400, "expected Adm", id="no version"
        ),
        pytest.param(
            orjson.dumps({**review(pod()), "kind": "Pod"}), 400, "kind 'Pod'", id="kind"
        ),
        pytest.param(
            orjson.dumps(review(pod(), version="v9")), 400, "v9", id="unknown version"
        ),
        pytest.param(
            orjson.dumps({**review(pod()), "request": None}),
            400,
            "invalid admission review request",
            id="no request",
        ),
        pytest.param(
            orjson.dumps(review(pod(), uid="")), 400, "no uid", id="an empty uid"
        ),
        pytest.param(orjson.dumps(review(pod(), uid=7)), 400, "no uid", id="uid 7"),
        pytest.param(
            orjson.dumps(review(pod(), object=None)), 400, "an object", id="no object"
        ),
    ],
)
def test_bodies_that_are_no_reviews(
    bench: Bench, body: bytes, status: int, reason: str
) -> None:
    """The API server takes anything but 200 for a failure, and failurePolicy rules."""
    reply = bench.post(body)

    assert status == reply.status
    assert bench.said(reason)
    assert bench.ask(pod()).patch, "it stays up"


@pytest.mark.parametrize(
    "found",
    [
        pytest.param({"spec": {"containers": {}}}, id="containers are an object"),
        pytest.param({"spec": [], "metadata": {}}, id="spec is a list"),
        pytest.param({"metadata": "web"}, id="metadata is text"),
        pytest.param({"kind": "Job", "spec": {}}, id="no template"),
        pytest.param(
            {"spec": {"containers": [{"name": "a", "ports": 80}]}}, id="ports 80"
        ),
    ],
)
def test_objects_that_are_none(bench: Bench, found: dict[str, Any]) -> None:
    """They could not be made anyway: the one case that is refused, with a reason."""
    reply = bench.ask({"kind": "Pod", **found})

    assert reply.status == 200
    assert reply.response["allowed"] is False
    assert reply.response["status"]["message"].startswith(("expected", "Job without"))
    assert bench.said(" level=error ", "failed to run webhook handler. Reason: ")


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(pod(containers=None), id="null containers"),
        pytest.param(pod(containers=[None, {"name": "a"}]), id="a null container"),
        pytest.param(
            pod(containers=[{"name": "a", "ports": [{"containerPort": 80}] * 3}]),
            id="duplicate ports",
        ),
        pytest.param(
            pod(containers=[{"name": f"c{n}", "image": "i"} for n in range(200)]),
            id="200 containers",
        ),
        pytest.param(pod(annotations={"a": 1, "b": True, "c": None}), id="numbers"),
        pytest.param(
            pod(annotations={"a~1/b": '"\n\\', "\N{SNOWMAN}": "🙂"}), id="texts"
        ),
        pytest.param(
            pod(containers=[{"name": "a", "ports": [{"containerPort": "80"}, {}]}]),
            id="ports as text",
        ),
    ],
)
def test_odd_objects_are_injected(bench: Bench, found: dict[str, Any]) -> None:
    """What Kubernetes may take is patched, and the patch applies."""
    reply = bench.ask(found)

    assert reply.response["allowed"] is True
    assert "initContainers" in jsonpatch.apply_patch(found, reply.patch)["spec"]


def test_numbers_in_annotations_are_read(bench: Bench) -> None:
    """A port without quotes is a port."""
    document = pod(annotations={"config.linkerd.io/admin-port": 1234})
    proxy = bench.ask(document).patch[-1]["value"]

    assert proxy["ports"][1]["containerPort"] == 1234


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


def test_a_body_that_is_too_large(bench: Bench) -> None:
    """Its reason is told, though nobody looked into it."""
    found = bench.webhook.refuse_size()

    assert found.status == 500
    assert bench.said(f"larger than {MOST_BYTES // 2**20} MiB")


def test_values_that_change_are_used_at_once(tmp_path: Path) -> None:
    """What was rendered before does not stand in the way."""
    bench = Bench(tmp_path)
    before = bench.ask(pod()).patch
    (tmp_path / "values").write_text("linkerdVersion: v2.0\n")
    after = bench.ask(pod()).patch

    assert before[-1]["value"]["image"].endswith(":v1")
    assert after[-1]["value"]["image"].endswith(":v2.0")


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(
                st.text(max_size=4),
                st.sampled_from(
                    [
                        *("metadata", "spec", "containers", "ports", "annotations"),
                        *("template", "initContainers", "volumes", "labels"),
                        *("containerPort", "name", "image", "securityContext"),
                        *("capabilities", "volumeMounts", "ownerReferences", "kind"),
                    ]
                ),
            ),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=25,
)


@settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    body=st.one_of(
        st.binary(max_size=60),
        JSON.map(lambda value: json.dumps(value).encode("utf-8", "replace")),
        st.builds(
            lambda kind, found: json.dumps(
                review({}, object=found, kind={"kind": kind})
            ).encode("utf-8", "replace"),
            st.sampled_from(["Pod", "Service", "Deployment", "CronJob", "Other"]),
            JSON,
        ),
    )
)
@example(body=json.dumps(review({"kind": "Pod", "spec": {"volumes": 1}})).encode())
@example(body=b'{"a":' * 5000)
def test_random_bodies(bench: Bench, body: bytes) -> None:
    """Every answer that is none has its reason in the log, and no bug is met."""
    bench.lines.clear()
    reply = bench.post(body)

    assert reply.status in (200, 400), bench.lines
    if reply.status != 200:
        assert bench.said(" level=error ", "Reason: ")
