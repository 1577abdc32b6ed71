"""Namespaces, ReplicaSets and Jobs in memory, filled by list and watch.

A follower lists once and then watches from the version of that list. It goes on
from the last version seen when a watch ends, and lists again when that version is
gone (410). While the API can't be reached, memory answers with what it had.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from identity.issuer.errors import ApiError
from proxyinit.inject.api import WATCH_S, Gone
from proxyinit.logs import Log

PAGE = 500
SHORTEST_S, LONGEST_S = 0.5, 30.0
"""Bounds of the pause after a failure."""

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object: its group's path, its plural, and what is kept of it."""

    group: str
    plural: str
    kept: str
    namespaced: bool = True

    @property
    def everywhere(self) -> str:
        """The path of all of them."""
        return f"{self.group}/{self.plural}"

    def path(self, namespace: str, name: str) -> str:
        """The path of one of them."""
        place = f"/namespaces/{quote(namespace, safe='')}" if self.namespaced else ""
        return f"{self.group}{place}/{self.plural}/{quote(name, safe='')}"


NAMESPACES = Resource("/api/v1", "namespaces", "annotations", namespaced=False)
REPLICASETS = Resource("/apis/apps/v1", "replicasets", "ownerReferences")
JOBS = Resource("/apis/batch/v1", "jobs", "ownerReferences")
FOLLOWED = (NAMESPACES, REPLICASETS, JOBS)


class Client(Protocol):
    """The part of an API client that following needs."""

    def list(self, path: str) -> Any:
        """A page of a list; raises `Gone` and `ApiError`."""

    def watch(self, path: str) -> Any:
        """Events until the watch ends; raises `Gone` and `ApiError`."""


class Store:
    """The objects of one resource, reduced to what is kept of them."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self._objects: dict[tuple[str, str], Object] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def find(self, namespace: str, name: str) -> Object | None:
        """An object, with its metadata as far as it is kept; None if unknown."""
        return self._objects.get((namespace, name))

    def replace(self, items: list[Object]) -> None:
        """Hold these objects, and no others."""
        self._objects = dict(map(self._entry, items))

    def see(self, kind: str, item: Object) -> None:
        """Take an event of a watch."""
        key, kept = self._entry(item)
        if kind == "DELETED":
            self._objects.pop(key, None)
        elif kind in ("ADDED", "MODIFIED"):
            self._objects[key] = kept

    def _entry(self, item: Object) -> tuple[tuple[str, str], Object]:
        metadata = item.get("metadata") or {}
        namespace = metadata.get("namespace", "") if self.resource.namespaced else ""
        kept = self.resource.kept
        reduced = {"metadata": {kept: metadata.get(kept)}}
        return (namespace, metadata.get("name", "")), reduced


class Follower:
    """Keeps a store up to date, from a thread of its own."""

    def __init__(self, client: Client, store: Store, log: Log) -> None:
        self.store = store
        self.synced = threading.Event()
        self._client = client
        self._log = log
        self._stopped = threading.Event()
        self._pause_s = SHORTEST_S
        self._version = ""
        name = f"follow-{store.resource.plural}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """Follow no longer than to the next event."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                if not self._version:
                    self._list()
                    self.synced.set()
                if self._watch():
                    continue
            except Gone as error:
                self._log.debug(f"listing {self.store.resource.plural} again: {error}")
                self._version = ""
            except ApiError as error:
                self._log.warning(f"can't follow {self.store.resource.plural}: {error}")
            self._stopped.wait(self._next_pause_s())

    def _list(self) -> None:
        """Fill the store, and know the version to watch from."""
        items: list[Object] = []
        more = {"limit": str(PAGE)}
        while True:
            path = f"{self.store.resource.everywhere}?{urlencode(more)}"
            page = self._client.list(path)
            metadata = page.get("metadata") or {}
            items += page.get("items") or []
            if not metadata.get("continue"):
                self.store.replace(items)
                self._version = str(metadata.get("resourceVersion", ""))
                return
            more = {"limit": str(PAGE), "continue": metadata["continue"]}

    def _watch(self) -> bool:
        """Take events until the watch ends; whether there were any."""
        asked = {
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        path = f"{self.store.resource.everywhere}?{urlencode(asked)}"
        any_came = False
        for event in self._client.watch(path):
            item = event["object"]
            self.store.see(event.get("type", ""), item)
            metadata = item.get("metadata") or {}
            self._version = str(metadata.get("resourceVersion") or self._version)
            self._pause_s = SHORTEST_S
            any_came = True
            if self._stopped.is_set():
                break
        return any_came

    def _next_pause_s(self) -> float:
        pause_s = self._pause_s * random.uniform(0.8, 1.2)  # noqa: S311  (no secret)
        self._pause_s = min(2 * self._pause_s, LONGEST_S)
        return pause_s
