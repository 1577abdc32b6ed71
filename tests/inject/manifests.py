"""Manifests for tests, and how commands over them are run."""

from __future__ import annotations

from collections.abc import Callable

POD = "kind: Pod\nmetadata: {name: %s}\nspec:\n  containers: [{name: a}]\n"
NAMESPACE = "kind: Namespace\nmetadata:\n  name: a\n"
FAILED = "Error transforming resources:\n"
"""What the error output begins with instead of the report."""

Run = Callable[..., tuple[int, str, str]]
"""Runs a command line; exit code, standard output, standard error."""
