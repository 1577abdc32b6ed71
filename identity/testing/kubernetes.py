"""A stand-in for the Kubernetes API server: HTTPS, real tokens, and bad days."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import jwt

from identity.testing.authority import CA
from identity.testing.https import Answer, Call, Server
from identity.testing.projected import project
from identity.testing.tokens import Account, Signer, review

CLIENT = Account("linkerd", "linkerd-identity")
"""The account whose token `KubernetesApi.write_mount` writes."""


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
        self._server: Server | None = None

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
        names = ["localhost", "kubernetes.default.svc"]
        leaf = self.ca.leaf(dns=names, ips=[self.host])
        self._server = Server((self.host, self._port), leaf, self.answer)
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
