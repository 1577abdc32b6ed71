"""Properties of the transform: twice is once, and uninject undoes it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit.inject import names, syntax
from proxyinit.inject.manifest import transformed
from proxyinit.inject.report import Outcome
from proxyinit.inject.transform import Injection, removal
from proxyinit.inject.uninject import uninject
from proxyinit.inject.values import Values, load

ANCHORS = "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n"


def values(**chart: Any) -> Values:
    """Values that can be rendered."""
    return load({"linkerdVersion": "v1", **chart}, trust_anchors=ANCHORS)


CLUSTERS = {
    "native": values(),
    "legacy": values(proxy={"nativeSidecar": False, "gid": 1}, disableIPv6=False),
    "no wait": values(proxy={"nativeSidecar": False, "await": False}),
    "cni": values(cniEnabled=True),
    "tracing": values(proxy={"tracing": {"enabled": True}}),
}
INJECTIONS = {
    "annotated": Injection(values=values()),
    "flags": Injection(
        values=values(),
        overrides={
            "config.linkerd.io/admin-port": "1",
            "config.linkerd.io/enable-debug-sidecar": "true",
        },
    ),
    **{
        name: Injection(values=found, manual=True, creator="linkerd/cli test")
        for name, found in CLUSTERS.items()
    },
    "debug": Injection(
        values=values(),
        manual=True,
        overrides={"config.linkerd.io/enable-debug-sidecar": "true"},
    ),
}

KEYS = st.sampled_from(
    (
        *("team", "note", "linkerd", "a/b"),
        "config.linkerd.io/skip-inbound-ports",
        "config.linkerd.io/proxy-log-level",
        "config.linkerd.io/opaque-ports",
    )
)
TEXTS = st.one_of(
    st.sampled_from(("on", "1234", "0777", "null", "", "25,80", "22:22", "a\nb\n")),
    st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=6),
)
METADATA = st.fixed_dictionaries(
    {"name": st.from_regex(r"[a-z]{1,8}", fullmatch=True)},
    optional={
        "namespace": st.just("shop"),
        "annotations": st.dictionaries(KEYS, TEXTS, min_size=1, max_size=3),
        "labels": st.dictionaries(KEYS, TEXTS, min_size=1, max_size=2),
    },
)
CONTAINER = st.fixed_dictionaries(
    {"name": st.from_regex(r"[a-z]{1,6}", fullmatch=True)},
    optional={
        "image": TEXTS,
        "command": st.lists(TEXTS, min_size=1, max_size=2),
        "ports": st.lists(
            st.fixed_dictionaries(
                {"containerPort": st.integers(1, 65535)},
                optional={"protocol": st.just("UDP")},
            ),
            min_size=1,
            max_size=2,
        ),
        "resources": st.just({"requests": {"cpu": 0.5, "memory": "1Gi"}}),
        "securityContext": st.just({"capabilities": {"drop": ["ALL"]}}),
    },
)
VOLUME = st.fixed_dictionaries({"name": TEXTS, "emptyDir": st.just({})})
SPEC = st.fixed_dictionaries(
    {"containers": st.lists(CONTAINER, min_size=1, max_size=3)},
    optional={
        "initContainers": st.lists(CONTAINER, min_size=1, max_size=2),
        "volumes": st.lists(VOLUME, min_size=1, max_size=2),
        "priority": st.integers(0, 10),
        "hostNetwork": st.just(False),  # noqa: FBT003  (the value that is generated)
    },
)
TEMPLATE = st.fixed_dictionaries({"spec": SPEC}, optional={"metadata": METADATA})


def placed(kind: str, metadata: Any, template: Any) -> dict[str, Any]:
    """An object of a kind around a pod template."""
    top = {"kind": kind, "metadata": metadata}
    if kind == "Pod":
        return {**top, "spec": template["spec"]}
    if kind == "CronJob":
        return {**top, "spec": {"jobTemplate": {"spec": {"template": template}}}}
    return {**top, "spec": {"replicas": 2, "template": template}}


KINDS = ("Pod", "Deployment", "CronJob", "DaemonSet")
OBJECTS = st.builds(placed, st.sampled_from(KINDS), METADATA, TEMPLATE)
STYLES = ("block", "mixed", "JSON", "JSON in lines")


class Quoting(yaml.SafeDumper):
    """Quotes all texts: PyYAML takes fewer words for booleans than Kubernetes."""

    def ignore_aliases(self, _: Any) -> bool:
        """Write everything out."""
        return True


Quoting.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, '"'),
)


def laid_out(found: Any, style: str) -> str:
    """An object in one of the styles that people and programs write."""
    if style.startswith("JSON"):
        indent = 2 if "lines" in style else None
        return json.dumps(found, indent=indent, ensure_ascii=False)
    flow = None if style == "mixed" else False
    text: str = yaml.dump(
        found, Dumper=Quoting, default_flow_style=flow, allow_unicode=True, width=40
    )
    return text


def read(text: str) -> Any:
    """What a text means."""
    node = syntax.compose(text)
    assert node is not None
    return syntax.value(node)


def bare(found: Any) -> Any:
    """An object without what is empty."""
    if isinstance(found, dict):
        made = {key: bare(item) for key, item in found.items()}
        return {key: item for key, item in made.items() if item not in ({}, [], None)}
    return [bare(item) for item in found] if isinstance(found, list) else found


def only(outcomes: tuple[Outcome, ...]) -> Outcome:
    """The one outcome."""
    (outcome,) = outcomes
    assert not outcome.error
    return outcome


@pytest.mark.parametrize("name", INJECTIONS)
@settings(max_examples=15, deadline=None)
@given(found=OBJECTS, style=st.sampled_from(STYLES))
def test_injection_in_text(name: str, found: Any, style: str) -> None:
    """Twice is once; nothing of the author's is lost; uninject undoes it all."""
    injection = INJECTIONS[name]
    text = laid_out(found, style)

    first = transformed(text, injection)
    again = transformed(first.text, injection)
    back = transformed(first.text, removal)

    assert only(first.outcomes).status == "injected"
    assert again.text == first.text
    assert contains(read(first.text), found)
    assert only(back.outcomes).status == "uninjected"
    left = bare(read(back.text))
    for metadata in metadata_of(left):
        for key in injection.overrides:
            metadata.get("annotations", {}).pop(key, None)
    expected = copy.deepcopy(found)
    for metadata in metadata_of(expected):
        for key in injection.overrides:
            metadata.get("annotations", {}).pop(key, None)
    assert bare(left) == bare(expected)


@settings(max_examples=20, deadline=None)
@given(found=OBJECTS)
def test_layout_makes_no_difference(found: Any) -> None:
    """JSON, flow and block style come to the same objects."""
    injection = INJECTIONS["native"]
    first, *others = (
        read(transformed(laid_out(found, style), injection).text) for style in STYLES
    )

    assert others == [first] * 3


def metadata_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The metadata of an object, and of the template in it."""
    spec = found["spec"]
    template = spec.get("jobTemplate", {}).get("spec", spec).get("template", {})
    return [m for m in (found.get("metadata"), template.get("metadata")) if m]


def contains(made: Any, author: Any) -> bool:
    """Whether all that an author wrote is still there, in order."""
    if isinstance(author, dict):
        return all(key in made and contains(made[key], author[key]) for key in author)
    if isinstance(author, list):
        rest = iter(made)
        return all(any(contains(item, own) for item in rest) for own in author)
    return bool(made == author)


def pod(**spec: Any) -> dict[str, Any]:
    """A pod with a spec."""
    return {"kind": "Pod", "metadata": {"name": "a"}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "left"),
    [
        pytest.param(
            {"initContainers": [{"name": n} for n in (names.INIT, "a", names.PROXY)]},
            {"initContainers": [{"name": "a"}]},
            id="init containers",
        ),
        pytest.param(
            {"initContainers": [{"name": names.VALIDATOR}]}, {}, id="the validator"
        ),
        pytest.param(
            {"containers": [{"name": n} for n in (names.PROXY, "a", names.DEBUG)]},
            {"containers": [{"name": "a"}]},
            id="the proxy and its debugger",
        ),
        pytest.param(
            {"containers": [{"name": names.INIT}]},
            {"containers": [{"name": names.INIT}]},
            id="another container of the same name",
        ),
        pytest.param(
            {
                "volumes": [
                    {"name": name}
                    for name in (
                        *(names.VOLUME_IDENTITY, names.VOLUME_XTABLES, "own"),
                        *(names.VOLUME_TOKEN, names.VOLUME_PODINFO),
                    )
                ]
            },
            {"volumes": [{"name": "own"}]},
            id="volumes",
        ),
        pytest.param({"containers": []}, {"containers": []}, id="what was empty stays"),
        pytest.param({"containers": [None]}, {"containers": [None]}, id="a null"),
    ],
)
def test_what_uninject_removes(spec: Any, left: Any) -> None:
    """Everything that injection adds, and nothing else."""
    before = copy.deepcopy(pod(**spec))

    found, _ = uninject(before, "", has_pod=True)

    assert found == pod(**left)
    assert before == pod(**spec)


@pytest.mark.parametrize(
    ("metadata", "left", "status"),
    [
        pytest.param(
            {"annotations": {"linkerd.io/inject": "enabled", "a": "b"}},
            {"annotations": {"a": "b"}},
            "uninjected",
            id="an annotation",
        ),
        pytest.param(
            {"annotations": {"linkerd.io/inject": "disabled"}},
            {"annotations": {"linkerd.io/inject": "disabled"}},
            "skipped",
            id="disabled stays",
        ),
        pytest.param(
            {"annotations": {"linkerd.io/inject": "ingress"}},
            {},
            "uninjected",
            id="ingress goes",
        ),
        pytest.param(
            {"annotations": {"config.linkerd.io/proxy-uid": "1", "linkerd.io.x": "y"}},
            {"annotations": {"config.linkerd.io/proxy-uid": "1"}},
            "uninjected",
            id="settings stay",
        ),
        pytest.param(
            {"labels": {"linkerd.io/workload-ns": "a", "app": "b"}},
            {"labels": {"app": "b"}},
            "skipped",
            id="labels alone make no difference",
        ),
        pytest.param(
            {"labels": {"linkerd.io/control-plane-component": "identity"}},
            {"labels": {"linkerd.io/control-plane-component": "identity"}},
            "skipped",
            id="a part of the control plane",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["Pod", "Namespace", "Service", "Deployment"])
def test_what_uninject_leaves_of_metadata(
    metadata: Any, left: Any, status: str, kind: str
) -> None:
    """Keys that start with linkerd.io go, in all metadata of all kinds."""
    template = {"metadata": metadata, "spec": {}}
    spec = {"template": template} if kind == "Deployment" else {}
    text = json.dumps(
        {"kind": kind, "metadata": {"name": "a", **metadata}, "spec": spec}
    )

    result = transformed(text, removal)

    assert only(result.outcomes).status == status
    found = read(result.text)
    assert found["metadata"] == {"name": "a", **left}
    if kind == "Deployment":
        assert found["spec"]["template"].get("metadata", {}) == left


@pytest.mark.parametrize(
    ("mark", "text"),
    [("enabled", '"1234"'), ("disabled", "1234")],
    ids=["written as text", "left alone where the pod is"],
)
def test_numbers_among_annotations(mark: str, text: str) -> None:
    """Kubernetes takes texts alone, even if nothing else is to be changed."""
    pod = (
        "kind: Pod\nmetadata:\n  name: a\n  annotations:\n"
        "    config.linkerd.io/admin-port: %s  # ours\n"
        f"    linkerd.io/inject: {mark}\nspec: {{}}\n"
    )

    assert transformed(pod % 1234, INJECTIONS["annotated"]).text == pod % text


def test_ingress_mode_of_the_author_stays() -> None:
    """It is a way to be injected, and survives that it is done twice."""
    text = json.dumps(
        {
            "kind": "Pod",
            "metadata": {"name": "a", "annotations": {"linkerd.io/inject": "ingress"}},
            "spec": {"containers": [{"name": "a"}]},
        }
    )

    annotated = transformed(text, INJECTIONS["annotated"]).text
    rendered = transformed(text, INJECTIONS["native"]).text

    assert annotated == text
    assert "LINKERD2_PROXY_INGRESS_MODE" in rendered
    assert transformed(rendered, INJECTIONS["native"]).text == rendered


def test_each_document_of_a_stream_is_in_ingress_mode() -> None:
    """The flag counts for all pods alike, not for the first alone."""
    injection = Injection(
        values=values(proxy={"isIngress": True}),
        manual=True,
        overrides={"linkerd.io/inject": "ingress"},
    )
    item = json.dumps(pod(containers=[{"name": "a"}]))
    text = f'{{"kind": "List", "items": [{item}, {item}]}}'

    first, second = read(transformed(text, injection).text)["items"]

    assert first == second
    assert first["metadata"]["annotations"]["linkerd.io/inject"] == "ingress"


def test_flags_win_over_annotations() -> None:
    """What is written is what the containers follow."""
    annotations = {
        "config.linkerd.io/admin-port": 1111,
        "config.linkerd.io/proxy-uid": 7,
    }
    found = pod(containers=[{"name": "a"}])
    found["metadata"]["annotations"] = annotations
    base = values(proxy={"ports": {"admin": 2222}})
    injection = Injection(
        values=base,
        manual=True,
        overrides={"config.linkerd.io/admin-port": "2222"},
    )

    result = transformed(json.dumps(found), injection)

    made = read(result.text)
    ours = {c["name"]: c for c in made["spec"]["initContainers"]}
    assert made["metadata"]["annotations"]["config.linkerd.io/admin-port"] == "2222"
    assert made["metadata"]["annotations"]["config.linkerd.io/proxy-uid"] == "7"
    assert "4190,2222,4567,4568" in ours["linkerd-init"]["args"]
    assert ours["linkerd-proxy"]["securityContext"]["runAsUser"] == 7


def test_large_ids_are_written_as_digits() -> None:
    """OpenShift's uids are beyond a million, and no floats."""
    found = pod(containers=[{"name": "a"}])
    injection = Injection(values=values(proxy={"uid": 1000700000}), manual=True)

    text = transformed(json.dumps(found), injection).text

    assert '"1000700000"' in text
    assert "e+09" not in text
