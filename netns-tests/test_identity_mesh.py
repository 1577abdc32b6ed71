"""Two intercepted pods on their way to the service: who passes, and who is refused.

Three namespaces, the installed programs, Linkerd's arguments and users. In each pod
somebody listens where the redirect leads to, and counts who comes.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from identity.testing import Account, programs, project
from proxyinit.lab import PROXY_UID, Lab, Namespace, Program

PROGRAM = str(Path(sys.executable).with_name("proxy-identity"))
PROXY_INIT = [
    str(Path(sys.executable).with_name("proxy-init")),
    *("--incoming-proxy-port", "4143", "--outgoing-proxy-port", "4140"),
    *("--proxy-uid", "2102", "--inbound-ports-to-ignore", "4190,4191,4567,4568"),
    *("--outbound-ports-to-ignore", "4567,4568"),
]
OUTBOUND = 4140
AGENT_PORT = 4192
APP_UID = 1000
EAGER = {"LINKERD2_PROXY_IDENTITY_MIN_REFRESH": "1s"}
"""What suits certificates of seconds."""

ACCOUNTS = {name: Account("emojivoto", name) for name in ("web", "api")}
VERSIONS = {"web": 4, "api": 6}
"""Over which version of IP each pod reaches the service."""
BOTH = [
    pytest.param(name, id=f"over IPv{version}") for name, version in VERSIONS.items()
]

LIMIT_S = 30
LOOK_S = 0.05


def until(reached: Callable[[], bool], what: str) -> None:
    """Look again and again until something has happened; fail if it does not."""
    deadline = time.monotonic() + LIMIT_S
    while not reached():
        assert time.monotonic() < deadline, f"expected {what} within {LIMIT_S} s"
        time.sleep(LOOK_S)


def finish(program: Program) -> int:
    """Wait for the end of a program; its status."""
    until(lambda: program.status is not None, f"an end of {program.log.stem}")
    assert program.status is not None
    return program.status


def page(port: int, path: str) -> str:
    """An admin page of the calling thread's namespace; empty unless all is well."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    with contextlib.suppress(ConnectionRefusedError), contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.read().decode() if answer.status == 200 else ""
    return ""


@dataclass(frozen=True)
class Mesh:
    """The laboratory, the folder of its files, and the listeners in its pods."""

    lab: Lab
    folder: Path
    pods: dict[str, Namespace]
    proxies: dict[str, socket.socket]

    def start(
        self,
        namespace: Namespace,
        *arguments: str,
        log: str,
        environment: dict[str, str] | None = None,
        uid: int = 0,
    ) -> Program:
        """Start proxy-identity inside; it ends with the lab."""
        program = Program(
            namespace,
            [PROGRAM, *arguments],
            log=self.folder / f"{log}.log",
            uid=uid,
            environment=environment,
            folder=self.folder,
        )
        return self.lab.keep(program)

    def issue(self, lifetime: str = "1h") -> None:
        """Start the service, with one second for clocks, and wait for it."""
        place = self.lab.neighbours["issuer"].namespace
        words = programs.service_arguments(lifetime, "1s")
        self.start(place, *words, log="issuer")
        port = programs.ADMIN_PORT
        until(lambda: bool(place.run(page, port, "/ready")), "a service")

    def client(self, workload: str, *words: str, uid: int = PROXY_UID) -> Program:
        """Start a client in a workload's pod, with what Linkerd's charts give it."""
        service = self.lab.neighbours["issuer"].addresses[VERSIONS[workload]]
        account = ACCOUNTS[workload]
        given = programs.client_environment(self.folder, workload, account, service)
        environment = {**given, **EAGER}
        pod = self.pods[workload]
        return self.start(pod, *words, log=workload, environment=environment, uid=uid)

    def received(self, workload: str) -> int:
        """How many certificates an agent has received, by its own account."""
        text = self.pods[workload].run(page, AGENT_PORT, "/metrics")
        name = "control_identity_cert_refreshes_total"
        found = re.search(rf'^{name}{{result="ok"}} (\d+)', text, re.MULTILINE)
        return int(found[1]) if found else 0

    def redirected(self, workload: str) -> int:
        """How many connections came to a pod's outbound proxy so far."""
        count = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                self.proxies[workload].accept()[0].close()
                count += 1
        return count


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    """An issuer's files and two intercepted pods, in which nothing runs yet."""
    with tempfile.TemporaryDirectory(prefix="mesh-") as name, Lab() as lab:
        folder = Path(name)
        programs.prepare(folder)
        lab.add("issuer")
        pods = {"web": lab.pod, "api": lab.add("api").namespace}
        made = Mesh(lab, folder, pods, {})
        for words in (programs.ROOT, programs.ISSUER):
            authority = made.start(lab.client, *words, log="ca")
            assert finish(authority) == 0, authority.printed
        programs.write_service_certificate(folder)
        programs.write_tokens(folder, ACCOUNTS)
        for workload, pod in pods.items():
            done = pod.exec(PROXY_INIT)
            assert done.returncode == 0, done.stderr
            made.proxies[workload] = lab.keep(pod.run(listen, OUTBOUND, uid=PROXY_UID))
        yield made


def listen(port: int) -> socket.socket:
    """A server that lets connections wait: they are counted, not answered."""
    server = socket.create_server(
        ("::", port), family=socket.AF_INET6, backlog=1024, dualstack_ipv6=True
    )
    server.settimeout(0)
    return server


# === who passes ===


@pytest.mark.parametrize("workload", BOTH)
def test_an_agent_bypasses_the_redirect(mesh: Mesh, workload: str) -> None:
    """It is certified and renewed at its first attempts, and the proxy saw nothing."""
    mesh.issue("3s")
    agent = mesh.client(workload, "run")
    until(lambda: mesh.received(workload) > 1, "a renewal")
    assert agent.stop() == 0
    assert "level=error" not in agent.printed
    assert mesh.redirected(workload) == 0


@pytest.mark.parametrize("workload", BOTH)
def test_certified_once(mesh: Mesh, workload: str) -> None:
    """As an init container of the proxy's user, which owns all that is made."""
    mesh.issue()
    program = mesh.client(workload, "certify")
    assert finish(program) == 0, program.printed
    found = {}
    for name in ("key.p8", "csr.der", "tls.key", "tls.crt", "ca.crt"):
        status = (mesh.folder / workload / name).stat()
        assert (status.st_uid, status.st_gid) == (PROXY_UID, PROXY_UID)
        found[name] = stat.S_IMODE(status.st_mode)
    secret = dict.fromkeys(("key.p8", "csr.der", "tls.key"), 0o600)
    assert found == {**secret, "tls.crt": 0o644, "ca.crt": 0o644}
    shown = mesh.start(mesh.pods[workload], "show", workload, log="show")
    assert finish(shown) == 0, shown.printed
    assert programs.identity_of(ACCOUNTS[workload]) in shown.printed
    assert mesh.redirected(workload) == 0


# === who does not ===


@pytest.mark.parametrize("workload", BOTH)
def test_another_user_is_redirected(mesh: Mesh, workload: str) -> None:
    """The same program of the app's user ends up at the proxy: the user decides."""
    mesh.issue()
    os.chown(mesh.folder / workload, APP_UID, APP_UID)
    program = mesh.client(workload, "certify", "--timeout", "2s", uid=APP_UID)
    assert finish(program) == 1
    assert "not certified within 2 s" in program.printed
    assert mesh.redirected(workload) > 0


@pytest.mark.parametrize(
    ("whose", "reason"),
    [
        pytest.param(
            "api",
            "FAILED_PRECONDITION: requested identity did not match provided token",
            id="a token of another account",
        ),
        pytest.param(
            "stranger",
            "INVALID_ARGUMENT: the token's signature is not valid",
            id="a token of another cluster",
        ),
    ],
)
def test_a_pod_without_the_right_token(mesh: Mesh, whose: str, reason: str) -> None:
    """Who can't prove the account gets no certificate, and is told why."""
    elsewhere = mesh.folder / "elsewhere"
    elsewhere.mkdir()
    programs.write_tokens(elsewhere, {"stranger": ACCOUNTS["web"]})
    owner = elsewhere if whose == "stranger" else mesh.folder
    token = (owner / "tokens" / whose / "token").read_bytes()
    project(mesh.folder / "tokens/web", {"token": token})
    mesh.issue()
    program = mesh.client("web", "certify", "--timeout", "1s")
    assert finish(program) == 1
    assert reason in program.printed
    assert token.decode() not in program.printed
    assert not (mesh.folder / "web/tls.crt").exists()
