"""Who is injected and who is not, with every reason: the tables of the contract."""

from __future__ import annotations

from typing import Any

import pytest

from proxyinit.inject import values, workload
from proxyinit.inject.decision import Decision, Origin, Reason, decide
from proxyinit.inject.errors import Malformed

VALUES = values.Values()
NO_PROJECTION = values.load({"identity": {"serviceAccountTokenProjection": False}})
INJECT = "linkerd.io/inject"
MOUNT = {"name": "t", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}


def pod(value: str | None = None, **spec: Any) -> dict[str, Any]:
    """A pod with an inject annotation, or none."""
    annotations = {} if value is None else {INJECT: value}
    containers = [{"name": "web", "image": "example/web:1"}]
    spec = {"containers": containers, **spec}
    return {"kind": "Pod", "metadata": {"annotations": annotations}, "spec": spec}


def at_webhook(document: dict[str, Any], ns: str | None = "enabled") -> Decision:
    """What the webhook decides."""
    namespace = {} if ns is None else {INJECT: ns}
    return decide(workload.read(document), VALUES, Origin.WEBHOOK, namespace)


YES: tuple[Reason, ...] = ()


@pytest.mark.parametrize(
    ("ns", "own", "reasons", "at"),
    [
        pytest.param("on", "enabled", (Reason.INVALID_AT_NAMESPACE,), "", id="row 1"),
        pytest.param("on", "off", (Reason.INVALID_AT_NAMESPACE,), "", id="both wrong"),
        pytest.param("enabled", "true", (Reason.INVALID_AT_WORKLOAD,), "", id="row 2"),
        pytest.param(None, "Enabled", (Reason.INVALID_AT_WORKLOAD,), "", id="case"),
        pytest.param("enabled", "disabled", (Reason.DISABLED,), "workload", id="row 3"),
        pytest.param(
            "ingress", "disabled", (Reason.DISABLED,), "workload", id="row 3, ingress"
        ),
        pytest.param("enabled", None, YES, "namespace", id="row 4"),
        pytest.param("enabled", "", YES, "namespace", id="row 4, empty is absent"),
        pytest.param("ingress", "enabled", YES, "namespace", id="row 4, both"),
        pytest.param(None, None, (Reason.ABSENT,), "", id="row 5"),
        pytest.param("", "", (Reason.ABSENT,), "", id="row 5, empty"),
        pytest.param("disabled", None, (Reason.ABSENT,), "", id="row 5, ns disabled"),
        pytest.param("disabled", "disabled", (Reason.ABSENT,), "", id="row 5, both"),
        pytest.param("disabled", "enabled", YES, "workload", id="row 6"),
        pytest.param(None, "ingress", YES, "workload", id="row 6, ingress"),
    ],
)
def test_annotations_at_the_webhook(
    ns: str | None, own: str | None, reasons: tuple[Reason, ...], at: str
) -> None:
    """The first row that fits decides, and says whose annotation it was."""
    found = at_webhook(pod(own), ns)

    assert (reasons, at) == (found.reasons, found.annotation_at)
    assert found.injects is (not reasons)


@pytest.mark.parametrize(
    ("own", "reasons"),
    [
        pytest.param("disabled", (Reason.DISABLED,), id="disabled"),
        pytest.param("nonsense", YES, id="nothing is checked"),
        pytest.param(None, YES, id="none"),
    ],
)
def test_annotations_on_the_command_line(
    own: str | None, reasons: tuple[Reason, ...]
) -> None:
    """Only the exact word keeps a manifest from being injected."""
    found = decide(workload.read(pod(own)), VALUES, Origin.CLI, {INJECT: "disabled"})

    assert reasons == found.reasons


def test_the_annotation_counts_at_the_pod_alone() -> None:
    """The same key on a Deployment's own metadata means nothing."""
    deployment = {
        "kind": "Deployment",
        "metadata": {"annotations": {INJECT: "disabled"}},
        "spec": {"template": pod()},
    }

    assert at_webhook(deployment).injects


@pytest.mark.parametrize(
    ("container", "init", "expected"),
    [
        ({"image": "cr.l5d.io/linkerd/proxy:v1"}, {}, True),
        ({"image": "gcr.io/istio-release/proxyv2:1"}, {}, True),
        ({"name": "linkerd-proxy"}, {}, True),
        ({"name": "istio-proxy"}, {}, True),
        ({}, {"name": "linkerd-proxy"}, True),
        ({}, {"image": "cr.l5d.io/linkerd/proxy:v1"}, True),
        ({}, {"image": "cr.l5d.io/linkerd/proxy-init:v1"}, True),
        ({}, {"image": "gcr.io/istio-release/proxy_init:1"}, True),
        ({}, {"name": "linkerd-init"}, True),
        ({}, {"name": "istio-init"}, True),
        ({"name": "linkerd-init"}, {}, False),
        ({"image": "cr.l5d.io/linkerd/proxy-init:v1"}, {}, False),
        ({}, {"name": "linkerd-network-validator"}, False),
        ({"image": "mirror.example/linkerd/proxy:v1"}, {}, False),
        ({"image": "cr.l5d.io/linkerd/proxy@sha256:0"}, {}, False),
        ({"image": None, "name": None}, {}, False),
    ],
    ids=str,
)
def test_sidecars_that_are_there(
    container: dict[str, Any], init: dict[str, Any], *, expected: bool
) -> None:
    """Images and names, in init containers and others, as upstream knows them."""
    document = pod(containers=[container], initContainers=[init])

    assert (Reason.SIDECAR in at_webhook(document).reasons) is expected


@pytest.mark.parametrize("value", [True, False, None, "true"], ids=repr)
def test_host_network(value: object) -> None:
    """Rules of a pod on the node's network would be the node's."""
    found = at_webhook(pod(hostNetwork=value))

    assert (Reason.HOST_NETWORK in found.reasons) is (value is True)


@pytest.mark.parametrize(
    ("origin", "spec", "expected"),
    [
        pytest.param(
            Origin.CLI, {"automountServiceAccountToken": False}, True, id="CLI, off"
        ),
        pytest.param(Origin.CLI, {}, False, id="CLI looks at no mounts"),
        pytest.param(
            Origin.WEBHOOK, {"automountServiceAccountToken": False}, True, id="off"
        ),
        pytest.param(Origin.WEBHOOK, {}, True, id="no mount"),
        pytest.param(
            Origin.WEBHOOK,
            {"containers": [{"volumeMounts": [MOUNT]}, {}]},
            False,
            id="the first container has one",
        ),
        pytest.param(
            Origin.WEBHOOK,
            {"containers": [{}, {"volumeMounts": [MOUNT]}]},
            True,
            id="the second does not count",
        ),
    ],
)
def test_token_of_the_pod(
    origin: Origin, spec: dict[str, Any], *, expected: bool
) -> None:
    """Without projection the proxy proves itself with the pod's own token."""
    document = workload.read(pod("enabled", **spec))

    found = decide(document, NO_PROJECTION, origin, {})
    assert (Reason.AUTOMOUNT in found.reasons) is expected
    with_projection = decide(document, VALUES, origin, {})
    assert Reason.AUTOMOUNT not in with_projection.reasons


def test_all_reasons_in_order() -> None:
    """Nobody has to find the next reason by mending the first."""
    document = pod(
        "disabled",
        hostNetwork=True,
        containers=[{"name": "linkerd-proxy"}],
        automountServiceAccountToken=False,
    )
    found = decide(
        workload.read(document), NO_PROJECTION, Origin.WEBHOOK, {INJECT: "enabled"}
    )

    assert found.reasons == (
        Reason.HOST_NETWORK,
        Reason.SIDECAR,
        Reason.DISABLED,
        Reason.AUTOMOUNT,
    )


@pytest.mark.parametrize(
    ("reason", "code", "text"),
    [
        (Reason.HOST_NETWORK, "host_network_enabled", "hostNetwork is enabled"),
        (
            Reason.SIDECAR,
            "sidecar_already_exists",
            "pod has a sidecar injected already",
        ),
        (
            Reason.UNSUPPORTED,
            "unsupported_resource",
            "this resource kind is unsupported",
        ),
        (
            Reason.ABSENT,
            "injection_enable_annotation_absent",
            (
                "neither the namespace nor the pod have the annotation "
                '"linkerd.io/inject:enabled"'
            ),
        ),
        (
            Reason.DISABLED,
            "injection_disable_annotation_present",
            'pod has the annotation "linkerd.io/inject:disabled"',
        ),
        (
            Reason.INVALID_AT_WORKLOAD,
            "invalid_inject_annotation_at_workload",
            'invalid value for annotation "linkerd.io/inject" at workload',
        ),
        (
            Reason.INVALID_AT_NAMESPACE,
            "invalid_inject_annotation_at_ns",
            'invalid value for annotation "linkerd.io/inject" at namespace',
        ),
        (
            Reason.AUTOMOUNT,
            "disabled_automount_service_account_token_account",
            (
                'automountServiceAccountToken set to "false", with '
                'Values.identity.serviceAccountTokenProjection set to "false"'
            ),
        ),
    ],
)
def test_words_of_reasons(reason: Reason, code: str, text: str) -> None:
    """Dashboards and scripts know them by these words."""
    assert (code, text) == (reason.code, reason.text)


@pytest.mark.parametrize("where", ["containers", "initContainers"])
def test_udp(where: str) -> None:
    """UDP of regular containers is told, and keeps nobody from being injected."""
    ports = [{"containerPort": 53, "protocol": "UDP"}]
    spec: dict[str, Any] = {where: [{"name": "dns", "ports": ports}]}
    found = at_webhook(pod(None, **spec))

    assert (found.injects, found.udp) == (True, where == "containers")


@pytest.mark.parametrize(
    ("kind", "prefix"),
    [
        ("Pod", ""),
        ("pod", ""),
        ("Deployment", "/spec/template"),
        ("deployment", "/spec/template"),
        ("ReplicaSet", "/spec/template"),
        ("ReplicationController", "/spec/template"),
        ("DaemonSet", "/spec/template"),
        ("StatefulSet", "/spec/template"),
        ("Job", "/spec/template"),
        ("CronJob", "/spec/jobTemplate/spec/template"),
        ("CRONJOB", "/spec/jobTemplate/spec/template"),
    ],
)
def test_kinds_with_pods(kind: str, prefix: str) -> None:
    """Kinds are known in any case; apiVersion is not looked at."""
    document = pod("enabled")
    for step in reversed(prefix.split("/")[1:]):
        document = {step: document}
    found = workload.read({**document, "kind": kind, "apiVersion": "any/v0"})

    assert prefix == found.prefix
    assert found.annotations == {INJECT: "enabled"}
    bare = kind.lower() == "pod"
    assert ("" if bare else f"linkerd.io/proxy-{kind.lower()}") == found.owner_label


@pytest.mark.parametrize("kind", ["Service", "Namespace", "ConfigMap", "", "List"])
def test_kinds_without_pods(kind: str) -> None:
    """They have one reason, and no template."""
    found = workload.read({"kind": kind, "spec": {"template": {}}})

    assert found.template is None
    decided = decide(found, VALUES, Origin.WEBHOOK, {INJECT: "enabled"})
    assert decided.reasons == (Reason.UNSUPPORTED,)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(
            {"kind": "ReplicationController", "spec": {}},
            id="no template (upstream takes the pointer all the same)",
        ),
        pytest.param({"kind": "Job", "spec": {"template": None}}, id="null template"),
        pytest.param({"kind": "Pod", "spec": []}, id="spec is a list"),
        pytest.param({"kind": "Pod", "metadata": "x"}, id="metadata is text"),
        pytest.param({"kind": "Pod", "spec": {"containers": {}}}, id="containers"),
        pytest.param({"kind": "Pod", "spec": {"containers": ["x"]}}, id="a container"),
    ],
)
def test_objects_of_another_shape(document: dict[str, Any]) -> None:
    """They are told apart from those that are injected or skipped."""
    with pytest.raises(Malformed):
        workload.read(document)


@pytest.mark.parametrize("nothing", [None, [], [None]], ids=repr)
def test_pods_without_containers(nothing: object) -> None:
    """Null, empty and missing lists are the same."""
    found = workload.read({"kind": "Pod", "spec": {"containers": nothing}})

    assert found.containers == ()


def test_annotations_are_text() -> None:
    """YAML has switches and numbers where Kubernetes has text only."""
    annotations = {"a": True, "b": 1234, "c": None, "d": 0.5}
    found = workload.read({"kind": "Pod", "metadata": {"annotations": annotations}})

    assert found.annotations == {"a": "true", "b": "1234", "c": "", "d": "0.5"}
