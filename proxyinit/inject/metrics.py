"""What operators can watch: upstream's two counters, and a few of our own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from proxyinit.inject.annotations import METERED

CONFIG_LABELS = tuple(key.partition("/")[2].replace("-", "_") for key in METERED)
MOST_KEPT = 2000
_METERED = frozenset(METERED)
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)

Config = tuple[tuple[str, str], ...]
"""The metered annotations that an object has."""


def config(annotations: Mapping[str, str]) -> Config:
    """What of an object's own annotations is metered, and not the inherited."""
    return tuple(item for item in annotations.items() if item[0] in _METERED)


def _child(counter: Counter, *labels: Any) -> Counter:
    """The counter for these labels, of which the last is `Config`."""
    *first, config = labels
    found = dict(config)
    return counter.labels(*first, *(found.get(key, "") for key in METERED))


class Metrics:
    """The webhook's metrics in a registry of their own."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no types
        self.registry = CollectorRegistry()
        self._requests = self._counter(
            "proxy_inject_admission_requests",
            "Objects that were looked at.",
            ("owner_kind", "namespace", "annotation_at", *CONFIG_LABELS),
        )
        self._responses = self._counter(
            "proxy_inject_admission_responses",
            "Objects by what became of them.",
            (
                *("owner_kind", "namespace", "skip", "skip_reason", "annotation_at"),
                *CONFIG_LABELS,
            ),
        )
        # Finding one child among labels takes longer than all else that is counted.
        self._request = lru_cache(MOST_KEPT)(partial(_child, self._requests))
        self._response = lru_cache(MOST_KEPT)(partial(_child, self._responses))
        self._failures = self._counter(
            "proxy_inject_admission_failures",
            "Reviews without an answer that lets an object pass, by HTTP status.",
            ("status",),
        )
        self._events = self._counter(
            "proxy_inject_events",
            "Kubernetes events, by what became of them.",
            ("outcome",),
        )
        self._seconds = Histogram(
            "proxy_inject_admission_seconds",
            "Time from the last byte of a review to its answer.",
            buckets=_BUCKETS,
            registry=self.registry,
        )

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def asked(
        self, owner_kind: str, namespace: str, annotation_at: str, config: Config
    ) -> None:
        """An object was looked at."""
        self._request(owner_kind, namespace, annotation_at, config).inc()

    def answered(
        self,
        owner_kind: str,
        namespace: str,
        reasons: tuple[str, ...] | None,
        annotation_at: str,
        config: Config,
    ) -> None:
        """An object was patched, or skipped for `reasons`."""
        skip = "false" if reasons is None else "true"
        why = ",".join(reasons or ())
        self._response(owner_kind, namespace, skip, why, annotation_at, config).inc()

    def failed(self, status: int) -> None:
        """A review got no answer that lets its object pass."""
        self._failures.labels(str(status)).inc()

    def took(self, seconds: float) -> None:
        """A review was answered."""
        self._seconds.observe(seconds)

    def event(self, outcome: str) -> None:
        """An event was `sent`, `failed` or `dropped`."""
        self._events.labels(outcome).inc()

    def render(self) -> bytes:
        """All of them in the text format."""
        return generate_latest(self.registry)
