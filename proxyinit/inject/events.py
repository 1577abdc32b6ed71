"""What the cluster is told about its workloads: Kubernetes events, on their owners."""

from __future__ import annotations

import datetime as dt
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from identity.issuer.errors import ApiError
from proxyinit.inject.owner import Owner
from proxyinit.logs import Log

COMPONENT = "linkerd-proxy-injector"
QUEUED = 1000
GAP_S = 0.02
"""Between two events: 50 a second, a part of what an API server grants a client."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event on an object of a namespace; `reference` names it, with its uid."""

    reason: str
    message: str
    namespace: str
    owner: Owner


def injected(namespace: str, owner: Owner) -> Event:
    """A pod of the owner got its sidecar."""
    return Event("Injected", "Linkerd sidecar proxy injected", namespace, owner)


def skipped(namespace: str, owner: Owner, why: str) -> Event:
    """A pod of the owner got none."""
    message = f"Linkerd sidecar proxy injection skipped: {why}"
    return Event("InjectionSkipped", message, namespace, owner)


def body(event: Event, now: dt.datetime, number: int) -> dict[str, Any]:
    """The event as the API takes it; time and number make its name unique."""
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    reference = event.owner.reference or {}
    suffix = f"{int(now.timestamp() * 1e6):x}{number:04x}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{event.owner.name}.{suffix}",
            "namespace": event.namespace,
        },
        "involvedObject": {
            "apiVersion": reference.get("apiVersion", ""),
            "kind": reference.get("kind", ""),
            "namespace": event.namespace,
            "name": event.owner.name,
            "uid": reference.get("uid", ""),
        },
        "type": "Normal",
        "reason": event.reason,
        "message": event.message,
        "source": {"component": COMPONENT},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


class Creates(Protocol):
    """The part of an API client that events need."""

    def create(self, path: str, body: dict[str, Any]) -> Any:
        """Post an object; raises `ApiError`."""


class Sender:
    """Sends events from a thread. They are for people: what is too much is dropped.

    `counted` is told `sent`, `failed` or `dropped` of each.
    """

    def __init__(
        self, client: Creates, log: Log, counted: Callable[[str], None]
    ) -> None:
        self._client = client
        self._log = log
        self._counted = counted
        self._queue: queue.Queue[Event | None] = queue.Queue(QUEUED)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def send(self, event: Event) -> None:
        """Queue an event; never waits."""
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self._counted("dropped")

    def close(self) -> None:
        """Send nothing more."""
        self._stopped.set()
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            return  # the thread is at work, and looks before the next

    def _run(self) -> None:
        number = 0
        while (event := self._queue.get()) is not None and not self._stopped.is_set():
            number += 1
            now = dt.datetime.now(tz=dt.UTC)
            path = f"/api/v1/namespaces/{event.namespace}/events"
            try:
                self._client.create(path, body(event, now, number))
            except ApiError as error:
                self._log.debug(f"event was not taken: {error}")
                self._counted("failed")
            else:
                self._counted("sent")
            self._stopped.wait(GAP_S)
