"""A webhook without its server, and all that it says, counts and sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxyinit.inject import events
from proxyinit.inject.configuration import Configuration, Locations
from proxyinit.inject.errors import NotKnown
from proxyinit.inject.metrics import Metrics
from proxyinit.inject.testing import Reply, review
from proxyinit.inject.webhook import Webhook
from proxyinit.logs import Log

REPLICASET = {
    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5b", "uid": "r1",
}  # fmt: skip
DEPLOYMENT = {
    "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d1",
}  # fmt: skip
ENABLED = {"linkerd.io/inject": "enabled"}


@dataclass
class Surroundings:
    """A cluster that knows one namespace, and one ReplicaSet if it does."""

    found: Mapping[str, str] = field(default_factory=lambda: dict(ENABLED))
    owners: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    async def annotations(self, _namespace: str) -> Mapping[str, str]:
        """The namespace's, or what keeps us from knowing."""
        if self.error:
            raise NotKnown(self.error)
        return self.found

    async def owned(self, kind: str, _namespace: str, name: str) -> Any:
        """Who stands behind it."""
        above = self.owners.get(f"{kind}/{name}")
        return None if above is None else {"metadata": {"ownerReferences": [above]}}


class Bench:
    """A webhook, and all that it says and counts."""

    def __init__(self, folder: Path, **options: Any) -> None:
        values, roots = folder / "values", folder / "roots"
        values.write_text("linkerdVersion: v1\n")
        roots.write_text("PEM\n")
        self.lines: list[str] = []
        self.events: list[events.Event] = []
        self.metrics = Metrics()
        self.cluster = Surroundings()
        log = Log("debug", write=self.lines.append)
        self.webhook = Webhook(
            configuration=Configuration(Locations(values, roots, "linkerd"), log),
            cluster=self.cluster,
            metrics=self.metrics,
            log=log,
            creator="linkerd/proxy-injector v1",
            **{"send": self.events.append, **options},
        )

    def post(self, body: bytes) -> Reply:
        """Answer a body."""
        found = asyncio.run(self.webhook.answer(body))
        return Reply(found.status, found.body.decode())

    def ask(self, found: Mapping[str, Any], **more: Any) -> Reply:
        """Answer the review of an object."""
        return self.post(json.dumps(review(found, **more)).encode())

    def said(self, *words: str) -> bool:
        """Whether a line has all of these."""
        return any(all(word in line for word in words) for line in self.lines)

    def counted(self, name: str, **labels: str) -> float | None:
        """A counter, with its other labels empty."""
        for metric in self.metrics.registry.collect():
            for sample in metric.samples:
                if sample.name == f"{name}_total" and labels == {
                    key: value for key, value in sample.labels.items() if value
                }:
                    return sample.value
        return None
