"""Live connections that prove who answers."""

from __future__ import annotations

from proxyinit.facts import Facts
from proxyinit.verify import Judgement


def add(judgement: Judgement, facts: Facts) -> Judgement:
    """The judgement with what live connections show."""
    del facts
    return judgement
