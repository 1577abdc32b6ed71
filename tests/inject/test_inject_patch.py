"""JSON Patches: operations in order, escaped keys, and nothing of the user's lost."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit.inject import annotations as keys
from proxyinit.inject import patch, values, workload
from proxyinit.inject.decision import Origin, decide
from proxyinit.inject.errors import Unrenderable
from proxyinit.inject.injection import Injected, Request, inject
from proxyinit.inject.owner import Owner
from proxyinit.inject.testing import pod
from proxyinit.inject.values import Values

VALUES = values.load({"linkerdVersion": "v1"}, trust_anchors="PEM")
NOT_NATIVE = values.load(
    {"linkerdVersion": "v1", "proxy": {"nativeSidecar": False}}, trust_anchors="PEM"
)
C = "config.linkerd.io/"


def injected(
    document: dict[str, Any],
    *,
    base: Values = VALUES,
    origin: Origin = Origin.WEBHOOK,
    **more: Any,
) -> Injected:
    """The patch of an object."""
    request = Request(
        workload=workload.read(document),
        values=base,
        origin=origin,
        namespace="shop",
        creator="linkerd/proxy-injector v1",
        **more,
    )
    return inject(request)


def paths(document: dict[str, Any], **more: Any) -> list[str]:
    """Where the operations add something."""
    return [each["path"] for each in injected(document, **more).operations]


MARKS = [
    "/metadata/annotations/linkerd.io~1created-by",
    "/metadata/annotations/linkerd.io~1proxy-version",
    "/metadata/annotations/linkerd.io~1trust-root-sha256",
    "/metadata/labels/linkerd.io~1control-plane-ns",
    "/metadata/labels/linkerd.io~1workload-ns",
]
NATIVE = [
    *("/spec/volumes/-", "/spec/initContainers/0", "/spec/volumes/-"),
    *("/spec/volumes/-", "/spec/initContainers/1"),
]


def test_the_contracts_example() -> None:
    """A pod with one annotation and one label, and no volumes."""
    found = paths(pod(annotations={"a": "b"}))

    assert found == [*MARKS, "/spec/volumes", "/spec/initContainers", *NATIVE]


def test_what_is_there_is_not_made() -> None:
    """Lists that have items stay."""
    spec: dict[str, Any] = {
        "volumes": [{"name": "v"}],
        "initContainers": [{"name": "i"}],
    }

    assert paths(pod(annotations={"a": "b"}, **spec)) == [*MARKS, *NATIVE]


@pytest.mark.parametrize("empty", [None, []], ids=repr)
def test_empty_lists_are_made_again(empty: object) -> None:
    """Emptiness decides, not absence."""
    found = paths(pod(annotations={}, volumes=empty, initContainers=empty))

    assert found[0] == "/metadata/annotations"
    assert found[6:8] == ["/spec/volumes", "/spec/initContainers"]


@pytest.mark.parametrize(
    ("wait", "at"), [(True, "containers/0"), (False, "containers/-")]
)
def test_places_without_native_sidecars(*, wait: bool, at: str) -> None:
    """The init container last; the proxy first if others wait for it."""
    annotations = {f"{C}proxy-await": "enabled" if wait else "disabled"}
    found = paths(pod(annotations=annotations), base=NOT_NATIVE)

    assert "/spec/initContainers/-" in found
    assert found[-1] == f"/spec/{at}"


def test_order_with_everything() -> None:
    """The debug container stands between, tracing between the volumes."""
    base = values.load({"proxy": {"tracing": {"enabled": True}}}, trust_anchors="PEM")
    found = injected(pod(annotations={f"{C}enable-debug-sidecar": "true"}), base=base)
    spec = [each for each in found.operations if each["path"].startswith("/spec")]

    assert [each["value"].get("name") for each in spec[2:]] == [
        *("linkerd-proxy-init-xtables-lock", "linkerd-init", "linkerd-debug"),
        *("linkerd-identity-end-entity", "linkerd-podinfo", "linkerd-identity-token"),
        "linkerd-proxy",
    ]


@pytest.mark.parametrize(
    ("kind", "prefix"),
    [
        ("Deployment", "/spec/template"),
        ("CronJob", "/spec/jobTemplate/spec/template"),
    ],
)
def test_templates(kind: str, prefix: str) -> None:
    """The same below the template; empty metadata is made first."""
    document: dict[str, Any] = {"spec": pod()["spec"]}
    for step in reversed(prefix.split("/")[1:]):
        document = {step: document}
    document |= {"kind": kind, "metadata": {"name": "web"}}
    found = injected(document, origin=Origin.CLI)

    assert found.operations[0] == {
        "op": "add",
        "path": f"{prefix}/metadata",
        "value": {},
    }
    assert all(each["path"].startswith(prefix) for each in found.operations)
    patched = jsonpatch.apply_patch(document, found.operations)
    labels = workload.read(patched).labels
    assert labels[f"linkerd.io/proxy-{kind.lower()}"] == "web"


def test_operations_are_sorted_by_bytes() -> None:
    """Upper case before lower case, and no alphabet of any country."""
    namespace = {
        f"{C}proxy-version": "v",
        f"{C}admin-port": "1",
        "linkerd.io/inject": "x",
    }
    found = injected(pod(), ns_annotations=namespace)
    added = [each["path"] for each in found.marks if "annotations/" in each["path"]]

    assert added == sorted(added, key=str.encode)
    assert len(added) == 6


@pytest.mark.parametrize(
    ("owner", "label"),
    [
        pytest.param(
            Owner("deployment", "web"), "linkerd.io/proxy-deployment", id="one"
        ),
        pytest.param(Owner("job", "web"), "linkerd.io/proxy-job", id="a job"),
        pytest.param(Owner("cronjob", "web"), "", id="no cron job"),
        pytest.param(Owner("pod", "web"), "", id="no pod"),
        pytest.param(Owner("rollout", "web"), "", id="no custom kind"),
        pytest.param(None, "", id="nobody"),
    ],
)
def test_labels(owner: Owner | None, label: str) -> None:
    """Who owns it, and where the control plane is."""
    document = pod()
    found = injected(document, owner=owner)
    labels = jsonpatch.apply_patch(document, found.operations)["metadata"]["labels"]

    expected = {
        "linkerd.io/control-plane-ns": "linkerd",
        "linkerd.io/workload-ns": "shop",
    }
    assert labels == {"app": "web", **expected, **({label: "web"} if label else {})}


def test_an_owner_with_a_long_name_has_no_label() -> None:
    """A label of more than 63 characters would cost the pod its life."""
    document = pod()
    found = injected(document, owner=Owner("deployment", "w" * 64))
    labels = jsonpatch.apply_patch(document, found.operations)["metadata"]["labels"]

    assert "linkerd.io/proxy-deployment" not in labels
    (warning,) = found.warnings
    assert warning.startswith("linkerd.io/proxy-deployment: more than 63 characters")
    assert not injected(document, owner=Owner("deployment", "w" * 63)).warnings


def annotations_of(document: dict[str, Any], **more: Any) -> dict[str, str]:
    """The pod's annotations once it is injected, without those that are always new."""
    operations = injected(document, **more).operations
    patched: dict[str, Any] = jsonpatch.apply_patch(document, operations)
    found: dict[str, str] = patched["metadata"]["annotations"]
    always = (keys.CREATED_BY, keys.PROXY_VERSION, keys.TRUST_ROOT_SHA256)
    return {key: value for key, value in found.items() if key not in always}


def test_the_namespaces_annotations_are_written_onto_the_pod() -> None:
    """Those that a pod inherits, and has not itself."""
    namespace = {
        "linkerd.io/inject": "ingress",
        f"{C}admin-port": "1",
        f"{C}control-port": "2",
        f"{C}enable-gateway": "true",
    }
    found = annotations_of(
        pod(annotations={f"{C}admin-port": ""}), ns_annotations=namespace
    )

    assert found == {
        "linkerd.io/inject": "ingress",
        f"{C}admin-port": "",
        f"{C}control-port": "2",
    }


def env_of(found: Injected) -> dict[str, str]:
    """The sidecar's environment."""
    proxy = found.operations[-1]["value"]
    return {item["name"]: item.get("value", "") for item in proxy["env"]}


OPAQUE_ENV = "LINKERD2_PROXY_INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION"
SERVING = {"name": "db", "image": "i", "ports": [{"containerPort": 3306}]}


@pytest.mark.parametrize(
    ("own", "namespace", "containers", "annotation", "env"),
    [
        pytest.param(
            {}, {}, [SERVING], "3306", "3306", id="what is exposed narrows the list"
        ),
        pytest.param({}, {}, [{"name": "a", "image": "i"}], None, "25,587", id="none"),
        pytest.param(
            {f"{C}opaque-ports": "1-2"}, {}, [SERVING], "1-2", "1-2", id="own"
        ),
        pytest.param(
            {}, {f"{C}opaque-ports": "7"}, [SERVING], "7", "7", id="the namespace's"
        ),
        pytest.param({f"{C}opaque-ports": ""}, {}, [SERVING], "", "", id="cleared"),
    ],
)
def test_opaque_ports(
    own: dict[str, str],
    namespace: dict[str, str],
    containers: list[dict[str, Any]],
    annotation: str | None,
    env: str,
) -> None:
    """The annotation and the environment say the same."""
    document = pod(annotations=own, containers=containers)
    found = annotations_of(document, ns_annotations=namespace)

    assert annotation == found.get(keys.OPAQUE_PORTS)
    got = env_of(injected(document, ns_annotations=namespace)).get(OPAQUE_ENV, "")
    assert got.startswith(env)
    assert bool(got) is bool(env)


def test_inherited_variables_are_merged_and_copied() -> None:
    """Both layers count by name; the pod keeps its own annotation."""
    namespace = {
        keys.ADDITIONAL_ENV: '[{"name":"A","value":"ns"},{"name":"B","value":"ns"}]'
    }
    own = {keys.ADDITIONAL_ENV: '[{"name":"B","value":"\\"pod\\""}]'}

    both = env_of(injected(pod(annotations=own), ns_annotations=namespace))
    assert (both["A"], both["B"]) == ("ns", '"pod"')
    inherited = annotations_of(pod(), ns_annotations=namespace)
    assert inherited[keys.ADDITIONAL_ENV] == namespace[keys.ADDITIONAL_ENV]


def test_the_command_line_knows_no_namespace() -> None:
    """Flags are written; of them debug and close-wait are read as well."""
    base = values.load({"proxyInit": {"runAsRoot": True}}, trust_anchors="PEM")
    overrides = {
        f"{C}admin-port": "9",
        keys.DEBUG: "true",
        keys.CLOSE_WAIT: "30s",
        keys.OPAQUE_PORTS: "mysql",
    }
    found = injected(
        pod(), base=base, origin=Origin.CLI, overrides=overrides,
        ns_annotations={f"{C}control-port": "8"},
    )  # fmt: skip
    added = {each["path"].rpartition("~1")[2]: each["value"] for each in found.marks}

    assert added["admin-port"] == "9"
    assert "control-port" not in added
    names = [each["value"].get("name") for each in found.rendered.operations[2:]]
    assert "linkerd-debug" in names
    init = found.rendered.operations[3]["value"]
    assert "--timeout-close-wait-secs" in init["args"]
    assert env_of(found)[OPAQUE_ENV].startswith("25,")
    assert env_of(found)["LINKERD2_PROXY_ADMIN_LISTEN_ADDR"].endswith(":4191")


@pytest.mark.parametrize(
    "annotations",
    [{keys.CLOSE_WAIT: "30s"}, {keys.LOG_HTTP_HEADERS: "on"}],
    ids=["close-wait without root", "unknown headers"],
)
def test_what_can_not_be_rendered(annotations: dict[str, str]) -> None:
    """An error on the command line, and a warning in the webhook."""
    with pytest.raises(Unrenderable):
        injected(pod(annotations=annotations), origin=Origin.CLI)
    assert len(injected(pod(annotations=annotations)).warnings) == 1


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, []),
        (
            {"linkerd.io/inject": "enabled"},
            ["/metadata/annotations", "/metadata/annotations/linkerd.io~1inject"],
        ),
    ],
)
def test_annotations_alone(annotations: dict[str, str], expected: list[str]) -> None:
    """Nothing is made where nothing is added."""
    found = patch.annotate(workload.read(pod()), annotations)

    assert expected == [each["path"] for each in found]


@pytest.mark.parametrize("value", ['"', "\n", "+<>&", "~1", "\N{GRINNING FACE}"])
def test_opaque_ports_are_no_template(value: str) -> None:
    """Texts stay what they are: no entity, no escape."""
    document = pod()
    operations = patch.opaque_ports(document, value)
    patched = jsonpatch.apply_patch(document, operations)

    assert patched["metadata"]["annotations"] == {keys.OPAQUE_PORTS: value}


@given(key=st.text(alphabet="~/01a", min_size=1, max_size=8))
def test_any_key_is_one_step(key: str) -> None:
    """A key with a slash or a tilde in it leads nowhere else."""
    document = pod()
    operations = patch.annotate(workload.read(document), {key: "x"})

    found = jsonpatch.apply_patch(document, operations)["metadata"]["annotations"]
    assert found == {key: "x"}
    assert patch.apply(document, operations)["metadata"]["annotations"] == found


TEXTS = st.text(max_size=8)
NAMES = st.from_regex(r"[a-z~/\"]{1,8}", fullmatch=True)
ANNOTATIONS = st.dictionaries(
    st.one_of(NAMES, st.sampled_from(keys.METERED), st.just(keys.CLOSE_WAIT)), TEXTS
)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES, "image": NAMES},
        optional={
            "ports": st.lists(
                st.fixed_dictionaries({"containerPort": st.integers(1, 65535)}),
                max_size=3,
            ),
            "securityContext": st.fixed_dictionaries(
                {"capabilities": st.fixed_dictionaries({"drop": st.lists(NAMES)})}
            ),
            "env": st.lists(st.fixed_dictionaries({"name": NAMES, "value": TEXTS})),
        },
    ),
    min_size=1,
    max_size=3,
)
PODS = st.builds(
    lambda annotations, containers, init, volumes: pod(
        annotations=annotations,
        containers=containers,
        initContainers=init,
        volumes=volumes,
        nodeSelector={"keep": "this"},
    ),
    ANNOTATIONS,
    CONTAINERS,
    st.one_of(st.none(), CONTAINERS),
    st.lists(st.fixed_dictionaries({"name": NAMES}), max_size=2),
)


@settings(deadline=None, max_examples=60)
@given(document=PODS, namespace=ANNOTATIONS, native=st.booleans())
def test_nothing_of_the_users_is_lost(
    *, document: dict[str, Any], namespace: dict[str, str], native: bool
) -> None:
    """Containers, volumes and annotations stay, in order; twice equals once."""
    before = copy.deepcopy(document)
    base = VALUES if native else NOT_NATIVE
    operations = injected(document, base=base, ns_annotations=namespace).operations
    patched = jsonpatch.apply_patch(document, operations)

    assert document == before
    assert patched == patch.apply(document, operations)
    spec, own = patched["spec"], before["spec"]
    ours = ("linkerd-init", "linkerd-proxy", "linkerd-debug")
    for field in ("containers", "initContainers"):
        kept = [item for item in spec[field] if item["name"] not in ours]
        assert kept == (own[field] or [])
    assert spec["volumes"][: len(own["volumes"])] == own["volumes"]
    assert spec["nodeSelector"] == own["nodeSelector"]
    metadata = patched["metadata"]
    assert before["metadata"]["annotations"].items() <= metadata["annotations"].items()
    assert before["metadata"]["labels"].items() <= metadata["labels"].items()
    again = decide(
        workload.read(patched), base, Origin.WEBHOOK, {keys.INJECT: "enabled"}
    )
    assert not again.injects
