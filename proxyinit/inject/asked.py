"""From what was typed, and the files it names, to how to inject.

No mistake ends the reading: each goes into `problems`, and all are told together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from proxyinit import __version__
from proxyinit.inject import annotations as keys
from proxyinit.inject import syntax
from proxyinit.inject.errors import ValuesError
from proxyinit.inject.settings import (
    DEPRECATED,
    SETTINGS,
    duration_text,
    flagged,
    namespace,
    with_registry,
)
from proxyinit.inject.syntax import BadYaml
from proxyinit.inject.transform import Injection
from proxyinit.inject.values import Values, load
from proxyinit.pflag import Arguments

_NO_IDENTITY = "identity can't be disabled any more: --disable-identity has gone"
_ASK_CLUSTER = (
    "expected --values FILE with --manual: no cluster is asked for its values. "
    "Save them (kubectl -n linkerd get configmap linkerd-config -o yaml), or take the "
    "chart's defaults with --ignore-cluster"
)
_NO_VERSION = (
    "expected the version of the proxy's image with --manual: --proxy-version TAG, "
    "or linkerdVersion in --values"
)
_NO_ANCHORS = (
    "Please provide the identity trust anchors: --trust-anchors FILE, as in the "
    "ConfigMap linkerd-identity-trust-roots"
)


def injection(
    arguments: Arguments, environment: Mapping[str, str], problems: list[str]
) -> Injection:
    """How to inject, from what was typed; of no use where there are `problems`."""
    asked = arguments.values
    given = _given(arguments)
    if asked["disable-identity"]:
        problems.append(_NO_IDENTITY)
    manual = bool(asked["manual"])
    known = "values" in arguments.given or bool(asked["ignore-cluster"])
    if manual and not known:
        problems.append(_ASK_CLUSTER)
    base = _base(arguments, environment, problems)
    registry = asked["registry"] or environment.get("LINKERD_DOCKER_REGISTRY")
    images = with_registry(base or Values(), str(registry or ""))
    found = flagged(images.values, given, known=known)
    values = found.values
    if asked["ingress"]:
        values = replace(values, proxy=replace(values.proxy, ingress=True))
    if manual and known and base is not None:
        problems += _lacking(values, anchored="trust-anchors" in arguments.given)
    return Injection(
        values=values,
        overrides={**images.overrides, **found.overrides, **dict(_marks(asked))},
        manual=manual,
        creator=f"linkerd/cli {__version__}",
        opaque_ports=given.get("opaque-ports"),
    )


def _given(arguments: Arguments) -> dict[str, Any]:
    """Values that were typed, and could be read, under the names of today."""
    found = {
        name: arguments.values[name]
        for name in arguments.given
        if arguments.values[name] is not None
    }
    for setting in SETTINGS:
        name = setting.flag.name
        if setting.is_list and name in found:
            found[name] = ",".join(filter(None, arguments.given[name]))
    for old, new in DEPRECATED.items():
        if old in found:
            found.setdefault(new, found[old])
    return found


def _marks(asked: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Annotations of flags that set no value of the chart."""
    if asked["enable-debug-sidecar"]:
        yield keys.DEBUG, "true"
    if asked["close-wait-timeout"] is not None:
        yield keys.CLOSE_WAIT, duration_text(asked["close-wait-timeout"])
    if asked["ingress"]:
        yield keys.INJECT, keys.INGRESS


def _lacking(values: Values, *, anchored: bool) -> Iterator[str]:
    """What is missing without which no container could be written at all."""
    if not anchored and not values.trust_anchors.strip():
        yield _NO_ANCHORS
    if not values.proxy_version:
        yield _NO_VERSION


# === values, and the files that they are in ===


def _base(
    arguments: Arguments, environment: Mapping[str, str], problems: list[str]
) -> Values | None:
    """The values before any flag; None where --values can't be followed."""
    control = str(arguments.values["linkerd-namespace"])
    name = environment.get("LINKERD_NAMESPACE")
    if name and "linkerd-namespace" not in arguments.given:
        try:
            control = namespace(name)
        except ValueError as error:
            problems.append(f"LINKERD_NAMESPACE {name!r}: {error}")
    chart: Mapping[str, Any] | None = {}
    if "values" in arguments.given:
        chart = _chart(str(arguments.values["values"]), problems)
    anchors = None
    if "trust-anchors" in arguments.given:
        anchors = _anchors(str(arguments.values["trust-anchors"]), problems)
    if chart is None:
        return None
    try:
        return load(chart, control_namespace=control, trust_anchors=anchors)
    except ValuesError as error:
        path = arguments.values["values"]
        problems += [f"--values {path}: {problem}" for problem in error.problems]
        return None


def _chart(path: str, problems: list[str]) -> Mapping[str, Any] | None:
    """Values from YAML, or from the ConfigMap that has them; None where it is wrong."""
    text = _file("--values", path, problems)
    if text is None:
        return None
    try:
        found = _yaml(text)
        if isinstance(found, dict) and found.get("kind") == "ConfigMap":
            data = found.get("data")
            held = data.get("values") if isinstance(data, dict) else None
            if not isinstance(held, str):
                problems.append(f"--values {path}: expected text as data.values")
                return None
            found = _yaml(held)
    except BadYaml as error:
        problems.append(f"--values {path}:{error.line + 1}: {error}")
        return None
    if not isinstance(found, dict):
        problems.append(f"--values {path}: expected a map of the chart's values")
        return None
    return found


def _yaml(text: str) -> Any:
    root = syntax.compose(text)
    if root is None:
        return {}
    if syntax.has_aliases(root):
        raise BadYaml("expected values without anchors, aliases and merges")
    return syntax.value(root)


def _anchors(path: str, problems: list[str]) -> str | None:
    text = _file("--trust-anchors", path, problems)
    if text is not None and "-----BEGIN CERTIFICATE-----" not in text:
        problems.append(f"--trust-anchors {path}: expected certificates in PEM")
    return text


def _file(flag: str, path: str, problems: list[str]) -> str | None:
    """A file's text; None where it can't be read."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  (as it was typed)
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        problems.append(f"{flag} {path}: can't be read: {why}")
        return None
