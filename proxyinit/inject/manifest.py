"""One document of a stream: read, transformed, and written back where it changed.

A document is an object or a List of objects. Text that no object of ours is in comes
back as it is. Documents with aliases are written anew when they change: an edit of
one place would otherwise change all that stand for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from proxyinit.inject import layout, syntax
from proxyinit.inject.edit import Change, Unplaceable, edited
from proxyinit.inject.errors import Malformed
from proxyinit.inject.report import SKIPPED, Outcome
from proxyinit.inject.syntax import BadYaml, Node, Scalar
from proxyinit.inject.transform import Transform
from proxyinit.inject.workload import is_annotatable, read

LIST = "List"
DEEPEST_LIST = 5

GROUPS = ("", "apps", "batch", "extensions")
"""API groups of Kubernetes' own workloads."""


@dataclass(frozen=True, slots=True)
class Result:
    """A document's text afterwards, and what became of each object in it."""

    text: str
    outcomes: tuple[Outcome, ...]


def transformed(text: str, transform: Transform) -> Result:
    """Transform the objects of one document. Raises `BadYaml`."""
    if (readable := syntax.joined(text)) != text:
        result = transformed(readable, transform)
        return Result(text, result.outcomes) if result.text == readable else result
    root = syntax.compose(text)
    found = list(objects(root))
    ours = any(is_annotatable(kind) for _, kind in found)
    if root is not None and ours and _has_aliases(text, root):
        return _transformed_anew(text, root, transform)
    outcomes: list[Outcome] = []
    changes: list[Change] = []
    for node, kind in found:
        outcome, change = _object(node, kind, transform)
        outcomes.append(outcome)
        changes += change
    try:
        after = edited(text, changes) if changes else text
    except Unplaceable:
        assert root is not None  # noqa: S101  (something in it changed)
        return _transformed_anew(text, root, transform)
    return Result(after, tuple(outcomes))


def _transformed_anew(text: str, root: Node, transform: Transform) -> Result:
    """Transform a document that is laid out anew, without aliases.

    What is wrong in it is where the document begins: its own lines are nobody's.
    """
    anew = layout.block(syntax.expanded(root))
    if anew == text:
        raise BadYaml("laid out in a way that can't be changed: use one key per line")
    result = transformed(anew, transform)
    outcomes = tuple(
        replace(each, at=None if each.at is None else 0) for each in result.outcomes
    )
    return Result(result.text if result.text != anew else text, outcomes)


def as_json(text: str) -> str:
    """A document as one line of JSON; empty for an empty one. Raises `BadYaml`."""
    root = syntax.compose(syntax.joined(text))
    if root is not None and _has_aliases(text, root):
        root = syntax.compose(layout.block(syntax.expanded(root)))
    found = None if root is None else syntax.value(root)
    if found is None:
        return ""
    try:
        return json.dumps(
            found, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
    except ValueError as error:
        raise BadYaml("JSON has no numbers such as .inf and .nan") from error


def objects(root: Node | None, depth: int = 0) -> Iterator[tuple[Node | None, str]]:
    """Each object of a document and its kind, empty if it says none.

    Lists are looked into, a DeploymentList and its like as well, Lists in them too;
    their nulls are objects without a kind.
    """
    kind = syntax.kind_of(root)
    if root is None or not _is_list(kind or ""):
        yield root, kind or ""
        return
    if depth > DEEPEST_LIST:
        raise BadYaml(f"Lists in Lists, deeper than {DEEPEST_LIST}")
    for name, items in root.value:
        if syntax.key(name) == "items" and isinstance(items, syntax.Sequence):
            for item in items.value:
                yield from objects(item, depth + 1)


def _is_list(kind: str) -> bool:
    if kind == LIST:
        return True
    return kind.endswith(LIST) and is_annotatable(kind.removesuffix(LIST))


def _is_foreign(found: Mapping[str, Any]) -> bool:
    """Whether an object only shares its kind's name with one of Kubernetes' own.

    Knative's Services are no Services, and Volcano's Jobs have no pod template; a
    StatefulSet of OpenKruise has one where it is expected, and is as good.
    """
    group, named, _ = str(found.get("apiVersion") or "").rpartition("/")
    if not named or group in GROUPS:
        return False
    spec = found.get("spec")
    kind = str(found.get("kind")).lower()
    return (
        kind in ("service", "namespace")
        or not isinstance(spec, dict)
        or not (spec.get("template") or spec.get("jobTemplate"))
    )


def _object(
    node: Node | None, kind: str, transform: Transform
) -> tuple[Outcome, tuple[Change, ...]]:
    if node is None or not is_annotatable(kind):
        return Outcome(kind=kind, name=_name(node)), ()
    old = syntax.value(node)
    if _is_foreign(old):
        return Outcome(kind=kind, name=_name(node)), ()
    try:
        way = tuple(read(old).prefix.split("/")[1:])
        meant = _with_texts(node, old, way)
        outcome = transform(meant)
    except Malformed as error:
        name = _name(node)
        told = f"{kind.lower()}/{name}: {error}"
        at = node.start_mark.line
        return Outcome(kind=kind, name=name, error=told, at=at), ()
    before = meant if outcome.status == SKIPPED else old  # else texts become texts
    if outcome.error or outcome.changed == before:
        return outcome, ()
    return outcome, ((node, old, outcome.changed),)


def _with_texts(node: Node, old: Any, way: tuple[str, ...]) -> Any:
    """An object whose annotations and labels are texts, as Kubernetes has them."""
    found = old
    metadata = old.get("metadata") or {}
    for field in ("annotations", "labels"):
        entries = metadata.get(field)
        if isinstance(entries, dict) and any(
            type(v) is not str for v in entries.values()
        ):
            texts = syntax.texts(_child(_child(node, "metadata"), field))
            metadata = {**metadata, field: {**entries, **texts}}
            found = {**old, "metadata": metadata}
    if way:
        inner = _with_texts(_child(node, way[0]), old[way[0]], way[1:])
        if inner is not old[way[0]]:
            found = {**found, way[0]: inner}
    return found


def _child(node: Node, field: str) -> Node:
    found: Node = next(i for name, i in node.value if syntax.key(name) == field)
    return found


def _has_aliases(text: str, root: Node) -> bool:
    possible = ("*" in text and "&" in text) or "<<" in text
    return possible and syntax.has_aliases(root)


def _name(node: Node | None) -> str:
    """The name in an object's metadata, without judging the rest."""
    for name, metadata in node.value if isinstance(node, syntax.Mapping) else ():
        if name.value == "metadata" and isinstance(metadata, syntax.Mapping):
            for key, found in metadata.value:
                if key.value == "name" and isinstance(found, Scalar):
                    return str(found.value)
    return ""
