"""Damaged manifests: refused in words, or written so that they mean what was meant."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit.inject import syntax
from proxyinit.inject.errors import InjectError
from proxyinit.inject.manifest import as_json, objects, transformed
from proxyinit.inject.stream import documents
from proxyinit.inject.transform import Injection, Transform, removal
from proxyinit.inject.values import load

INPUTS = Path(__file__).with_name("golden_cli") / "inputs"
DOCUMENTS = tuple(
    document.text
    for path in sorted(INPUTS.iterdir())
    for document in documents(io.BytesIO(path.read_bytes()))
)
PIECES = (
    *("null", "[]", "{}", '"x"', "1", "[null]", "{a: 1}", "- a", "!!str ", "|", ">"),
    *("|+\n", "\t", "#", " # c\n", "---", ": ", "? ", "%", "@", '"', "'", "<<: ", "\0"),
    *("&a ", "*a ", "\r\n", "\r", "\n", "\n\n", "  ", "\x85", "\u2028", "…", "😀"),
    *("{", "}", "[", "]", ",", "kind: Pod\n", "linkerd.io/inject: ingress\n"),
)
DAMAGE = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 30), st.sampled_from(PIECES)),
    min_size=1,
    max_size=3,
)
VALUES = load({"linkerdVersion": "v1"}, trust_anchors="-----BEGIN CERTIFICATE-----\n")
TRANSFORMS: dict[str, Transform] = {
    "annotated": Injection(values=VALUES),
    "manual": Injection(values=VALUES, manual=True, opaque_ports="1"),
    "removed": removal,
}


def damaged(text: str, damage: list[tuple[float, int, str]]) -> str:
    """A text with pieces put over parts of it."""
    for place, length, piece in damage:
        at = int(place * len(text))
        text = text[:at] + piece + text[at + length :]
    return text


@pytest.mark.parametrize("name", TRANSFORMS)
@settings(max_examples=80, deadline=None)
@given(text=st.sampled_from(DOCUMENTS), damage=DAMAGE)
def test_damage(name: str, text: str, damage: list[tuple[float, int, str]]) -> None:
    """What is written is what the transform made, and is not changed again."""
    transform = TRANSFORMS[name]
    given_text = damaged(text, damage)

    try:
        result = transformed(given_text, transform)
    except InjectError:
        return

    if result.text == given_text or any(o.error for o in result.outcomes):
        return
    found = objects(syntax.compose(result.text))
    for (node, _), outcome in zip(found, result.outcomes, strict=True):
        if node is not None and outcome.changed is not None:
            assert syntax.value(node) == outcome.changed
    assert transformed(result.text, transform).text == result.text
    assert as_json(result.text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(
            "kind: Pod\nmetadata: {name: a}\n",
            "pod/a: expected a pod's spec, found none",
            id="no spec",
        ),
        pytest.param(
            "kind: Pod\nmetadata: {name: a, labels: x}\nspec: {}\n",
            "pod/a: expected an object as 'labels', got 'x'",
            id="labels that are none",
        ),
        pytest.param(
            "kind: Namespace\nmetadata: {name: a, annotations: [x]}\n",
            "namespace/a: expected an object as 'annotations', got ['x']",
            id="annotations of a namespace that are none",
        ),
        pytest.param(
            "kind: Pod\nmetadata: {name: a}\nspec: {volumes: {a: b}}\n",
            "pod/a: expected a list as 'volumes', got {'a': 'b'}",
            id="volumes that are none",
        ),
        pytest.param(
            "kind: Pod\nmetadata: [a]\n",
            "pod/: expected an object as 'metadata', got ['a']",
            id="metadata that is none",
        ),
    ],
)
def test_objects_of_another_shape(text: str, told: str) -> None:
    """It is said what was expected, and of which object."""
    (outcome,) = transformed(text, TRANSFORMS["manual"]).outcomes

    assert outcome.error == told


@pytest.mark.parametrize("odd", ["\x85", "\u2028", "\u2029", "\r"])
def test_lines_that_only_yaml_sees(odd: str) -> None:
    """Breaks that no editor knows are laid out anew, not cut through."""
    text = f"kind: Pod{odd}metadata:\n  name: a{odd}spec: {{}}\n"

    result = transformed(text, TRANSFORMS["annotated"])

    assert result.text == (
        "kind: Pod\nmetadata:\n  name: a\n  annotations:\n"
        "    linkerd.io/inject: enabled\nspec: {}\n"
    )
