"""The program `proxy-injector serve`: TLS, files and an API that change."""

from __future__ import annotations

import base64
import datetime as dt
import http.client
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from identity.issuer.errors import ApiError
from identity.testing import CA, project
from identity.testing.https import Answer
from proxyinit.inject import cli, self_signed
from proxyinit.inject.api import Conflict
from proxyinit.inject.certificates import Certificates, KeyPair
from proxyinit.inject.serve import OwnCertificate
from proxyinit.inject.server import Server
from proxyinit.inject.testing import Caller, Cluster, pod, review, service
from proxyinit.inject.webhook import MOST_BYTES
from proxyinit.logs import Log

LAUNCHER = [sys.executable, "-m", "proxyinit.inject.launcher"]
PORT = re.compile(r':(\d+)"')


class Program:
    """A running `serve`, with its files in one folder, and its lines as they come."""

    def __init__(self, folder: Path, cluster: Cluster, *more: str) -> None:
        self.folder, self.cluster = folder, cluster
        self.ca = CA("webhook")
        self.lines: list[str] = []
        self._changed = threading.Condition()
        folder.mkdir(exist_ok=True)
        self.certify()
        self.values("linkerdVersion: v1\n")
        (folder / "roots.crt").write_text("PEM\n")
        kubeconfig = cluster.write_kubeconfig(folder)
        argv = [
            *(*LAUNCHER, "serve", "-addr=127.0.0.1:0", "-metrics-addr", "127.0.0.1:0"),
            *("-kubeconfig", str(kubeconfig), "--values", "config/values"),
            *("--trust-roots", "roots.crt", "--tls-cert", "tls/tls.crt"),
            *("--tls-key", "tls/tls.key", *more),
        ]
        self.process = subprocess.Popen(
            argv, cwd=folder, stderr=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.admin_port = int(PORT.findall(self.wait("starting admin server"))[0])
        self.port = int(PORT.findall(self.wait("listening at"))[0])

    def certify(self) -> None:
        """Write a new certificate, as the kubelet does."""
        leaf = self.ca.leaf(dns=["localhost"])
        files = {"tls.crt": leaf.pem, "tls.key": leaf.key_pem}
        project(self.folder / "tls", files)

    def values(self, text: str) -> None:
        """Write new values, as the kubelet does."""
        project(self.folder / "config", {"values": text.encode()})

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def wait(self, words: str, after: int = 0) -> str:
        """The first line with these words."""

        def found() -> str | None:
            return next((x for x in self.lines[after:] if words in x), None)

        with self._changed:
            assert self._changed.wait_for(found, 20), self.lines
        line = found()
        assert line is not None
        return line

    def caller(self) -> Caller:
        """A connection that trusts it."""
        return Caller(self.port, self.ca.pem)

    def admin(self, path: str) -> tuple[int, str]:
        """What an admin endpoint says."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.admin_port, timeout=10
        )
        connection.request("GET", path)
        response = connection.getresponse()
        found = response.status, response.read().decode()
        connection.close()
        return found

    def ready(self) -> None:
        """Wait until it has its memory."""
        while self.admin("/ready")[0] != 200:
            assert self.process.poll() is None

    def stop(self) -> int:
        """Ask it to stop; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def close(self) -> None:
        """End it however it stands."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()


@contextmanager
def injecting() -> Iterator[Cluster]:
    """A cluster with a namespace that injects."""
    with Cluster() as found:
        found.annotate("shop", {"linkerd.io/inject": "enabled"})
        yield found


@contextmanager
def running(folder: Path, cluster: Cluster) -> Iterator[Program]:
    """The program, ready."""
    made = Program(folder, cluster)
    try:
        made.ready()
        yield made
    finally:
        made.close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster for one test alone."""
    with injecting() as found:
        yield found


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A program that stays up, whatever it is sent."""
    with (
        injecting() as cluster,
        running(tmp_path_factory.mktemp("webhook") / "program", cluster) as found,
    ):
        yield found


def test_reviews_on_one_connection(program: Program) -> None:
    """TLS 1.3, kept alive, and still there after all that is no review."""
    with program.caller() as caller:
        assert caller.tls_version == "TLSv1.3"
        shown = caller.certificate
        assert caller.ask(review(pod())).patch
        assert caller.ask(review(service({"port": 3306}))).patch
        assert caller.post(b"").text == ""
        assert caller.post(b"{").status == 400
        assert caller.post(b" " * (MOST_BYTES + 1)).status == 500
        assert caller.post(b"[" * MOST_BYTES).status == 400
        assert caller.ask(review(pod())).patch
        assert caller.certificate == shown, "it never hung up"


def test_a_body_of_20_mib(program: Program) -> None:
    """It is read to its end, answered, and forgotten."""
    with program.caller() as caller:
        reply = caller.post(b"x" * 20 * 2**20)

        assert (reply.status, reply.text) == (500, "the body is larger than 10 MiB\n")
        assert caller.ask(review(pod())).patch


def test_older_tls_is_refused(program: Program) -> None:
    """1.3 or nothing."""
    context = ssl.create_default_context(cadata=program.ca.pem.decode())
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    connection = http.client.HTTPSConnection(
        "localhost", program.port, context=context, timeout=10
    )

    with pytest.raises((ssl.SSLError, ConnectionError)):
        connection.connect()
    connection.close()


def test_noise_is_no_harm(program: Program) -> None:
    """Plain HTTP, binary and silence on the TLS port; then a review."""
    connection = http.client.HTTPConnection("127.0.0.1", program.port, timeout=10)
    connection.request("POST", "/", b"\0" * 100)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        connection.getresponse()
    connection.close()

    with program.caller() as caller:
        assert caller.ask(review(pod())).patch


def test_certificate_and_values_change_under_load(program: Program) -> None:
    """No request is lost, and who connects afterwards meets the new ones."""
    stop = threading.Event()
    failures: list[object] = []
    answered = [0] * 3

    def send(number: int, *, keep: bool) -> None:
        try:
            caller = program.caller()
            while not stop.is_set():
                reply = caller.ask(review(pod()))
                if reply.status != 200 or not reply.patch:
                    failures.append(reply)
                answered[number] += 1
                if not keep:
                    caller.__exit__()
                    caller = program.caller()
            caller.__exit__()
        except (OSError, http.client.HTTPException) as error:
            failures.append(error)

    threads = [
        threading.Thread(target=send, args=(number,), kwargs={"keep": number != 2})
        for number in range(3)
    ]
    for thread in threads:
        thread.start()
    with program.caller() as before:
        shown = before.certificate
        program.certify()
        program.values("linkerdVersion: v2\n")
        program.wait("Updated certificate")
        program.wait("Updated values")
        with program.caller() as after:
            assert after.certificate != shown
            image = after.ask(review(pod())).patch[-1]["value"]["image"]
            assert image.endswith(":v2")
        assert before.ask(review(pod())).patch, "connections under way keep theirs"
    project(program.folder / "tls", {"tls.crt": b"broken", "tls.key": b"broken"})
    program.values("proxy: {uid: root}\n")
    program.wait("Skipping update as cert could not be read from disk")
    program.wait("keeping the values in use")
    with program.caller() as caller:
        assert caller.ask(review(pod())).patch[-1]["value"]["image"].endswith(":v2")
    stop.set()
    for thread in threads:
        thread.join()

    assert failures == []
    assert min(answered) > 0


def test_admin_endpoints(program: Program) -> None:
    """As upstream has them."""
    with program.caller() as caller:
        caller.ask(review(pod()))

    assert program.admin("/ping") == (200, "pong\n")
    assert program.admin("/ready") == (200, "ok\n")
    assert program.admin("/other")[0] == 404
    status, metrics = program.admin("/metrics")
    assert status == 200
    line = next(
        line
        for line in metrics.splitlines()
        if line.startswith("proxy_inject_admission_responses_total{")
        and 'owner_kind="pod"' in line
    )
    assert 'skip="false"' in line
    assert 'proxy_enable_native_sidecar=""' in line


def test_an_api_that_comes_late(tmp_path: Path, cluster: Cluster) -> None:
    """Not ready, and no answer that denies a pod; then memory fills."""
    cluster.fault = Answer(503, {"kind": "Status", "message": "not yet"})
    program = Program(tmp_path / "program", cluster)
    try:
        program.wait("can't follow namespaces")
        assert program.admin("/ready") == (500, "not ready\n")
        with program.caller() as caller:
            reply = caller.ask(review(pod()))
            assert (reply.status, "is not known" in reply.text) == (500, True)
            cluster.fault = None
            program.ready()
            assert caller.ask(review(pod())).patch
    finally:
        program.close()


def test_a_stop_waits_for_who_is_served(tmp_path: Path, cluster: Cluster) -> None:
    """A review that waits for the API is answered; then the program ends well."""
    replies = []

    def ask(program: Program) -> None:
        with program.caller() as caller:
            replies.append(caller.ask(review(pod(), namespace="unknown")))

    with running(tmp_path / "program", cluster) as program:
        asked = len(cluster.calls)
        cluster.delay_s = 1
        thread = threading.Thread(target=ask, args=(program,))
        thread.start()
        cluster.wait(
            lambda found: any("unknown" in call.path for call in found.calls[asked:])
        )
        assert program.stop() == 0
        thread.join()
        program.wait("shutting down webhook server")

    (reply,) = replies
    assert "namespace 'unknown' is not known" in reply.text


def test_events_arrive_at_the_cluster(program: Program) -> None:
    """On the Deployment behind the ReplicaSet behind the pod."""
    cluster = program.cluster
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d"}
    reference = {**owner, "kind": "ReplicaSet", "name": "web-5b", "uid": "r"}
    cluster.owned("replicasets", "shop", "web-5b", owner)
    with program.caller() as caller:
        caller.ask(review(pod(owner=reference)))
    cluster.wait(lambda found: bool(found.events))

    (event,) = cluster.events
    assert event["involvedObject"] == {**owner, "namespace": "shop"}


def trusted(cluster: Cluster) -> bytes:
    """The caBundle, PEM."""
    (webhook,) = cluster.configuration["webhooks"]
    return base64.b64decode(webhook["clientConfig"]["caBundle"])


def test_self_signed_replicas(tmp_path: Path, cluster: Cluster) -> None:
    """Each adds itself to the bundle, and the API server trusts both."""
    name = "linkerd-proxy-injector.linkerd.svc"
    programs: list[Program] = []
    try:
        programs.append(Program(tmp_path / "one", cluster, "--self-signed"))
        programs.append(Program(tmp_path / "two", cluster, "--self-signed"))
        for program in programs:
            program.ready()
            with Caller(program.port, trusted(cluster), name) as caller:
                assert caller.ask(review(pod())).patch
    finally:
        for program in programs:
            program.close()

    assert trusted(cluster).count(b"BEGIN CERTIFICATE") == 2
    assert b"PRIVATE" not in trusted(cluster)
    (webhook,) = cluster.configuration["webhooks"]
    assert webhook["clientConfig"]["service"] == {"name": "linkerd-proxy-injector"}


def test_no_answer_waits_for_an_acknowledgement() -> None:
    """Accepted connections have what the listener has: Nagle's algorithm is off."""

    async def app(*_: object) -> None:
        raise AssertionError("nobody asks")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        Server(app, listener)
        with (
            socket.create_connection(listener.getsockname()),
            listener.accept()[0] as accepted,
        ):
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_certificate_is_used_once_it_has_settled() -> None:
    """A swap that is half done is neither used nor told."""
    ca = CA("webhook")
    old, new = (ca.leaf(dns=["localhost"]) for _ in range(2))
    half = KeyPair(new.pem, old.key_pem)
    found = [KeyPair(old.pem, old.key_pem), half, *[KeyPair(new.pem, new.key_pem)] * 2]
    lines: list[str] = []
    pairs = Certificates(lambda: found.pop(0), Log(write=lines.append))

    pairs.poll()
    pairs.poll()
    assert lines == []
    pairs.poll()
    assert [line for line in lines if "Updated certificate" in line] == lines
    assert len(lines) == 1


def test_a_certificate_waits_for_a_file_descriptor() -> None:
    """A poll that finds none free is no last one."""
    ca = CA("webhook")
    old, new = (ca.leaf(dns=["localhost"]) for _ in range(2))
    found = [KeyPair(old.pem, old.key_pem), *[KeyPair(new.pem, new.key_pem)] * 3]
    lines: list[str] = []
    pairs = Certificates(lambda: found.pop(0), Log(write=lines.append))
    pairs.poll()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        pairs.poll()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    pairs.poll()

    assert ["Skipping update" in lines[0], "Updated" in lines[1]] == [True, True]
    assert "Too many open files" in lines[0]


NOW = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)


def test_bundles_do_not_grow_for_ever() -> None:
    """What has expired goes, and of the others the newest stay."""
    old = self_signed.generate("linkerd", NOW - 2 * self_signed.LIFETIME).authority
    found = [
        self_signed.generate("linkerd", NOW - dt.timedelta(days=n)).authority
        for n in range(20)
    ]
    own = self_signed.generate("linkerd", NOW).authority
    kept = x509.load_pem_x509_certificates(
        self_signed.bundle([old, *found, own], own, NOW)
    )

    assert len(kept) == self_signed.MOST_KEPT
    assert kept[-1] == own
    assert set(kept[:-1]) == set(found[: self_signed.MOST_KEPT - 1])


def test_a_certificate_of_ones_own_is_renewed() -> None:
    """In good time, and not before the API server trusts the new one."""

    class Client:
        trusted = ""
        down = False

        def get(self, path: str) -> dict[str, object]:
            if self.down:
                raise ApiError(path)
            webhook = {"clientConfig": {"caBundle": self.trusted}}
            return {"metadata": {"resourceVersion": "1"}, "webhooks": [webhook]}

        def merge(self, _path: str, patch: Mapping[str, Any]) -> None:
            self.trusted = patch["webhooks"][0]["clientConfig"]["caBundle"]

    now = [NOW]
    client = Client()
    own = OwnCertificate(client, "linkerd", lambda: now[0])
    first = own()
    now[0] = NOW + self_signed.RENEWED_AFTER - dt.timedelta(seconds=1)
    client.down = True
    assert own() == first
    now[0] = NOW + self_signed.RENEWED_AFTER
    with pytest.raises(self_signed.BundleRefused):
        own()
    client.down = False
    second = own()

    assert own() == second
    assert first.chain != second.chain
    roots = x509.load_pem_x509_certificates(base64.b64decode(client.trusted))
    assert len(roots) == 2, "the old one is trusted for as long as it is valid"
    for pair, root in zip((first, second), roots, strict=True):
        x509.load_pem_x509_certificate(pair.chain).verify_directly_issued_by(root)


def test_others_write_the_bundle_meanwhile() -> None:
    """It is read and written again, until nobody was in between."""

    class Client:
        version = 1
        conflicts = 3

        def get(self, path: str) -> dict[str, object]:
            assert path.endswith(f"/{self_signed.CONFIGURATION}")
            metadata = {"resourceVersion": str(self.version)}
            return {"metadata": metadata, "webhooks": [{"clientConfig": {}}]}

        def merge(self, path: str, patch: object) -> None:
            assert (path, patch) != ("", {})
            self.conflicts -= 1
            if self.conflicts >= 0:
                raise Conflict("409")
            self.version += 1

    client = Client()
    own = self_signed.generate("linkerd", NOW)
    self_signed.publish(client, own.authority, NOW)
    assert client.version == 2
    client.conflicts = 1000
    with pytest.raises(self_signed.BundleRefused):
        self_signed.publish(client, own.authority, NOW)


Capture = pytest.CaptureFixture[str]


def refused(capfd: Capture, *argv: str) -> tuple[int, str]:
    """Exit code and error output of a start that fails."""
    code = cli.main(["serve", *argv])
    said = capfd.readouterr().err
    assert "Traceback" not in said
    return code, said


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        pytest.param(
            ["-addr", "8443"], 2, "--addr '8443': expected HOST:PORT", id="address"
        ),
        pytest.param(["--nothing"], 2, "unknown flag --nothing", id="flag"),
        pytest.param([], 1, "not in a pod", id="no cluster"),
        pytest.param(["-kubeconfig="], 1, "not in a pod", id="an empty kubeconfig"),
        pytest.param(["-kubeconfig", "/none"], 1, "can't read", id="no kubeconfig"),
    ],
)
def test_starts_that_fail(
    capfd: Capture, argv: list[str], code: int, words: str
) -> None:
    """One message with what was expected, and an exit code."""
    found, said = refused(capfd, *argv)

    assert (code, True) == (found, words in said), said


def test_start_needs_its_files(
    capfd: Capture, tmp_path: Path, cluster: Cluster
) -> None:
    """Values, anchors and certificate: what is missing is named."""
    kubeconfig = str(cluster.write_kubeconfig(tmp_path))
    (tmp_path / "values").write_text("proxy: {uid: x, gid: y}\n")
    (tmp_path / "roots").write_text("PEM")
    files = ["--values", f"{tmp_path}/values", "--trust-roots", f"{tmp_path}/roots"]
    code, said = refused(capfd, "-kubeconfig", kubeconfig, *files)
    assert (code, "proxy.uid: expected" in said, "proxy.gid" in said) == (1, True, True)

    (tmp_path / "values").write_text("")
    code, said = refused(
        capfd, "-kubeconfig", kubeconfig, *files, "--tls-cert", "/none"
    )
    assert (code, "cert could not be read from disk" in said) == (1, True)
