"""A stand-in for a cluster's API server, as the injector looks at it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from identity.testing.https import Answer, Call
from identity.testing.kubernetes import KubernetesApi
from proxyinit.inject.self_signed import CONFIGURATION

_WATCHED = {
    "/api/v1/namespaces": "namespaces",
    "/apis/apps/v1/replicasets": "replicasets",
    "/apis/batch/v1/jobs": "jobs",
}
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"

Object = dict[str, Any]


class Cluster(KubernetesApi):
    """Namespaces, ReplicaSets and Jobs that can be listed, watched and fetched.

    On bad days, beside those of `KubernetesApi`: `end_watches` ends those that are
    open, `forget` makes all versions so far too old (410 Gone), by an answer or, with
    `gone_as_event`, by an event in the watch.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.page: int | None = None
        self.gone_as_event = False
        self.configuration = _configuration()
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._history: list[tuple[int, str, str, Object]] = []
        self._version = 1
        self._oldest = 0
        self._ended = 0
        self._moved = threading.Condition()
        for path in _WATCHED:
            self.routes["GET", f"{path}*"] = self._collection
        self.routes["GET", "/apis/apps/v1/namespaces/*"] = self._fetch
        self.routes["GET", "/apis/batch/v1/namespaces/*"] = self._fetch
        self.routes["GET", f"{_WEBHOOKS}/{CONFIGURATION}"] = lambda _: Answer(
            200, self.configuration
        )
        self.routes["PATCH", f"{_WEBHOOKS}/{CONFIGURATION}"] = self._patch

    def annotate(self, name: str, annotations: Mapping[str, str]) -> None:
        """Make a namespace with these annotations, or give it these."""
        self.put("namespaces", "", name, annotations=dict(annotations))

    def put(self, plural: str, namespace: str, name: str, **metadata: Any) -> None:
        """Make or change an object."""
        with self._moved:
            key = plural, namespace, name
            event = "MODIFIED" if key in self._objects else "ADDED"
            found: Object = {"metadata": {"name": name, **metadata}}
            if namespace:
                found["metadata"]["namespace"] = namespace
            self._objects[key] = found
            self._record_event(event, plural, found)

    def owned(
        self, plural: str, namespace: str, name: str, owner: Mapping[str, Any]
    ) -> None:
        """Make a ReplicaSet or a Job that something else owns."""
        self.put(plural, namespace, name, ownerReferences=[dict(owner)])

    def delete(self, plural: str, namespace: str, name: str) -> None:
        """Delete an object."""
        with self._moved:
            found = self._objects.pop((plural, namespace, name))
            self._record_event("DELETED", plural, found)

    def end_watches(self) -> None:
        """End the watches that are open, as servers do now and then."""
        with self._moved:
            self._ended += 1
            self._moved.notify_all()

    def forget(self) -> None:
        """Make every version so far too old to go on from."""
        with self._moved:
            self._version += 1
            self._oldest = self._version
            self._history.clear()
            self._ended += 1
            self._moved.notify_all()

    def down(self) -> None:
        """Stop to listen and cut the connections that are open."""
        super().down()
        self.end_watches()

    def _record_event(self, event: str, plural: str, found: Object) -> None:
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        self._history.append((self._version, plural, event, found))
        self._moved.notify_all()

    def _collection(self, call: Call) -> Answer:
        url = urlsplit(call.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        plural = _WATCHED.get(url.path)
        if plural is None:
            return self._fetch(call)
        if "watch" in query:
            return self._watch(plural, int(query["resourceVersion"]))
        return self._list(plural, query)

    def _list(self, plural: str, query: Mapping[str, str]) -> Answer:
        with self._moved:
            items = [found for key, found in self._objects.items() if key[0] == plural]
            begin = int(query.get("continue", "0"))
            size = self.page or int(query.get("limit", "500"))
            metadata = {"resourceVersion": str(self._version)}
            if begin + size < len(items):
                metadata["continue"] = str(begin + size)
            return Answer(
                200, {"metadata": metadata, "items": items[begin : begin + size]}
            )

    def _watch(self, plural: str, version: int) -> Answer:
        if version < self._oldest and not self.gone_as_event:
            return Answer(410, {"kind": "Status", "code": 410, "message": "too old"})
        return Answer(200, {}, stream=self._events(plural, version))

    def _events(self, plural: str, version: int) -> Iterator[bytes]:
        if version < self._oldest:
            status = {"kind": "Status", "code": 410, "message": "too old"}
            yield _line("ERROR", status)
            return
        ended = self._ended
        while True:
            with self._moved:
                while self._ended == ended and self._version <= version:
                    self._moved.wait()
                events = [entry for entry in self._history if entry[0] > version]
                version = self._version
                over = self._ended != ended
            for _, found_plural, event, found in events:
                if found_plural == plural:
                    yield _line(event, found)
            if over:
                return

    def _fetch(self, call: Call) -> Answer:
        steps = urlsplit(call.path).path.split("/")
        namespaced = steps[-2] != "namespaces"
        namespace = steps[-3] if namespaced else ""
        found = self._objects.get((steps[-2], namespace, steps[-1]))
        if found is None:
            return Answer(404, {"kind": "Status", "code": 404, "message": "not found"})
        return Answer(200, found)

    def _patch(self, call: Call) -> Answer:
        """A merge patch, refused unless it knows the version that is there."""
        with self._moved:
            metadata = self.configuration["metadata"]
            if call.body["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
                return Answer(409, {"kind": "Status", "code": 409})
            version = str(int(metadata["resourceVersion"]) + 1)
            self.configuration = {
                **self.configuration,
                **call.body,
                "metadata": {**metadata, "resourceVersion": version},
            }
            return Answer(200, self.configuration)


def _line(event: str, found: Mapping[str, Any]) -> bytes:
    return json.dumps({"type": event, "object": found}).encode() + b"\n"


def _configuration() -> Object:
    return {
        "metadata": {"name": CONFIGURATION, "resourceVersion": "1"},
        "webhooks": [
            {
                "name": "linkerd-proxy-injector.linkerd.io",
                "clientConfig": {"service": {"name": "linkerd-proxy-injector"}},
            }
        ],
    }
