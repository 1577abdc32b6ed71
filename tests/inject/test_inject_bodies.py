"""Bodies that are no reviews, and objects that are odd: each with a reason."""

from __future__ import annotations

import json
from typing import Any

import jsonpatch
import orjson
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from proxyinit.inject import annotations as keys
from proxyinit.inject.testing import pod, review
from proxyinit.inject.webhook import MOST_BYTES
from tests.inject.webhook_bench import ENABLED, Bench


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
        pytest.param(
            {"kind": "Service", "metadata": {"annotations": 5}}, id="annotations 5"
        ),
        pytest.param({"spec": None, "metadata": {}}, id="no spec"),
        pytest.param({"spec": {"containers": [], "volumes": 1}}, id="volumes 1"),
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


@pytest.mark.parametrize("spec", [{}, {"containers": None}, {"containers": []}])
@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({"proxy-enable-native-sidecar": "false"}, id="not native"),
        pytest.param(
            {"proxy-enable-native-sidecar": "0", "proxy-await": "disabled"},
            id="without await",
        ),
        pytest.param({"enable-debug-sidecar": "true"}, id="debug"),
    ],
)
def test_no_containers_to_stand_beside(
    bench: Bench, annotations: dict[str, str], spec: dict[str, Any]
) -> None:
    """The patch applies; what the API server thinks of such a pod is its own affair."""
    found = pod(
        annotations={f"config.linkerd.io/{k}": v for k, v in annotations.items()}
    )
    found["spec"] = spec

    patched = jsonpatch.apply_patch(found, bench.ask(found).patch)
    assert len(patched["spec"]["containers"]) == 1


@pytest.mark.parametrize("kind", ["Pod", "Service"])
@pytest.mark.parametrize("metadata", [None, {}, {"annotations": None}])
def test_no_metadata_to_annotate(
    bench: Bench, kind: str, metadata: dict[str, Any] | None
) -> None:
    """The annotation brings what it needs."""
    bench.cluster.found = {keys.OPAQUE_PORTS: "80"}
    found = {"kind": kind, "metadata": metadata, "spec": {}}

    patched = jsonpatch.apply_patch(found, bench.ask(found).patch)
    assert patched["metadata"]["annotations"] == {keys.OPAQUE_PORTS: "80"}


def test_numbers_in_annotations_are_read(bench: Bench) -> None:
    """A port without quotes is a port."""
    document = pod(annotations={"config.linkerd.io/admin-port": 1234})
    proxy = bench.ask(document).patch[-1]["value"]

    assert proxy["ports"][1]["containerPort"] == 1234


def test_a_body_that_is_too_large(bench: Bench) -> None:
    """Its reason is told, though nobody looked into it."""
    found = bench.webhook.refuse_size()

    assert found.status == 500
    assert bench.said(f"larger than {MOST_BYTES // 2**20} MiB")


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
    ),
    namespace=st.sampled_from(
        [
            ENABLED,
            {**ENABLED, keys.NATIVE_SIDECAR[0]: "false"},
            {keys.OPAQUE_PORTS: "80"},
        ]
    ),
)
@example(
    body=json.dumps(review({"kind": "Pod", "spec": {"volumes": 1}})).encode(),
    namespace=ENABLED,
)
@example(body=b'{"a":' * 5000, namespace=ENABLED)
def test_random_bodies(bench: Bench, body: bytes, namespace: dict[str, str]) -> None:
    """No bug is met; patches apply, and what is no answer has a reason in the log."""
    bench.lines.clear()
    bench.cluster.found = namespace
    reply = bench.post(body)

    assert reply.status in (200, 400), bench.lines
    if reply.status != 200:
        assert bench.said(" level=error ", "Reason: ")
    elif body and reply.patch:
        jsonpatch.apply_patch(reply.review["request"]["object"], reply.patch)
