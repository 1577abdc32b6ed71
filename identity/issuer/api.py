"""Calls to the Kubernetes API: JSON over HTTPS, with files that change meanwhile."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import requests
from requests.adapters import HTTPAdapter

from identity.issuer.access import Access
from identity.issuer.errors import ApiError
from identity.issuer.policy import shown

CONNECT_TIMEOUT_S = 2.0
READ_TIMEOUT_S = 5.0
AT_ONCE = 32
"""Connections that are kept: as many as calls are made at once."""


class Observer(Protocol):
    """Is told of calls, for metrics."""

    def started(self) -> None:
        """A call begins."""

    def finished(self, code: str, method: str, seconds: float) -> None:
        """A call has ended with an HTTP status, or `<error>`."""


class KubernetesClient:
    """Makes calls with the token and the trust that the files hold at that time.

    Safe to be used by several threads. Proxies and netrc files of the environment
    are not looked at: a token goes to the API server and to nobody else.
    """

    def __init__(
        self,
        access: Access,
        observer: Observer,
        *,
        read_timeout_s: float = READ_TIMEOUT_S,
    ) -> None:
        self._access = access
        self._timeouts_s = (CONNECT_TIMEOUT_S, read_timeout_s)
        self._observer = observer
        self._session: tuple[bytes, requests.Session] = (b"", requests.Session())

    @property
    def server(self) -> str:
        """The address of the API server."""
        return self._access.server

    def get(self, path: str) -> Any:
        """The JSON that a path holds. Raises `ApiError`."""
        return self._call("GET", path, None)

    def create(self, path: str, body: Mapping[str, Any]) -> Any:
        """Post an object; the object as the API server answers it.

        Raises `ApiError`.
        """
        return self._call("POST", path, body)

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        what = f"{method} {self.server}{path}"
        session = self._current_session()
        headers = {"Accept": "application/json", **self._authorization()}
        code, begun = "<error>", time.monotonic()
        self._observer.started()
        try:
            response = session.request(
                method,
                self.server + path,
                json=body,
                headers=headers,
                timeout=self._timeouts_s,
                allow_redirects=False,
            )
            code = str(response.status_code)
        except (requests.RequestException, OSError) as error:
            raise ApiError(f"{what}: {shown(str(error))}") from error
        finally:
            self._observer.finished(code, method, time.monotonic() - begun)
        return _content(what, response)

    def _authorization(self) -> dict[str, str]:
        access = self._access
        token = access.token
        if access.token_file is not None:
            token = _read(access.token_file).decode("ascii", "replace").strip()
        if not token:
            return {}
        # requests quotes a header that it refuses, so it must never refuse this one.
        if not token.isascii() or not token.isprintable() or " " in token:
            where = access.token_file or "the kubeconfig"
            raise ApiError(f"{where} does not hold a token")
        return {"Authorization": f"Bearer {token}"}

    def _current_session(self) -> requests.Session:
        """A session that trusts what the CA file holds now, and keeps connections."""
        digest = hashlib.sha256(_read(self._access.ca)).digest()
        known, session = self._session
        if digest != known:
            session = self._new_session()
            self._session = (digest, session)
        return session

    def _new_session(self) -> requests.Session:
        session = requests.Session()
        session.trust_env = False
        session.verify = str(self._access.ca)
        if self._access.client_certificate is not None:
            certificate, key = map(str, self._access.client_certificate)
            session.cert = (certificate, key)
        session.mount("https://", HTTPAdapter(pool_maxsize=AT_ONCE, max_retries=0))
        return session


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ApiError(f"can't read what the Kubernetes API needs: {error}") from error


def _content(what: str, response: requests.Response) -> Any:
    """The JSON object of a good answer; anything else is an `ApiError`."""
    try:
        content = response.json()
    except (ValueError, RecursionError):
        content = None
    status = f"{response.status_code} {response.reason}"
    if not 200 <= response.status_code < 300:
        said = content.get("message", "") if isinstance(content, dict) else ""
        raise ApiError(f"{what}: {status}{f': {shown(str(said))}' if said else ''}")
    if not isinstance(content, dict):
        kind = response.headers.get("Content-Type", "no content type")
        raise ApiError(f"{what}: {status}, but {shown(kind)} instead of a JSON object")
    return content
