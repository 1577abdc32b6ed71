"""Whole pods from images/pods under runc: redirected, identified, and hard to hurt.

The issuing service runs from its own pod, with a stand-in for the Kubernetes API that
reviews real tokens. Two workloads are intercepted, certified and kept fresh; a stand-in
for their proxy speaks mTLS with the files that it finds. Connections go from one pod to
the other's application, and are answered by the other's proxy.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from identity.testing import KubernetesApi
from images.testing.built import Built
from images.testing.kubelet import Cluster, Pod, load
from images.testing.oci import Mount, Security, Spec
from images.testing.pod import stand_in
from images.testing.runtime import Container, Runtime
from proxyinit.lab import POD, PROXY_UID, Lab, Namespace, Neighbour

SUFFIX = "serviceaccount.identity.linkerd.cluster.local"
ACCOUNT_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
ADDRESS = "LINKERD2_PROXY_IDENTITY_SVC_ADDR"


def authorities(built: Built, runtime: Runtime, network: str) -> dict[str, bytes]:
    """Root and issuer, made by the image's own commands as a user of any number."""
    folder = runtime.volume()
    root = ["--cert", "/out/ca.crt", "--key", "/out/ca.key"]
    issuer = ["--ca", "/out/ca.crt", "--ca-key", "/out/ca.key"]
    issuer += ["--cert", "/out/tls.crt", "--key", "/out/tls.key"]
    commands = (["ca", "root", *root], ["ca", "issuer", *issuer])
    for words in commands:
        spec = Spec(
            str(built.identity.root),
            ["/usr/local/bin/proxy-identity", *words],
            network,
            Security(1000680000, 0, ()),
            mounts=[Mount(folder, "/out")],
        )
        done = runtime.run(spec)
        assert done.status == 0, done.stderr
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


class Service:
    """The identity service's pod, and the Kubernetes API that it asks."""

    def __init__(
        self, built: Built, runtime: Runtime, home: Neighbour, api: KubernetesApi
    ) -> None:
        self.home = home
        self.api = api
        made = authorities(built, runtime, self.home.namespace.path)
        self.objects = {
            "linkerd-identity-issuer": {
                name: made[name] for name in ("tls.crt", "tls.key")
            },
            "linkerd-identity-trust-roots": {"ca-bundle.crt": made["ca.crt"]},
        }
        account = runtime.volume(0o755)
        self.api.write_mount(Path(account))
        self._mounts = [Mount(account, ACCOUNT_MOUNT, read_only=True)]
        document = load("identity-service.yaml", "Deployment")
        cluster = self.cluster(built, self.api.environment())
        path = self.home.namespace.path
        self.pod = Pod(runtime, cluster, document, path)

    def cluster(self, built: Built, variables: dict[str, str]) -> Cluster:
        """What pods find in this cluster."""
        roots = {
            "localhost/proxyinit/identity:": built.identity.root,
            "localhost/proxyinit/proxy-init:": built.init.root,
        }
        return Cluster(roots, self.objects, self._token, variables)

    def _token(self, namespace: str, account: str, audience: str) -> bytes:
        return self.api.token(namespace, account, audiences=[audience])

    def start(self) -> None:
        """Start its containers as a kubelet does: one after the other is ready."""
        self.pod.start("first", self._mounts).until("ready to certify")
        done = self.pod.run("certify")
        assert done.status == 0, done.stderr
        self.pod.start("renew")
        self.pod.start("identity", self._mounts).until("ready to certify")


class Workload:
    """A pod with linkerd-init and an identity, and stand-ins for proxy and app."""

    def __init__(self, service: Service, built: Built, runtime: Runtime) -> None:
        self._built = built
        self._runtime = runtime
        self._service = service
        self.containers: dict[str, Container] = {}

    def place(self, namespace: Namespace, address: str, name: str) -> None:
        """Say where it is, and who."""
        self.network = namespace
        self.address = address
        self.name = f"{name}.shop.{SUFFIX}"
        to_service = {ADDRESS: f"{self._service.home.addresses[4]}:8080"}
        cluster = self._service.cluster(self._built, to_service)
        document = load("identity.yaml", "Pod")
        document["spec"]["serviceAccountName"] = name
        path = namespace.path
        self.identity = Pod(self._runtime, cluster, document, path, "shop")
        redirect = load("linkerd-init.yaml", "Pod")
        self.redirect = Pod(self._runtime, cluster, redirect, path, "shop")

    @property
    def folder(self) -> Path:
        """Where its identity is, on the node."""
        return self.identity.volumes["linkerd-identity-end-entity"]

    def init(self) -> None:
        """Run linkerd-init."""
        done = self.redirect.run("linkerd-init")
        assert done.status == 0, done.stderr

    def boot(self) -> None:
        """Start everything in order."""
        self.init()
        done = self.identity.run("identity-bootstrap")
        assert done.status == 0, done.stderr
        for name in ("identity-renewal", "proxy", "app"):
            self.start(name)

    def start(self, name: str) -> None:
        """Start one of the containers that stay, and wait until it can do its work."""
        path = self.network.path
        if name == "identity-renewal":
            self.containers[name] = self.identity.start(name)
            self.containers[name].until("valid until")
            return
        words = {
            "proxy": (PROXY_UID, "proxy", "4143", "4140"),
            "app": (1000, "app", "8080", "4567"),
        }
        user, *rest = words[name]
        folder = str(self.folder) if name == "proxy" else ""
        spec = stand_in(self._built, path, int(user), *map(str, rest), identity=folder)
        self.containers[name] = self._runtime.start(spec)
        self.containers[name].until("listening")

    def kill(self, name: str) -> None:
        """End a container as the kernel ends one that is out of memory."""
        assert self.containers[name].kill() == 128 + 9
        self.containers[name].stop()

    @contextlib.contextmanager
    def connection(self, peer: Workload) -> Iterator[Callable[[], dict[str, Any]]]:
        """An mTLS connection to a peer's application, as this pod's proxy opens it.

        What is yielded sends a line, and returns what is answered.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self.folder / "tls.crt", self.folder / "tls.key")
        context.load_verify_locations(self.folder / "ca.crt")

        def connect() -> ssl.SSLSocket:
            plain = socket.create_connection((peer.address, 8080), timeout=10)
            return context.wrap_socket(plain, server_hostname=peer.name)

        with (
            self.network.run(connect, uid=PROXY_UID) as tls,
            tls.makefile("rb") as read,
        ):

            def talk() -> dict[str, Any]:
                tls.sendall(b"hello\n")
                said: dict[str, Any] = json.loads(read.readline())
                return said

            yield talk


@pytest.fixture
def service(built: Built, runtime: Runtime, lab: Lab) -> Iterator[Service]:
    """The identity service, certified by itself and ready."""
    home = lab.add("identity")
    with contextlib.ExitStack() as stack:
        api = KubernetesApi()
        home.namespace.run(api.up)
        stack.callback(api.down)
        made = Service(built, runtime, home, api)
        made.start()
        yield made


@pytest.fixture
def workloads(
    service: Service, built: Built, runtime: Runtime, lab: Lab
) -> tuple[Workload, Workload]:
    """Two workloads, complete: each can call the other."""
    web, books = (Workload(service, built, runtime) for _ in range(2))
    web.place(lab.pod, POD[4], "web")
    there = lab.add("books")
    books.place(there.namespace, there.addresses[4], "books")
    web.boot()
    books.boot()
    return web, books


def calls(one: Workload, other: Workload) -> None:
    """Both ways: the other's proxy answers for its app, and knows who asks."""
    for caller, called in ((one, other), (other, one)):
        with caller.connection(called) as talk:
            assert talk() == {
                "who": "proxy",
                "port": 4143,
                "original": [called.address, 8080],
                "client": [caller.name],
            }


def test_whole_pods_survive(
    service: Service, workloads: tuple[Workload, Workload]
) -> None:
    """Any container is killed and comes back, init runs again: no connection breaks."""
    web, books = workloads
    calls(web, books)
    with web.connection(books) as talk:
        for name in ("app", "identity-renewal"):
            books.kill(name)
            assert talk()["who"] == "proxy"
            books.start(name)
            assert talk()["who"] == "proxy"
            calls(web, books)
        for pod in (books, web):
            pod.init()
            assert talk()["who"] == "proxy"
            calls(web, books)
    # Only the proxy's own end ends its connections; its next start serves again.
    books.kill("proxy")
    with pytest.raises(OSError, match=r"."), web.connection(books) as talk:
        talk()
    books.start("proxy")
    calls(web, books)

    assert len(service.api.events) >= 3
    for pod in (web, books):
        for container in pod.containers.values():
            assert "Traceback" not in container.printed


# === the other files ===


def pod_of(
    built: Built, runtime: Runtime, file: str, kind: str, network: str, **changes: str
) -> Pod:
    """A pod that needs nothing of the cluster; `changes` replace words in its text."""
    document = load(file, kind)
    for old, new in changes.items():
        document = json.loads(json.dumps(document).replace(old, new))
    roots = {
        "localhost/proxyinit/proxy-init:": built.init.root,
    }
    return Pod(runtime, Cluster(roots, {}, _no_token), document, network)


def _no_token(*_: str) -> bytes:
    raise AssertionError("asked for a token")


def test_validator_lets_redirected_pods_start(
    built: Built, runtime: Runtime, lab: Lab
) -> None:
    """Without a redirect it ends with 95, once linkerd-init has run with 0."""
    path = lab.pod.path
    file = "network-validator.yaml"
    validated = pod_of(built, runtime, file, "Pod", path, **{"10s": "1s"})
    name = "linkerd-network-validator"
    refused = validated.run(name)
    assert refused.status == 95, refused
    assert "Traceback" not in refused.stderr + refused.stdout

    redirect = pod_of(built, runtime, "linkerd-init.yaml", "Pod", path)
    assert redirect.run("linkerd-init").status == 0
    done = pod_of(built, runtime, file, "Pod", path).run(name)
    assert done.status == 0, done


def test_node_is_watched(built: Built, runtime: Runtime, lab: Lab) -> None:
    """The DaemonSet's container finds the pod, and tells when its rules are damaged."""
    redirect = pod_of(built, runtime, "linkerd-init.yaml", "Pod", lab.pod.path)
    assert redirect.run("linkerd-init").status == 0
    for user, *words in ((PROXY_UID, "proxy", "4143", "4140"), (1000, "app", "8080")):
        spec = stand_in(built, lab.pod.path, int(user), *map(str, words))
        runtime.start(spec).until("listening")
    home = lab.add("verify").namespace
    file = "verify-node.yaml"
    watcher = pod_of(
        built, runtime, file, "DaemonSet", home.path, **{'"60"': '"1"'}
    ).start("verify")

    def page(path: str) -> str:
        def ask() -> str:
            connection = http.client.HTTPConnection("127.0.0.1", 4194, timeout=10)
            with contextlib.closing(connection):
                connection.request("GET", path)
                answer = connection.getresponse()
                return answer.read().decode() if answer.status == 200 else ""

        with contextlib.suppress(ConnectionRefusedError):
            return home.run(ask)
        return ""

    def until(seen: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not seen():
            assert watcher.status is None, watcher.printed
            assert time.monotonic() < deadline, watcher.printed
            time.sleep(0.05)

    def faults() -> list[str]:
        """The lines about our pod; other namespaces of this node are not ours."""
        mine = f'inode="{os.stat(lab.pod.path).st_ino}"'  # noqa: PTH116
        return [line for line in page("/metrics").splitlines() if mine in line]

    until(lambda: page("/ready") == "ready\n")
    (count,) = re.findall(r'verdict="intercepted"} (\d+)', page("/metrics"))
    assert int(count) >= 1
    assert faults() == []
    assert (
        lab.pod.exec(["iptables-legacy", "-t", "nat", "-F", "OUTPUT"]).returncode == 0
    )
    until(lambda: bool(faults()))
    assert redirect.run("linkerd-init").status == 0
    until(lambda: faults() == [])
    watcher.stop()
