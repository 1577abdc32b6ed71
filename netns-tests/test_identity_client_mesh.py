"""Issuer and two pods in namespaces: three renewals, an outage, and mTLS throughout.

The pods are intercepted by proxy-init, their identities kept by proxy-identity as
the proxy's user, through the network. A stand-in for the proxy takes what is
redirected to it, and speaks mTLS with the files that the agent keeps.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography import x509

from identity.directory import SET
from identity.testing import CA, Account, Signer, project
from identity.trust import sans
from proxyinit.lab import POD, PROXY_UID, Lab, Namespace
from proxyinit.lab.programs import as_user

PROXY_INIT = str(Path(sys.executable).with_name("proxy-init"))
IDENTITY = (sys.executable, "-m", "identity")
AS_PROXY = as_user(PROXY_UID)
SUFFIX = "serviceaccount.identity.linkerd.cluster.local"
SERVICE = f"linkerd-identity.linkerd.{SUFFIX}"
INBOUND = 4143
APP = 8080
LIFETIME_S = 20
PATIENCE_S = 90
"""How long to wait for what has to come: a life, an outage, a retry, and slack."""


def inside(namespace: Namespace) -> tuple[str, str]:
    """The start of a command line that runs in a namespace."""
    return "nsenter", f"--net={namespace.path}"


@dataclass
class Issuer:
    """The certifying service in a namespace of its own, behind its own TLS."""

    namespace: Namespace
    address: str
    folder: Path
    root: CA
    signer: Signer = field(default_factory=lambda: Signer("ES256"))
    process: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Write what it reads: issuer, anchors, signing keys, its own certificate."""
        issuer = self.root.issuer()
        plain = self.folder / "plain"
        plain.mkdir()
        crt, key = issuer.write(plain)
        files = {"tls.crt": crt.read_bytes(), "tls.key": key.read_bytes()}
        project(self.folder / "issuer", files)
        (self.folder / "ca-bundle.crt").write_bytes(self.root.pem)
        (self.folder / "jwks.json").write_text(json.dumps(self.signer.jwks()))
        issuer.leaf(SERVICE).write(self.folder, "server")

    def start(self) -> None:
        """Run it until `stop`."""
        options = {
            "addr": f"{self.address}:8080",
            "admin-addr": "127.0.0.1:9990",
            "controller-namespace": "linkerd",
            "identity-scheme": "kubernetes.io/tls",
            "identity-trust-domain": "cluster.local",
            "identity-issuance-lifetime": f"{LIFETIME_S - 1}s",
            "identity-clock-skew-allowance": "1s",
            "issuer": str(self.folder / "issuer"),
            "trust-anchors": str(self.folder / "ca-bundle.crt"),
            "token-validator": "jwks",
            "jwks": str(self.folder / "jwks.json"),
            "token-issuer": self.signer.issuer,
            "tls-cert": str(self.folder / "server.crt"),
            "tls-key": str(self.folder / "server.key"),
        }
        words = [word for name, text in options.items() for word in (f"--{name}", text)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*inside(self.namespace), *IDENTITY, "issuer", *words], stderr=log
            )

    def stop(self) -> None:
        """End it, and wait until it has."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.process = None


@dataclass
class Workload:
    """A pod with an agent, and a stand-in for its proxy."""

    namespace: Namespace
    address: str
    account: Account
    folder: Path
    agent: subprocess.Popen[bytes] | None = None
    serials: set[str] = field(default_factory=set)
    """Of the certificates that peers have seen it present."""

    @property
    def name(self) -> str:
        """Its identity."""
        return f"{self.account.name}.{self.account.namespace}.{SUFFIX}"

    @property
    def directory(self) -> Path:
        """Where its identity is kept."""
        return self.folder / "end-entity"

    def prepare(self, issuer: Issuer) -> None:
        """Intercept its traffic, give it a token, start its agent."""
        done = self.namespace.exec(
            [PROXY_INIT, "-p", str(INBOUND), "-o", "4140", "-u", str(PROXY_UID)]
        )
        assert done.returncode == 0, done.stderr
        self.directory.mkdir(parents=True)
        (self.folder / "token").write_text(issuer.signer.token(self.account))
        for path in (self.folder, self.directory, self.folder / "token"):
            os.chown(path, PROXY_UID, PROXY_UID)
        prefix = "LINKERD2_PROXY_IDENTITY_"
        environ = {
            "PATH": os.environ["PATH"],
            f"{prefix}DIR": str(self.directory),
            f"{prefix}LOCAL_NAME": self.name,
            f"{prefix}TRUST_ANCHORS": issuer.root.pem.decode(),
            f"{prefix}TOKEN_FILE": str(self.folder / "token"),
            f"{prefix}SVC_ADDR": f"{issuer.address}:8080",
            f"{prefix}SVC_NAME": SERVICE,
        }
        with (self.folder / "log").open("ab") as log:
            self.agent = subprocess.Popen(
                [*inside(self.namespace), *AS_PROXY, *IDENTITY, "run", "--rotate-key"],
                env=environ,
                stderr=log,
            )

    def ready(self) -> bool:
        """What the agent says of itself, asked in its own namespace."""

        def ask() -> bool:
            connection = http.client.HTTPConnection("127.0.0.1", 4192, timeout=5)
            with contextlib.closing(connection):
                connection.request("GET", "/ready")
                return connection.getresponse().status == 200

        try:
            return self.namespace.run(ask)
        except ConnectionRefusedError:
            return False

    def context(self, side: int) -> ssl.SSLContext:
        """TLS with the files of one generation, and a certificate asked of the peer."""
        generation = (self.directory / "..data").resolve(strict=True)
        key, crt, anchors = (generation / name for name in SET)
        context = ssl.SSLContext(side)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(crt, key)
        context.load_verify_locations(anchors)
        return context

    @contextlib.contextmanager
    def proxying(self) -> Iterator[None]:
        """Answer what is redirected to the inbound port: who the client is."""
        listener = self.namespace.run(
            lambda: socket.create_server(("", INBOUND), backlog=64), uid=PROXY_UID
        )

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with contextlib.suppress(OSError), connection:
                        connection.settimeout(10)
                        self._answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            listener.close()

    def _answer(self, connection: socket.socket) -> None:
        context = self.context(ssl.PROTOCOL_TLS_SERVER)
        with context.wrap_socket(connection, server_side=True) as tls:
            tls.sendall(dns_name(tls).encode() + b"\n")

    def call(self, peer: Workload) -> str:
        """Connect to a peer's application, as the proxy does; who it says we are."""

        context = self.context(ssl.PROTOCOL_TLS_CLIENT)

        def connect() -> str:
            plain = socket.create_connection((peer.address, APP), timeout=10)
            with plain, context.wrap_socket(plain, server_hostname=peer.name) as tls:
                assert dns_name(tls) == peer.name
                peer.serials.add(str((tls.getpeercert() or {})["serialNumber"]))
                with tls.makefile("rb") as stream:
                    return stream.readline().decode().strip()

        return self.namespace.run(connect, uid=PROXY_UID)


def dns_name(tls: ssl.SSLSocket) -> str:
    """Whom the peer's certificate is for."""
    der = tls.getpeercert(binary_form=True) or b""
    (name,) = sans(x509.load_der_x509_certificate(der))
    return name


def wait_until(condition: bool, since: float) -> None:  # noqa: FBT001  (a fact)
    """Fail if a fact is not one in time; else give the others a moment."""
    assert condition or time.monotonic() < since + PATIENCE_S, "it did not come to that"
    threading.Event().wait(0.1)


def calls(one: Workload, other: Workload) -> None:
    """mTLS both ways: each is told its own name by its peer."""
    assert one.call(other) == one.name
    assert other.call(one) == other.name


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can enter; those of pytest are closed to them."""
    with tempfile.TemporaryDirectory(prefix="mesh-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def mesh(lab: Lab, folder: Path) -> Iterator[tuple[Issuer, Workload, Workload]]:
    """An issuer and two workloads, running; pods reach each other by routing."""
    home = lab.add("identity")
    (folder / "issuer").mkdir()
    issuer = Issuer(home.namespace, home.addresses[4], folder / "issuer", CA())
    issuer.prepare()
    books = lab.add("books")
    pods = (
        Workload(lab.pod, POD[4], Account("shop", "web"), folder / "web"),
        Workload(
            books.namespace,
            books.addresses[4],
            Account("shop", "books"),
            folder / "books",
        ),
    )
    issuer.start()
    try:
        with contextlib.ExitStack() as stack:
            for pod in pods:
                pod.prepare(issuer)
                stack.enter_context(pod.proxying())
            yield issuer, *pods
    finally:
        issuer.stop()
        for pod in pods:
            if pod.agent is not None:
                pod.agent.send_signal(signal.SIGTERM)
                pod.agent.wait()


def test_identities_hold_and_recover(mesh: tuple[Issuer, Workload, Workload]) -> None:
    """Three renewals without one failed connection; then an outage is survived."""
    issuer, web, books = mesh
    since = time.monotonic()
    while not (web.ready() and books.ready()):
        wait_until(condition=False, since=since)

    # Any failed connection ends the test here: there is no retry.
    since = time.monotonic()
    while min(len(web.serials), len(books.serials)) < 4:
        calls(web, books)
        wait_until(condition=False, since=since)

    issuer.stop()
    since = time.monotonic()
    while web.ready() or books.ready():
        wait_until(condition=False, since=since)
    with pytest.raises(OSError, match=r"."):
        web.call(books)

    issuer.start()
    since = time.monotonic()
    while not (web.ready() and books.ready()):
        wait_until(condition=False, since=since)
    calls(web, books)
    for pod in (web, books):
        assert pod.agent is not None
        pod.agent.send_signal(signal.SIGTERM)
        assert pod.agent.wait(timeout=5) == 0
        log = (pod.folder / "log").read_text()
        assert "eyJ" not in log
        assert "Traceback" not in log
        pod.agent = None
