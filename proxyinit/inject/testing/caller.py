"""The API server's other side: AdmissionReviews, sent over TLS and kept alive."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"


def pod(
    *,
    name: str = "web",
    annotations: Mapping[str, Any] | None = None,
    owner: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod with one container; `spec` adds to its spec."""
    metadata: dict[str, Any] = {"name": name, "labels": {"app": "web"}}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    if owner is not None:
        metadata["ownerReferences"] = [dict(owner)]
    container = {"name": "web", "image": "example/web:1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], **spec},
    }


def service(
    *ports: Mapping[str, Any], annotations: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A service with these ports."""
    metadata: dict[str, Any] = {"name": "web"}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"ports": [dict(port) for port in ports]},
    }


def review(
    found: Mapping[str, Any],
    *,
    namespace: str = "shop",
    version: str = "v1",
    **request: Any,
) -> dict[str, Any]:
    """The review of an object that is about to be made."""
    return {
        "apiVersion": f"admission.k8s.io/{version}",
        "kind": "AdmissionReview",
        "request": {
            "uid": UID,
            "kind": {"group": "", "version": "v1", "kind": found.get("kind", "")},
            "namespace": namespace,
            "operation": "CREATE",
            "object": found,
            **request,
        },
    }


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer to a review."""

    status: int
    text: str

    @property
    def review(self) -> dict[str, Any]:
        """The review that came back."""
        found: dict[str, Any] = json.loads(self.text)
        return found

    @property
    def response(self) -> dict[str, Any]:
        """The response in it."""
        found: dict[str, Any] = self.review["response"]
        return found

    @property
    def patch(self) -> list[dict[str, Any]]:
        """The operations in the response; none is an empty list."""
        encoded = self.response.get("patch")
        found: list[dict[str, Any]] = json.loads(base64.b64decode(encoded or "W10="))
        return found


class Caller:
    """A connection to a webhook, trusted by a CA's certificate, while entered."""

    def __init__(self, port: int, ca: Path | bytes, name: str = "localhost") -> None:
        context = ssl.create_default_context(
            cafile=ca if isinstance(ca, Path) else None,
            cadata=ca.decode() if isinstance(ca, bytes) else None,
        )
        self._connection = _Connection(port, context, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @property
    def certificate(self) -> bytes:
        """The certificate, DER, that the webhook shows on this connection."""
        self._connection.connect_once()
        sock = self._connection.sock
        assert isinstance(sock, ssl.SSLSocket)  # noqa: S101  (as _Connection makes it)
        return sock.getpeercert(binary_form=True) or b""

    @property
    def tls_version(self) -> str:
        """The version of TLS that both sides chose."""
        self._connection.connect_once()
        sock = self._connection.sock
        assert isinstance(sock, ssl.SSLSocket)  # noqa: S101  (as _Connection makes it)
        return sock.version() or ""

    def post(self, body: bytes) -> Reply:
        """Send a body as it is."""
        self._connection.request(
            "POST", "/", body, {"Content-Type": "application/json"}
        )
        response = self._connection.getresponse()
        return Reply(response.status, response.read().decode())

    def ask(self, asked: Mapping[str, Any]) -> Reply:
        """Send a review."""
        return self.post(json.dumps(asked).encode())


class _Connection(http.client.HTTPSConnection):
    """To a port of this machine, with the name that the certificate should have."""

    def __init__(self, port: int, context: ssl.SSLContext, name: str) -> None:
        super().__init__("127.0.0.1", port, timeout=30, context=context)
        self._tls, self._name = context, name

    def connect(self) -> None:
        """Connect; the name is asked for in the handshake."""
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)

    def connect_once(self) -> None:
        """Connect unless that has been done."""
        if self.sock is None:
            self.connect()
