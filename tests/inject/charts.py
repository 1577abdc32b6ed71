"""Values for tests, as charts have them."""

from __future__ import annotations

from typing import Any

from proxyinit.inject import values
from proxyinit.inject.values import Values

Chart = dict[str, Any]
ROOT = {"runAsRoot": True}


def loaded(chart: Chart | None = None, **init: Any) -> Values:
    """Values of a chart; `init` are those of proxyInit."""
    return values.load(
        {"linkerdVersion": "v1", **(chart or {}), "proxyInit": init},
        trust_anchors="PEM\n",
    )
