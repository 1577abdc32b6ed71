"""Metrics of the client; the first three are named as the proxy names its own."""

from __future__ import annotations

from datetime import datetime

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    disable_created_metrics,
    generate_latest,
)

from identity import errors

OUTCOMES: dict[type[errors.IdentityError], str] = {
    errors.TokenUnusable: "token",
    errors.ServiceUnresolved: "unresolved",
    errors.ServiceUnreachable: "unreachable",
    errors.ServiceUntrusted: "untrusted",
    errors.ClientRefused: "client_refused",
    errors.CallFailed: "call",
    errors.CertificateRejected: "rejected",
    errors.DirectoryUnusable: "directory",
    errors.BadKeyPair: "key_pair",
}
"""How an attempt can end, other than "ok"."""
OTHER = "other"


class Metrics:
    """Counts what the agent does; every series is there from the start."""

    def __init__(self) -> None:
        # They would be a second series each, which the proxy has not.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no types
        self.registry = CollectorRegistry()
        self._expiry = self._gauge(
            "control_identity_cert_expiration_timestamp_seconds",
            "When the certificate in use expires, as Unix time.",
        )
        self._refreshed = self._gauge(
            "control_identity_cert_refresh_timestamp_seconds",
            "When the certificate in use was accepted, as Unix time.",
        )
        self._refreshes = self._counter(
            "control_identity_cert_refreshes",
            "Certificates received, accepted (ok) or rejected (error).",
            "result",
            ("ok", "error"),
        )
        self._next = self._gauge(
            "control_identity_next_attempt_timestamp_seconds",
            "When the next certification is due, as Unix time.",
        )
        self._attempts = self._counter(
            "control_identity_attempts",
            "Certifications tried, by how they ended.",
            "outcome",
            ("ok", *OUTCOMES.values(), OTHER),
        )
        self._hooks = self._counter(
            "control_identity_hook_runs",
            "Commands run and signals sent after a renewal.",
            "result",
            ("ok", "error"),
        )

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, registry=self.registry)

    def _counter(
        self, name: str, text: str, label: str, values: tuple[str, ...]
    ) -> Counter:
        counter = Counter(name, text, [label], registry=self.registry)
        for value in values:
            counter.labels(value)
        return counter

    def accepted(self, expiry: datetime, now: datetime) -> None:
        """A certificate came into use."""
        self._expiry.set(expiry.timestamp())
        self._refreshed.set(now.timestamp())

    def succeeded(self) -> None:
        """An attempt ended with a new certificate."""
        self._attempts.labels("ok").inc()
        self._refreshes.labels("ok").inc()

    def failed(self, error: errors.IdentityError) -> None:
        """An attempt ended otherwise."""
        self._attempts.labels(OUTCOMES.get(type(error), OTHER)).inc()
        if isinstance(error, errors.CertificateRejected):
            self._refreshes.labels("error").inc()

    def scheduled(self, due: datetime) -> None:
        """The next attempt was decided upon."""
        self._next.set(due.timestamp())

    def told(self, ok: bool) -> None:  # noqa: FBT001  (as `hooks.tell` reports it)
        """A hook ended well, or not."""
        self._hooks.labels("ok" if ok else "error").inc()

    def render(self) -> bytes:
        """All of them in the text format."""
        return generate_latest(self.registry)
