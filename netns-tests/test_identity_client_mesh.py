"""Issuer and two pods in namespaces: three renewals, an outage, and mTLS throughout.

The pods are intercepted by proxy-init, their identities kept by proxy-identity as
the proxy's user, through the network. A stand-in for the proxy takes what is
redirected to it, and speaks mTLS with the files that the agent keeps.
"""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from identity.testing import Account, programs
from identity.testing.peers import Meeting, Peer, Talk, meet, talking
from proxyinit.lab import POD, PROXY_UID, Lab, Namespace, Program

PROXY_INIT = str(Path(sys.executable).with_name("proxy-init"))
IDENTITY = (sys.executable, "-m", "identity")
ACCOUNTS = {name: Account("shop", name) for name in ("web", "books")}
INBOUND = 4143
APP = 8080
AGENT_PORT = 4192
LIFETIMES = 4
"""The first certificate, and three renewals."""
PATIENCE_S = 90
"""How long to wait for what has to come: three lives, an outage, a retry, and slack."""


def name_of(workload: str) -> str:
    """The identity of a workload."""
    return programs.identity_of(ACCOUNTS[workload])


def is_ready() -> bool:
    """What the agent of the calling thread's namespace says of itself."""
    connection = http.client.HTTPConnection("127.0.0.1", AGENT_PORT, timeout=5)
    with contextlib.suppress(ConnectionRefusedError), contextlib.closing(connection):
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    return False


def until(reached: Callable[[], bool], what: str) -> None:
    """Look again and again until something has happened; fail if it does not."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, f"expected {what} within {PATIENCE_S} s"
        threading.Event().wait(0.1)


@dataclass(frozen=True)
class Mesh:
    """The laboratory, the folder of all files, and the pods with their addresses."""

    lab: Lab
    folder: Path
    pods: dict[str, tuple[Namespace, str]]

    def start(
        self,
        namespace: Namespace,
        *words: str,
        log: str,
        environment: dict[str, str] | None = None,
    ) -> Program:
        """Start proxy-identity, as the proxy's user; it ends with the lab."""
        program = Program(
            namespace,
            [*IDENTITY, *words],
            log=self.folder / f"{log}.log",
            uid=PROXY_UID if environment else 0,
            environment=environment,
            folder=self.folder,
        )
        return self.lab.keep(program)

    def issue(self) -> Program:
        """Start the service; its certificates end 20 seconds from now."""
        place = self.lab.neighbours["identity"].namespace
        return self.start(place, *programs.service_arguments("19s", "1s"), log="issuer")

    def join(self, workload: str) -> Program:
        """Intercept a workload's traffic and start its agent."""
        namespace, _ = self.pods[workload]
        redirect = ("-p", str(INBOUND), "-o", "4140", "-u", str(PROXY_UID))
        done = namespace.exec([PROXY_INIT, *redirect])
        assert done.returncode == 0, done.stderr
        service = self.lab.neighbours["identity"].addresses[4]
        environment = programs.client_environment(
            self.folder, workload, ACCOUNTS[workload], service
        )
        words = ("run", "--rotate-key")
        return self.start(namespace, *words, log=workload, environment=environment)

    def answering(self, workload: str, caller: str) -> Peer:
        """Answer a caller in place of the workload's proxy."""
        namespace, _ = self.pods[workload]
        directory = self.folder / workload
        return Peer(namespace, directory, INBOUND, caller=name_of(caller))

    def talking(self, one: str, other: str) -> contextlib.AbstractContextManager[Talk]:
        """Call a workload's application from another, as the proxy does."""
        to = (self.pods[other][1], APP)
        directory = self.folder / one
        return talking(self.pods[one][0], directory, to, name_of(other))

    def meet(self, one: str, other: str) -> Meeting:
        """The same, once."""
        namespace, _ = self.pods[one]
        _, address = self.pods[other]
        directory, name = self.folder / one, name_of(other)
        return namespace.run(lambda: meet(directory, address, APP, name), uid=PROXY_UID)

    def ready(self) -> set[bool]:
        """What the agents say of themselves."""
        return {namespace.run(is_ready) for namespace, _ in self.pods.values()}


@pytest.fixture
def mesh(lab: Lab) -> Iterator[Mesh]:
    """The files of an issuer and two workloads; pods reach each other by routing."""
    with tempfile.TemporaryDirectory(prefix="mesh-") as name:
        folder = Path(name)
        programs.prepare(folder)
        for words in (programs.ROOT, programs.ISSUER):
            subprocess.run([*IDENTITY, *words], check=True, cwd=folder)
        programs.write_service_certificate(folder)
        programs.write_tokens(folder, ACCOUNTS)
        lab.add("identity")
        books = lab.add("books")
        pods = {
            "web": (lab.pod, POD[4]),
            "books": (books.namespace, books.addresses[4]),
        }
        yield Mesh(lab, folder, pods)


def test_identities_hold_and_recover(mesh: Mesh) -> None:
    """Three renewals without one failed connection; then an outage is survived."""
    issuer = mesh.issue()
    agents = [mesh.join(workload) for workload in ACCOUNTS]
    with mesh.answering("web", "books"), mesh.answering("books", "web"):
        until(lambda: mesh.ready() == {True}, "certificates")

        with mesh.talking("web", "books") as out, mesh.talking("books", "web") as back:
            talks = (out, back)
            until(
                lambda: (
                    min(len(talk.servers) for talk in talks) >= LIFETIMES
                    or any(talk.failures for talk in talks)
                ),
                "three renewals",
            )
        assert [talk.failures for talk in talks] == [[], []]

        assert issuer.stop() == 0
        until(lambda: mesh.ready() == {False}, "the end of the certificates")
        with pytest.raises(OSError, match=r"."):
            mesh.meet("web", "books")

        mesh.issue()
        until(lambda: mesh.ready() == {True}, "a recovery")
        for one, other in ("web", "books"), ("books", "web"):
            met = mesh.meet(one, other)
            assert (met.client.name, met.server.name) == (name_of(one), name_of(other))
            assert met.original == (mesh.pods[other][1], APP), "through the redirect"
    for agent in agents:
        assert agent.stop() == 0
        assert "eyJ" not in agent.printed
        assert "Traceback" not in agent.printed
