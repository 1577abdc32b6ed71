"""YAML as Kubernetes reads it: text into nodes with positions, nodes into values.

libyaml does the grammar, `plain_words` says what words without quotes mean.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import yaml
from yaml import cyaml

from proxyinit.inject.errors import InjectError
from proxyinit.inject.plain_words import DECIMAL, go_text, plain

Scalar = yaml.ScalarNode
Mapping = yaml.MappingNode
Sequence = yaml.SequenceNode
Node: TypeAlias = Scalar | Mapping | Sequence

DEEPEST = 200
"""Levels of nesting; Kubernetes' deepest types need some 25 (CRD schemas: 60)."""

DEEPEST_MERGE = 5
"""Maps merged into maps that are merged, where a kind is looked for."""

MOST_EXPANDED = 100_000
"""Nodes that one document may have once its aliases are written out."""


class BadYaml(InjectError):
    """A text that Kubernetes would not read as one object; `line` counts from 0."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


class Plain(str):
    """A scalar's text that stands as it was typed, without quotes."""

    __slots__ = ()


class _Composer(cyaml.CParser):  # type: ignore[misc, name-defined]  # has no types
    """libyaml's composer; tags stay empty unless typed, and nesting has an end."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0

    def resolve(self, kind: type[Node], value: Any, implicit: Any) -> str:  # noqa: ARG002
        return ""

    def descend_resolver(self, current_node: Node | None, current_index: Any) -> None:  # noqa: ARG002
        self.depth += 1
        if self.depth > DEEPEST:
            line = 0 if current_node is None else current_node.start_mark.line
            raise BadYaml(f"nested deeper than {DEEPEST} levels", line)

    def ascend_resolver(self) -> None:
        self.depth -= 1


def joined(text: str) -> str:
    """JSON whose characters beyond U+FFFF are themselves, not two escapes each.

    JSON writes them so and YAML can't read it.
    """
    if "\\ud" not in text.lower() or not text.lstrip().startswith("{"):
        return text
    return _SURROGATES.sub(
        lambda pair: pair[1] + json.loads(f'"{pair[2]}"'),
        text,
    )


def compose(text: str) -> Node | None:
    """The one document in a text; None if it holds nothing. Raises `BadYaml`."""
    try:
        node: Node | None = _Composer(text).get_single_node()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position)
        raise BadYaml(f"control character {chr(error.character)!r}", line) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = mark.index if mark else 0
        line = text.count("\n", 0, at)
        raise BadYaml(_told(error, text[at : at + 1]), line) from error
    return node


def _told(error: yaml.MarkedYAMLError, found: str) -> str:
    """What is wrong; `found` is the character at which it was seen."""
    problem = error.problem or error.context or "not YAML"
    if found == "\t" and "cannot start any token" in problem:
        return "a tab can't indent YAML: use spaces"
    if "<document start>" in problem:
        return "expected the document to end, got what belongs to nothing in it"
    if "found another document" in problem:
        return "a second document without a line '---' before it"
    if error.context and error.context not in problem:
        return f"{problem} ({error.context})"
    return problem


def kind_of(node: Node | None, depth: int = 0) -> str | None:
    """The kind of an object, its own or merged; None without one.

    Raises `BadYaml` at a second one.
    """
    if not isinstance(node, Mapping) or depth > DEEPEST_MERGE:
        return None
    own = [item for name, item in node.value if name.value == "kind"]
    if len(own) > 1:
        raise BadYaml("key 'kind' stands there twice", own[1].start_mark.line)
    for found in own:
        kind = scalar(found) if isinstance(found, Scalar) else None
        return kind if kind and isinstance(kind, str) else None
    for name, item in node.value:
        if _merges(name):
            parts = item.value if isinstance(item, Sequence) else [item]
            kinds = (kind_of(part, depth + 1) for part in parts)
            return next(filter(None, kinds), None)
    return None


def scalar(node: Scalar) -> Any:
    """What a scalar means. Raises `BadYaml`."""
    if node.tag:
        return _tagged(node)
    return node.value if node.style else plain(node.value)


def key(node: Node) -> str:
    """A key as JSON has it: text, whatever YAML makes of it. Raises `BadYaml`."""
    found = scalar(node) if isinstance(node, Scalar) else None
    if found is None:
        raise BadYaml("expected text as a key", node.start_mark.line)
    return found if isinstance(found, str) else go_text(found)


def value(node: Node) -> Any:
    """What a tree without aliases means. Raises `BadYaml`."""
    if isinstance(node, Scalar):
        return scalar(node)
    if node.tag:
        _check_tag(node)
    if isinstance(node, Sequence):
        return [value(item) for item in node.value]
    found: dict[str, Any] = {}
    for name, item in node.value:
        text = key(name)
        if text in found:
            raise BadYaml(f"key {text!r} stands there twice", name.start_mark.line)
        found[text] = value(item)
    return found


def texts(node: Node) -> dict[str, str]:
    """Annotations or labels as text, where the reader would see numbers or booleans.

    Decimal numbers stay as typed, so that 1.10 does not become 1.1.
    """
    found = {}
    for name, item in node.value if isinstance(node, Mapping) else ():
        meant = scalar(item) if isinstance(item, Scalar) else None
        if meant is not None and not isinstance(meant, str):
            typed = DECIMAL.fullmatch(item.value)
            found[key(name)] = item.value if typed else go_text(meant)
    return found


def has_aliases(node: Node) -> bool:
    """Whether parts of a tree stand for one another, or are merged (``<<``)."""
    seen: set[int] = set()
    rest = [node]
    while rest:
        found = rest.pop()
        if id(found) in seen:
            return True
        seen.add(id(found))
        if isinstance(found, Mapping):
            if any(_merges(name) for name, _ in found.value):
                return True
            rest.extend(part for pair in found.value for part in pair)
        elif isinstance(found, Sequence):
            rest.extend(found.value)
    return False


def expanded(node: Node) -> Any:
    """A tree as a value with every alias written out; plain scalars as `Plain`.

    Raises `BadYaml` when that is more than `MOST_EXPANDED` nodes.
    """
    left = iter(range(MOST_EXPANDED))
    return _expanded(node, left, 0)


def _expanded(node: Node, left: Iterator[int], depth: int) -> Any:
    if next(left, None) is None or depth > DEEPEST:
        most = f"{MOST_EXPANDED} nodes or {DEEPEST} levels"
        raise BadYaml(f"aliases stand for more than {most}", node.start_mark.line)
    if isinstance(node, Scalar):
        untouched = not node.tag and not node.style
        return Plain(node.value) if untouched else scalar(node)
    if node.tag:
        _check_tag(node)
    if isinstance(node, Sequence):
        return [_expanded(item, left, depth + 1) for item in node.value]
    found: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for name, item in node.value:
        if _merges(name):
            parts = item.value if isinstance(item, Sequence) else [item]
            for part in parts:
                base = _expanded(part, left, depth + 1)
                if not isinstance(base, dict):
                    raise BadYaml("expected a map to merge", name.start_mark.line)
                merged = base | merged
            continue
        text = key(name)
        if text in found:
            raise BadYaml(f"key {text!r} stands there twice", name.start_mark.line)
        found[text] = _expanded(item, left, depth + 1)
    return merged | found


def _merges(name: Node) -> bool:
    return isinstance(name, Scalar) and name.value == "<<" and not name.style


_SURROGATES = re.compile(
    r"(?<!\\)((?:\\\\)*)(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)
_YAML = "tag:yaml.org,2002:"


def _tagged(node: Scalar) -> Any:
    if node.tag in (f"{_YAML}str", "!"):
        return node.value
    meant = plain(node.value)
    wanted = {
        f"{_YAML}int": int,
        f"{_YAML}float": int | float,
        f"{_YAML}bool": bool,
        f"{_YAML}null": None.__class__,
    }.get(node.tag)
    if wanted is None or not isinstance(meant, wanted):
        raise BadYaml(
            f"expected no tag such as {node.tag.replace(_YAML, '!!')!r} "
            f"on {node.value[:40]!r}",
            node.start_mark.line,
        )
    return meant


def _check_tag(node: Node) -> None:
    if node.tag not in (f"{_YAML}map", f"{_YAML}seq"):
        tag = node.tag.replace(_YAML, "!!")
        raise BadYaml(f"expected no tag such as {tag!r}", node.start_mark.line)
