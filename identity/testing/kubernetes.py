"""A stand-in for the Kubernetes API server: HTTPS, real tokens, and bad days."""

from __future__ import annotations

import json
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import jwt

from identity.testing.authority import CA
from identity.testing.projected import project
from identity.testing.tokens import Account, Signer, review

CLIENT = Account("linkerd", "linkerd-identity")
"""The account whose token `KubernetesApi.write_mount` writes."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request that arrived: when, on the monotonic clock, and what."""

    at_s: float
    method: str
    path: str
    body: Any = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: JSON from a mapping, or text as it is."""

    status: int
    body: Mapping[str, Any] | str
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        """The bytes of the body."""
        return (
            self.body if isinstance(self.body, str) else json.dumps(self.body)
        ).encode()

    @property
    def content_type(self) -> str:
        """What the body is said to be."""
        return "text/html" if isinstance(self.body, str) else "application/json"


Route = Callable[[Call], Answer]


class KubernetesApi:
    """An API server on loopback, while its context is entered.

    It reviews tokens by verifying the signature that `signer` made, answers
    SelfSubjectAccessReview from `denied` (a reason, or "" to allow), records what is
    asked (`calls`) and the events sent (`events`), and publishes its keys. Clients
    have to present a token of its own, current generation.

    On bad days: `delay_s` before each answer, `fault` in place of each answer to a
    path that starts with `fault_path`, `down()` and `up()`. More paths can be
    answered by adding to `routes`; a path ending in ``*`` matches what starts so.
    """

    def __init__(
        self, *, host: str = "127.0.0.1", signer: Signer | None = None
    ) -> None:
        self.host = host
        self.ca = CA("kubernetes")
        self.signer = signer or Signer()
        self.calls: list[Call] = []
        self.events: list[dict[str, Any]] = []
        self.denied = ""
        self.delay_s = 0.0
        self.fault: Answer | None = None
        self.fault_path = "/"
        self.routes: dict[tuple[str, str], Route] = {
            ("POST", "/apis/authentication.k8s.io/v1/tokenreviews"): self._review,
            (
                "POST",
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            ): self._access,
            ("POST", "/api/v1/namespaces/*"): self._event,
            ("GET", "/openid/v1/jwks"): lambda _: Answer(200, self.signer.jwks()),
            ("GET", "/.well-known/openid-configuration"): self._discovery,
        }
        self._changed = threading.Condition()
        self._generation = 1
        self._port = 0
        self._server: _Server | None = None

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self.down()

    @property
    def port(self) -> int:
        """The TCP port; the same again after `down` and `up`."""
        return self._port

    @property
    def url(self) -> str:
        """The address that a kubeconfig names."""
        return f"https://{self.host}:{self._port}"

    def up(self) -> None:
        """Start to listen."""
        self._server = _Server(self, (self.host, self._port))
        self._port = self._server.server_address[1]

    def down(self) -> None:
        """Stop to listen and cut the connections that are open."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def token(self, namespace: str, name: str, **claims: Any) -> bytes:
        """A service account's token, as `Signer.token` makes it."""
        return self.signer.token(Account(namespace, name), **claims).encode()

    def client_token(self) -> bytes:
        """A token that this server takes from its own clients."""
        audiences = [self.signer.issuer]
        generation = self._generation
        return self.token(
            CLIENT.namespace, CLIENT.name, audiences=audiences, generation=generation
        )

    def expire_client_tokens(self) -> None:
        """Answer 401 to all client tokens made so far."""
        self._generation += 1

    def write_mount(self, folder: Path) -> None:
        """Write token, ca.crt and namespace, as pods find them mounted."""
        files = {"token": self.client_token(), "ca.crt": self.ca.pem}
        project(folder, {**files, "namespace": CLIENT.namespace.encode()})

    def environment(self) -> dict[str, str]:
        """The variables by which pods find the API server."""
        return {
            "KUBERNETES_SERVICE_HOST": self.host,
            "KUBERNETES_SERVICE_PORT": str(self._port),
        }

    def write_kubeconfig(self, folder: Path) -> Path:
        """Write a kubeconfig with files beside it; its path. JSON is YAML too."""
        (folder / "ca.crt").write_bytes(self.ca.pem)
        (folder / "token").write_bytes(self.client_token())
        cluster = {"server": self.url, "certificate-authority": "ca.crt"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"tokenFile": "token"}}],
        }
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config), encoding="utf-8")
        return path

    def times(self, path: str) -> Sequence[float]:
        """When calls to paths that start so arrived, on the monotonic clock."""
        return [call.at_s for call in list(self.calls) if call.path.startswith(path)]

    def wait(self, seen: Callable[[Self], bool], timeout_s: float = 20) -> None:
        """Wait until enough was asked or sent; raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: seen(self), timeout_s):
                raise TimeoutError(f"not seen within {timeout_s:g} s")

    def answer(self, call: Call, bearer: str) -> Answer:
        """What this server says to a call."""
        self._record(self.calls, call)
        if self.delay_s:
            time.sleep(self.delay_s)
        if self.fault is not None and call.path.startswith(self.fault_path):
            return self.fault
        if not self._knows(bearer):
            return _status(401, "Unauthorized")
        for (method, path), route in self.routes.items():
            prefix = path.removesuffix("*")
            same = call.path == path or (
                prefix != path and call.path.startswith(prefix)
            )
            if method == call.method and same:
                return route(call)
        return _status(404, "the server could not find the requested resource")

    def _record(self, where: list[Any], what: object) -> None:
        with self._changed:
            where.append(what)
            self._changed.notify_all()

    def _knows(self, bearer: str) -> bool:
        try:
            claims = self.signer.claims(bearer)
        except jwt.PyJWTError:
            return False
        return claims.get("generation") == self._generation

    def _review(self, call: Call) -> Answer:
        status = review(self.signer, call.body.get("spec", {}))
        return Answer(201, {**call.body, "status": status})

    def _access(self, call: Call) -> Answer:
        status = {"allowed": not self.denied, "reason": self.denied}
        return Answer(201, {**call.body, "status": status})

    def _event(self, call: Call) -> Answer:
        if not call.path.endswith("/events"):
            return _status(404, "the server could not find the requested resource")
        self._record(self.events, call.body)
        return Answer(201, call.body)

    def _discovery(self, _: Call) -> Answer:
        jwks = f"{self.url}/openid/v1/jwks"
        return Answer(200, {"issuer": self.signer.issuer, "jwks_uri": jwks})


def _status(code: int, message: str) -> Answer:
    body = {"kind": "Status", "status": "Failure", "message": message, "code": code}
    return Answer(code, body)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # status line, headers and body leave in one packet
    server: _Server

    def do_GET(self) -> None:
        self._handle(None)

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length", "0"))
        self._handle(json.loads(self.rfile.read(size)))

    def _handle(self, body: Any) -> None:
        call = Call(time.monotonic(), self.command, self.path, body)
        bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
        answer = self.server.api.answer(call, bearer)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.content)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.content)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: `calls` has it."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True
    block_on_close = False

    def __init__(self, api: KubernetesApi, address: tuple[str, int]) -> None:
        super().__init__(address, _Handler)
        self.api = api
        self._open: set[socket.socket] = set()
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        names = ["localhost", "kubernetes.default.svc"]
        leaf = api.ca.leaf(dns=names, ips=[api.host])
        with tempfile.TemporaryDirectory() as folder:
            self._tls.load_cert_chain(*leaf.write(Path(folder)))
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        self._thread.start()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept; the handshake is left to the connection's own thread."""
        raw, address = super().get_request()
        tls = self._tls.wrap_socket(
            raw, server_side=True, do_handshake_on_connect=False
        )
        self._open.add(tls)
        return tls, address

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that has ended."""
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients may go away whenever they like."""

    def close(self) -> None:
        """Stop to accept, and cut what is open."""
        self.shutdown()
        self._thread.join()
        self.server_close()
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:  # it ended by itself meanwhile
                self._open.discard(connection)
