"""What the cluster is told about its workloads: Kubernetes events, on their owners."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from identity.issuer.errors import ApiError
from proxyinit.inject.owner import Owner
from proxyinit.logs import Log

COMPONENT = "linkerd-proxy-injector"
QUEUED = 1000
"""Different events that wait at a time."""
GAP_S = 0.2
"""Between two events: sending them takes time from reviews, and nobody reads faster."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event on an object of a namespace, which is named with its uid."""

    reason: str
    message: str
    namespace: str
    api_version: str
    kind: str
    name: str
    uid: str


def _on(owner: Owner, namespace: str, reason: str, message: str) -> Event:
    found = owner.reference or {}
    names = (found.get(key) for key in ("apiVersion", "kind", "name", "uid"))
    api_version, kind, name, uid = (str(each or "") for each in names)
    return Event(reason, message, namespace, api_version, kind, name, uid)


def injected(namespace: str, owner: Owner) -> Event:
    """A pod of the owner got its sidecar."""
    return _on(owner, namespace, "Injected", "Linkerd sidecar proxy injected")


def skipped(namespace: str, owner: Owner, why: str) -> Event:
    """A pod of the owner got none."""
    message = f"Linkerd sidecar proxy injection skipped: {why}"
    return _on(owner, namespace, "InjectionSkipped", message)


def body(event: Event, now: dt.datetime, number: int, count: int) -> dict[str, Any]:
    """The event as the API takes it; time and number make its name unique."""
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    suffix = f"{int(now.timestamp() * 1e6):x}{number:04x}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{event.name}.{suffix}",
            "namespace": event.namespace,
        },
        "involvedObject": {
            "apiVersion": event.api_version,
            "kind": event.kind,
            "namespace": event.namespace,
            "name": event.name,
            "uid": event.uid,
        },
        "type": "Normal",
        "reason": event.reason,
        "message": event.message,
        "source": {"component": COMPONENT},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": count,
    }


class Creates(Protocol):
    """The part of an API client that events need."""

    def create(self, path: str, body: dict[str, Any]) -> Any:
        """Post an object; raises `ApiError`."""


class Sender:
    """Sends events from a thread: few a second, and equal ones as one with a count.

    Events are for people: what is too much is dropped. `counted` is told `sent`,
    `failed` or `dropped` of each.
    """

    def __init__(
        self, client: Creates, log: Log, counted: Callable[[str], None]
    ) -> None:
        self._client = client
        self._log = log
        self._counted = counted
        self._pending: dict[Event, int] = {}
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def send(self, event: Event) -> None:
        """Queue an event; never waits for the API."""
        with self._changed:
            known = self._pending.get(event, 0)
            if not known and len(self._pending) >= QUEUED:
                self._counted("dropped")
                return
            self._pending[event] = known + 1
            self._changed.notify()

    def close(self) -> None:
        """Send nothing more."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _run(self) -> None:
        number = 0
        while (found := self._next()) is not None:
            event, count = found
            number += 1
            now = dt.datetime.now(tz=dt.UTC)
            path = f"/api/v1/namespaces/{event.namespace}/events"
            try:
                self._client.create(path, body(event, now, number, count))
            except ApiError as error:
                self._log.debug(f"event was not taken: {error}")
                self._counted("failed")
            else:
                self._counted("sent")
            time.sleep(GAP_S)

    def _next(self) -> tuple[Event, int] | None:
        """The event that waits for longest, and how often it came; None in the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._pending)
            if self._stopped:
                return None
            event = next(iter(self._pending))
            return event, self._pending.pop(event)
