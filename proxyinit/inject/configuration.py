"""The chart's values and the trust roots, from files that change meanwhile.

What can't be used is told once, and the last that could be stays in use: a mistake in
the configuration costs nobody a pod.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxyinit.inject import syntax
from proxyinit.inject.env import NO_ANCHORS
from proxyinit.inject.errors import ValuesError
from proxyinit.inject.values import Values, load
from proxyinit.logs import Log

VALUES = Path("/var/run/linkerd/config/values")
TRUST_ROOTS = Path("/var/run/linkerd/identity/trust-roots/ca-bundle.crt")


@dataclass(frozen=True, slots=True)
class Locations:
    """Where the two files are, and the control plane's namespace."""

    values: Path
    trust_roots: Path
    namespace: str


def parse(text: str) -> Mapping[str, Any]:
    """The values of a chart in YAML. Raises `ValuesError`."""
    try:
        node = syntax.compose(text)
        if node is None:
            return {}
        if syntax.has_aliases(node):
            raise ValuesError(["expected YAML without aliases"])
        found = syntax.value(node)
    except syntax.BadYaml as error:
        raise ValuesError([f"line {error.line + 1}: {error}"]) from error
    if not isinstance(found, Mapping):
        raise ValuesError(["expected an object"])
    return found


@dataclass(frozen=True, slots=True)
class Texts:
    """What the two files hold."""

    values: str
    trust_roots: str


def read(locations: Locations) -> Texts:
    """Read the files. Raises `ValuesError`."""
    texts = []
    for path in (locations.values, locations.trust_roots):
        try:
            texts.append(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ValuesError([f"can't read {path}: {error}"]) from error
    return Texts(*texts)


def understand(texts: Texts, namespace: str) -> Values:
    """The values that texts make. Raises `ValuesError`."""
    if not texts.trust_roots.strip():
        raise ValuesError([NO_ANCHORS])
    return load(
        parse(texts.values),
        control_namespace=namespace,
        trust_anchors=texts.trust_roots,
    )


class Configuration:
    """The values in use. The files are looked at for each request, as upstream does.

    `current` reads them when they look changed (two calls of stat), `refresh` in any
    case. Raises `ValuesError` when made, and never afterwards.
    """

    def __init__(self, locations: Locations, log: Log) -> None:
        self._locations = locations
        self._log = log
        self._seen = self._look()
        texts = read(locations)
        self._texts: Texts | None = texts
        self._values = understand(texts, locations.namespace)
        self._reported = ""

    def current(self) -> Values:
        """The values that the files hold now, if they can be used."""
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            self.refresh()
        return self._values

    def refresh(self) -> None:
        """Read the files, whatever they look like."""
        texts: Texts | None = None
        try:
            texts = read(self._locations)
            if texts == self._texts:
                return
            found = understand(texts, self._locations.namespace)
        except ValuesError as error:
            self._texts = texts
            if str(error) != self._reported:
                self._reported = str(error)
                self._log.error(f"keeping the values in use: {error}")
            return
        self._texts, self._reported = texts, ""
        if found != self._values:
            self._values = found
            self._log.info("Updated values")

    def _look(self) -> tuple[object, ...]:
        return tuple(
            _signature(path)
            for path in (self._locations.values, self._locations.trust_roots)
        )


def _signature(path: Path) -> object:
    try:
        found = os.stat(path)  # noqa: PTH116  (a third of the time of Path.stat)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
