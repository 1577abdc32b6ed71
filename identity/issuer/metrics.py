"""What operators can watch: Linkerd's metric names, and a few of our own."""

from __future__ import annotations

import datetime as dt

import grpc
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from identity._proto import SERVICE

_CALL = {
    "grpc_type": "unary",
    "grpc_service": SERVICE,
    "grpc_method": "Certify",
}
_BUCKETS = (0.1, 1.0, 300.0, 3600.0)
"""Upstream's; coarse, but what its dashboards are made for."""


def code_name(code: grpc.StatusCode) -> str:
    """A status as Go's library calls it in labels: NotFound for NOT_FOUND."""
    if code is grpc.StatusCode.CANCELLED:
        return "Canceled"
    return "OK" if code is grpc.StatusCode.OK else code.name.title().replace("_", "")


class Metrics:
    """The service's metrics in a registry of their own.

    When several processes serve, each keeps its values in files that the one which
    is asked adds up.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        labels = list(_CALL)

        def counter(name: str, text: str, names: list[str]) -> Counter:
            return Counter(name, text, names, registry=registry)

        started = counter("grpc_server_started", "Calls started.", labels)
        received = counter("grpc_server_msg_received", "Messages received.", labels)
        sent = counter("grpc_server_msg_sent", "Messages sent.", labels)
        handled = counter(
            "grpc_server_handled", "Calls ended, by status.", [*labels, "grpc_code"]
        )
        handling = Histogram(
            "grpc_server_handling_seconds",
            "Time from the start of a call to its end.",
            labels,
            buckets=_BUCKETS,
            registry=registry,
        )
        self._started = started.labels(**_CALL)
        self._received = received.labels(**_CALL)
        self._sent = sent.labels(**_CALL)
        self._handling = handling.labels(**_CALL)
        self._handled = {
            code: handled.labels(**_CALL, grpc_code=code_name(code))
            for code in grpc.StatusCode
        }
        self._ttl = Gauge(
            "issuer_cert_ttl_seconds",
            "Seconds until the issuer certificate expires; negative afterwards.",
            registry=registry,
            multiprocess_mode="livemin",
        )
        self._events = counter(
            "identity_events", "Kubernetes events, by what became of them.", ["outcome"]
        )
        self._updates = counter(
            "identity_issuer_updates", "Times a new issuer was put into use.", []
        )
        self.api = ApiMetrics(registry)

    def call_started(self) -> None:
        """A call has arrived with its message."""
        self._started.inc()
        self._received.inc()

    def call_ended(self, code: grpc.StatusCode, seconds: float) -> None:
        """A call was answered."""
        self._handled[code].inc()
        self._handling.observe(seconds)
        if code is grpc.StatusCode.OK:
            self._sent.inc()

    def event(self, outcome: str) -> None:
        """An event was `sent`, `failed` or `dropped`."""
        self._events.labels(outcome=outcome).inc()

    def issuer_updated(self) -> None:
        """A new issuer is in use."""
        self._updates.inc()

    def issuer_ends(self, not_after: dt.datetime, now: dt.datetime) -> None:
        """How long the issuer in use is still good."""
        self._ttl.set(int((not_after - now).total_seconds()))


class ApiMetrics:
    """Calls to the Kubernetes API."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._in_flight = Gauge(
            "http_client_in_flight_requests",
            "Calls to the Kubernetes API that wait for an answer.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._requests = Counter(
            "http_client_requests",
            "Calls to the Kubernetes API, by HTTP status and method.",
            ["code", "method"],
            registry=registry,
        )
        self._latency = Histogram(
            "http_client_request_latency_seconds",
            "Time that calls to the Kubernetes API took.",
            ["code", "method"],
            registry=registry,
        )

    def started(self) -> None:
        """A call begins."""
        self._in_flight.inc()

    def finished(self, code: str, method: str, seconds: float) -> None:
        """A call has ended."""
        self._in_flight.dec()
        self._requests.labels(code=code, method=method.lower()).inc()
        self._latency.labels(code=code, method=method.lower()).observe(seconds)
