"""Lists and watches of the Kubernetes API, beside the calls that others make too."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import requests

from identity.issuer.access import Access
from identity.issuer.api import CONNECT_TIMEOUT_S, KubernetesClient
from identity.issuer.errors import ApiError

WATCH_S = 290
"""How long a watch is asked to last; then another begins where it ended."""
SILENCE_S = 310.0
"""Without a byte for so long a watch is dead: bookmarks come every minute."""
GONE = 410

_METADATA = "application/json;as={};g=meta.k8s.io;v=v1,application/json"
LIST = _METADATA.format("PartialObjectMetadataList")
OBJECT = _METADATA.format("PartialObjectMetadata")


class Gone(ApiError):
    """The version to go on from is too old: only a new list can tell."""


class Missing(ApiError):
    """There is no such object."""


class Conflict(ApiError):
    """Somebody else has changed the object meanwhile."""


class NoObserver:
    """Counts no calls."""

    def started(self) -> None:
        """A call begins."""

    def finished(self, code: str, method: str, seconds: float) -> None:
        """A call has ended."""


class ApiClient(KubernetesClient):
    """Calls with the token and the trust that the files hold at that time.

    Objects come as metadata alone: nobody here looks at more.
    """

    def __init__(self, access: Access) -> None:
        super().__init__(access, NoObserver())

    def metadata(self, path: str) -> Any:
        """The metadata of one object. Raises `Missing` and other `ApiError`s."""
        return self._json("GET", path, {"Accept": OBJECT})

    def list(self, path: str) -> Any:
        """A list, or a page of one. Raises `Gone` and other `ApiError`s."""
        found = self._json("GET", path, {"Accept": LIST})
        items = found.get("items") or []
        if not isinstance(items, list) or not all(map(_is_object, items)):
            raise ApiError(f"GET {path}: expected a list of objects")
        return found

    def merge(self, path: str, patch: Mapping[str, Any]) -> Any:
        """Change an object by a JSON merge patch. Raises `ApiError`."""
        kind = {"Content-Type": "application/merge-patch+json"}
        return self._json("PATCH", path, kind, json.dumps(patch))

    def watch(self, path: str) -> Iterator[Mapping[str, Any]]:
        """Events as they come, until the server ends the watch.

        Raises `Gone` and other `ApiError`s.
        """
        with self._send("GET", path, {"Accept": OBJECT}, stream=True) as response:
            try:
                for line in response.iter_lines(chunk_size=None):
                    if line:
                        yield _event(line)
            except requests.RequestException as error:
                raise ApiError(f"watch of {path} broke off: {error}") from error

    def _json(
        self, method: str, path: str, headers: Mapping[str, str], body: str = ""
    ) -> Any:
        with self._send(method, path, headers, body=body) as response:
            try:
                found = response.json()
            except (ValueError, requests.RequestException) as error:
                raise ApiError(f"{method} {path}: expected JSON") from error
        if not _is_object(found):
            raise ApiError(f"{method} {path}: expected an object")
        return found

    def _send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        *,
        body: str = "",
        stream: bool = False,
    ) -> requests.Response:
        timeouts = (CONNECT_TIMEOUT_S, SILENCE_S) if stream else self._timeouts_s
        try:
            response = self._current_session().request(
                method,
                self.server + path,
                data=body or None,
                headers={**headers, **self._authorization()},
                timeout=timeouts,
                stream=stream,
                allow_redirects=False,
            )
        except (requests.RequestException, OSError) as error:
            raise ApiError(f"{method} {path}: {error}") from error
        if not 200 <= response.status_code < 300:
            response.close()
            kind = _BY_STATUS.get(response.status_code, ApiError)
            status = f"{response.status_code} {response.reason}"
            raise kind(f"{method} {path}: {status}")
        return response


def _is_object(found: Any) -> bool:
    """Whether it is shaped like what Kubernetes keeps, and like lists of that."""
    return isinstance(found, dict) and isinstance(found.get("metadata") or {}, dict)


_BY_STATUS = {GONE: Gone, 404: Missing, 409: Conflict}


def _event(line: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise ApiError("a watch sent what is no event") from error
    if not isinstance(found, dict) or not _is_object(found.get("object")):
        raise ApiError("a watch sent what is no event")
    if found.get("type") == "ERROR":
        status = found["object"]
        kind = Gone if status.get("code") == GONE else ApiError
        raise kind(f"a watch ended: {status.get('message') or status.get('reason')}")
    return found
