"""What the service tells the cluster: Kubernetes events, as Linkerd words them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any, Protocol

from identity.issuer.policy import Account

COMPONENT = "linkerd-identity"


@dataclass(frozen=True, slots=True)
class Target:
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `kind` is Normal or Warning."""

    kind: str
    reason: str
    message: str
    target: Target


class Events(Protocol):
    """Takes events; delivers what it can, and never keeps anybody waiting."""

    def send(self, event: Event) -> None:
        """Deliver the event, later or not at all."""


class NoEvents:
    """For services without a Kubernetes API."""

    def send(self, event: Event) -> None:
        """Drop the event: it has been logged."""


def service(control_namespace: str) -> Target:
    """The service itself."""
    return Target("apps/v1", "Deployment", control_namespace, COMPONENT)


def issued(account: Account, message: str) -> Event:
    """A workload got a certificate."""
    target = Target("v1", "ServiceAccount", account.namespace, account.name)
    return Event("Normal", "IssuedLeafCertificate", message, target)


def updated(control_namespace: str) -> Event:
    """A new issuer is in use."""
    message = "Updated identity issuer"
    return Event("Normal", "IssuerUpdated", message, service(control_namespace))


def skipped(control_namespace: str, why: str) -> Event:
    """A new issuer can't be used; the old one stays."""
    message = f"Skipping issuer update as certs could not be read from disk: {why}"
    return Event("Warning", "IssuerUpdateSkipped", message, service(control_namespace))


def invalid(control_namespace: str, message: str) -> Event:
    """The issuer in use does not verify any more."""
    target = service(control_namespace)
    return Event("Warning", "IssuerValidationFailed", message, target)


def body(event: Event, now: dt.datetime, suffix: str) -> dict[str, Any]:
    """The event as the API takes it; `suffix` makes its name unique."""
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    target = event.target
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{target.name}.{suffix}",
            "namespace": target.namespace,
        },
        "involvedObject": {
            "apiVersion": target.api_version,
            "kind": target.kind,
            "namespace": target.namespace,
            "name": target.name,
        },
        "type": event.kind,
        "reason": event.reason,
        "message": event.message,
        "source": {"component": COMPONENT},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
