"""From what was typed, and the files it names, to how to inject."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import click

from proxyinit import __version__
from proxyinit.inject import annotations as keys
from proxyinit.inject import syntax
from proxyinit.inject.errors import ValuesError
from proxyinit.inject.settings import (
    DEPRECATED,
    duration_text,
    flagged,
    with_registry,
)
from proxyinit.inject.syntax import BadYaml
from proxyinit.inject.transform import Injection
from proxyinit.inject.values import Values, load

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
    *,
    manual: bool,
    values_file: str | None,
    trust_anchors: str | None,
    ignore_cluster: bool,
    linkerd_namespace: str,
    **given: Any,
) -> Injection:
    """How to inject, from what was typed. Raises `click.UsageError`."""
    if given["disable_identity"]:
        raise click.UsageError(_NO_IDENTITY)
    if manual and values_file is None and not ignore_cluster:
        raise click.UsageError(_ASK_CLUSTER)
    base = _base(values_file, trust_anchors, linkerd_namespace)
    for old, new in DEPRECATED.items():
        name, meant = (flag[2:].replace("-", "_") for flag in (old, new))
        given[meant] = given[meant] or given[name]
    known = values_file is not None or ignore_cluster
    images = with_registry(base, given["registry"] or "")
    found = flagged(images.values, given, known=known)
    values = found.values
    if given["ingress"]:
        values = replace(values, proxy=replace(values.proxy, ingress=True))
    if manual:
        _check_renderable(values)
    return Injection(
        values=values,
        overrides={**images.overrides, **found.overrides, **dict(_marks(given))},
        manual=manual,
        creator=f"linkerd/cli {__version__}",
        opaque_ports=given["opaque_ports"],
    )


def _marks(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Annotations of flags that set no value of the chart."""
    if given["debug"]:
        yield keys.DEBUG, "true"
    if given["close_wait_timeout"] is not None:
        yield keys.CLOSE_WAIT, duration_text(given["close_wait_timeout"])
    if given["ingress"]:
        yield keys.INJECT, keys.INGRESS


def _check_renderable(values: Values) -> None:
    """Raise `click.UsageError` where no container could be written at all."""
    if not values.trust_anchors.strip():
        raise click.UsageError(_NO_ANCHORS)
    if not values.proxy_version:
        raise click.UsageError(_NO_VERSION)


def _base(values_file: str | None, anchors_file: str | None, namespace: str) -> Values:
    """The values before any flag."""
    anchors = None if anchors_file is None else _file(anchors_file)
    if anchors is not None and "-----BEGIN CERTIFICATE-----" not in anchors:
        told = f"{anchors_file}: expected certificates in PEM"
        raise click.UsageError(f"--trust-anchors {told}")
    chart = {} if values_file is None else _chart(values_file, _file(values_file))
    try:
        return load(chart, control_namespace=namespace, trust_anchors=anchors)
    except ValuesError as error:
        lines = "".join(f"\n  {problem}" for problem in error.problems)
        raise click.UsageError(f"--values {values_file}:{lines}") from error


def _chart(path: str, text: str) -> dict[str, Any]:
    """Values from YAML, or from the ConfigMap that has them."""
    try:
        found = _yaml(text)
        if isinstance(found, dict) and found.get("kind") == "ConfigMap":
            found = _yaml((found.get("data") or {}).get("values") or "")
    except BadYaml as error:
        told = f"--values {path}:{error.line + 1}: {error}"
        raise click.UsageError(told) from error
    if not isinstance(found, dict):
        raise click.UsageError(f"--values {path}: expected a map of the chart's values")
    return found


def _yaml(text: str) -> Any:
    root = syntax.compose(text)
    if root is None:
        return {}
    if syntax.has_aliases(root):
        raise BadYaml("expected values without anchors, aliases and merges")
    return syntax.value(root)


def _file(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  (as it was typed)
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise click.UsageError(f"{path} can't be read: {why}") from error
