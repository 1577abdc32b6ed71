"""The commands as programs: certify, run, signals, and what they never show."""

from __future__ import annotations

import contextlib
import datetime as dt
import http.client
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from identity import cli, env, variables
from identity._proto.identity_pb2 import CertifyRequest, CertifyResponse
from identity.client_cli import read_config
from identity.errors import Misconfigured
from identity.testing import CA
from identity.testing.mesh import MeshService, certified
from identity.variables import DIRECTORY, LOCAL_NAME, TRUST_ANCHORS

NAME = "web.emojivoto.serviceaccount.identity.linkerd.cluster.local"
TOKEN = "eyJhbGciOiJub25lIn0.c2VjcmV0.dG9rZW4"  # noqa: S105  (nobody's)
ROOT = CA()
ISSUER = ROOT.issuer()
PROGRAM = (sys.executable, "-m", "identity")
SOURCE = str(Path(cli.__file__).parents[1])


@dataclass
class Pod:
    """A directory, an environment, and a service that can be told what to do."""

    folder: Path
    environ: dict[str, str]
    service: MeshService
    lifetime: dt.timedelta = dt.timedelta(days=1)
    broken: bool = False

    def answer(
        self, request: CertifyRequest, context: grpc.ServicerContext
    ) -> CertifyResponse:
        """Certify, unless the service is broken."""
        if self.broken:
            text = f"no for {request.token.decode()}"
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
        return certified(request, ISSUER, lifetime=self.lifetime)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """The program, in the background."""
        return subprocess.Popen(
            [*PROGRAM, *arguments],
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """The program to its end: exit code and log; nothing goes to stdout."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=60)
        assert out == ""
        self.nothing_secret(err)
        return process.returncode, err

    def nothing_secret(self, text: str) -> None:
        """No token, key or request is in a text, in any usual form."""
        assert "eyJ" not in text
        assert "PRIVATE KEY" not in text
        # The scalar of the key, and the signature of the request.
        for name, part in ("key.p8", slice(36, 68)), ("csr.der", slice(-40, None)):
            with contextlib.suppress(FileNotFoundError):
                data = (self.folder / "ee" / name).read_bytes()[part]
                for form in (data.hex(), repr(data)[2:-1], b64encode(data).decode()):
                    assert form[4:40] not in text


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    """A pod whose identity service listens on loopback."""
    (tmp_path / "ee").mkdir()
    (tmp_path / "token").write_text(TOKEN)
    environ = {
        DIRECTORY: str(tmp_path / "ee"),
        LOCAL_NAME: NAME,
        TRUST_ANCHORS: ROOT.pem.decode(),
        variables.TOKEN_FILE: str(tmp_path / "token"),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": SOURCE,
    }
    with MeshService(lambda request, _: certified(request, ISSUER)) as service:
        environ[variables.SVC_ADDR] = f"127.0.0.1:{service.port}"
        made = Pod(tmp_path, environ, service)
        service.handler = made.answer
        yield made


def names(pod: Pod) -> list[str]:
    """What is in the directory, without the store's own."""
    found = (path.name for path in (pod.folder / "ee").iterdir())
    return sorted(name for name in found if not name.startswith(".."))


def page(port: int, path: str) -> tuple[int, str]:
    """A page of the agent's web server."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


# === certify ===


def test_certify_for_init_containers(pod: Pod) -> None:
    """One certification: exit 0, progress on stderr, the files in place."""
    status, said = pod.run("certify")
    assert status == 0
    assert f'level=info msg="Certified identity {NAME}, valid until 20' in said
    assert names(pod) == ["ca.crt", "csr.der", "key.p8", "tls.crt", "tls.key"]
    with ssl_context(pod) as context:
        assert context.cert_store_stats()["x509_ca"] == 1
    (request,) = pod.service.requests
    assert request.token == TOKEN.encode()
    assert request.identity == NAME
    csr = (pod.folder / "ee" / "csr.der").read_bytes()
    assert request.certificate_signing_request == csr


@contextlib.contextmanager
def ssl_context(pod: Pod) -> Iterator[ssl.SSLContext]:
    """A TLS server's context from the set; loading it checks that they match."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    folder = pod.folder / "ee"
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    context.load_verify_locations(folder / "ca.crt")
    yield context


def test_certify_gives_up_in_time(pod: Pod) -> None:
    """Exit 1; the reason stands in the last line, the token nowhere."""
    pod.broken = True
    status, said = pod.run("certify", "--timeout", "500ms", "--log-format", "json")
    assert status == 1
    assert '"level":"error","msg":"Failed to obtain identity: ' in said
    last = said.splitlines()[-1]
    assert last.startswith("Error: not certified within 0.5 s: 127.0.0.1:")
    assert last.endswith("answered FAILED_PRECONDITION: no for <token>")
    assert not (pod.folder / "ee" / "tls.crt").exists()


def test_certify_ends_at_once_when_stopped(pod: Pod) -> None:
    """SIGTERM in the midst of an attempt is not waited out."""
    arrived, release = threading.Event(), threading.Event()

    def slow(request: CertifyRequest, _: grpc.ServicerContext) -> CertifyResponse:
        arrived.set()
        release.wait()
        return certified(request, ISSUER)

    pod.service.handler = slow
    process = pod.start("certify")
    arrived.wait()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=5)
    release.set()
    assert process.returncode == 1
    assert said == "Error: stopped before there was a certificate\n"


def test_all_mistakes_at_once(pod: Pod) -> None:
    """Exit 2, a line for each, spelled as the user did; nothing is touched."""
    del pod.environ[LOCAL_NAME]
    pod.environ[variables.MAX_REFRESH] = "soon"
    status, said = pod.run("run", "--svc-addr", "nowhere")
    assert status == 2
    assert "Error: 4 mistakes in the configuration:\n" in said
    for line in (
        "  --svc-addr 'nowhere': expected an address and a port",
        "  LINKERD2_PROXY_IDENTITY_SVC_NAME is missing: set it, or give --svc-name",
        "  LINKERD2_PROXY_IDENTITY_LOCAL_NAME is missing: set it, or give --name",
        "  LINKERD2_PROXY_IDENTITY_MAX_REFRESH 'soon': expected digits and one of",
    ):
        assert line in said
    assert names(pod) == []


def test_mistakes_of_every_kind_at_once(pod: Pod) -> None:
    """Words of no option, values of no type, a file that is none, hooks, variables."""
    del pod.environ[LOCAL_NAME]
    status, said = pod.run(
        *("run", "--nope", "--admin-addr", "x", "--trust-anchors", "/nowhere"),
        *("--exec", "", "--signal", "HUP", "--call-timeout", "1", "word"),
    )
    assert status == 2
    assert "Error: 8 mistakes in the configuration:\n" in said
    for part in (
        *("'--nope'", "'--admin-addr'", "'--call-timeout'", "argument (word)"),
        "\n  --trust-anchors: /nowhere: No such file or directory",
        "\n  LINKERD2_PROXY_IDENTITY_LOCAL_NAME is missing",
        *("\n  --exec '': expected", "\n  --signal needs --pid-file"),
    ):
        assert part in said
    assert names(pod) == []


def test_mistakes_of_settings_and_hooks_at_once(pod: Pod) -> None:
    """Also where each word alone can be read."""
    del pod.environ[LOCAL_NAME]
    status, said = pod.run("run", "--exec", "")
    assert status == 2
    assert "Error: 2 mistakes in the configuration:\n" in said
    status, said = pod.run("run", "--exec", "", "--name", NAME)
    assert status == 2
    assert "Error: 1 mistake in the configuration:\n  --exec" in said


def test_trust_anchors_may_come_through_a_pipe(pod: Pod) -> None:
    """As from a shell's <(command): read once, and not looked at again."""
    reading, writing = os.pipe()
    os.write(writing, ROOT.pem)
    os.close(writing)
    done = subprocess.run(
        [*PROGRAM, "certify", "--trust-anchors", f"/dev/fd/{reading}"],
        env=pod.environ,
        pass_fds=(reading,),
        capture_output=True,
        text=True,
        check=False,
    )
    os.close(reading)
    assert done.returncode == 0, done.stderr
    assert "level=warning" not in done.stderr


def test_an_answer_is_waited_for_as_long_as_asked(pod: Pod) -> None:
    """A service that takes a call and says nothing is given up after --call-timeout."""
    release = threading.Event()

    def silent(_: CertifyRequest, __: grpc.ServicerContext) -> CertifyResponse:
        release.wait()
        return CertifyResponse()

    pod.service.handler = silent
    status, said = pod.run("certify", "--call-timeout", "100ms", "--timeout", "700ms")
    release.set()
    assert status == 1
    assert "answered DEADLINE_EXCEEDED" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["certify", "--timeout", "1"], "--timeout", id="no unit"),
        pytest.param(["certify", "--call-timeout", "0"], "more than 0", id="no time"),
        pytest.param(["run", "--admin-addr", "x"], "--admin-addr", id="no port"),
        pytest.param(["run", "--admin-addr", ":\u00b2"], "--admin-addr", id="power"),
        pytest.param(["run", "--signal", "HUP"], "--signal needs", id="to nobody"),
        pytest.param(["--proxy"], "--proxy", id="value missing"),
        pytest.param(["--proxy", "/bin/true", "run"], "--proxy", id="not for run"),
        pytest.param(["walk"], "No such command 'walk'", id="unknown command"),
    ],
)
def test_usage(pod: Pod, arguments: list[str], said: str) -> None:
    """Wrong words are exit 2, and say which."""
    status, text = pod.run(*arguments)
    assert status == 2
    assert said in text


# === run ===


def wait_for(pod: Pod, requests: int) -> None:
    """Until the service has been asked so often."""
    deadline = time.monotonic() + 30
    while len(pod.service.requests) < requests:
        assert time.monotonic() < deadline, "the service was not asked in time"
        threading.Event().wait(0.02)


def test_run_renews_tells_and_recovers(pod: Pod) -> None:
    """Three certificates of a second each, then an outage past the end, then more."""
    port = free_port()
    told = pod.folder / "told"
    pod.lifetime = dt.timedelta(seconds=2)
    process = pod.start(
        *("run", "--admin-addr", f"127.0.0.1:{port}", "--min-refresh", "300ms"),
        *("--rotate-key", "--exec", f"sh -c 'echo renewed >>{told}'"),
    )
    wait_for(pod, 3)
    assert page(port, "/live") == (200, "live\n")
    assert page(port, "/ready") == (200, "ready\n")
    with ssl_context(pod):
        pass
    pod.broken = True
    while page(port, "/ready")[0] == 200:
        threading.Event().wait(0.05)
    assert page(port, "/ready") == (503, "not ready\n")
    pod.broken = False
    pod.lifetime = dt.timedelta(days=1)
    while page(port, "/ready")[0] != 200:
        threading.Event().wait(0.05)
    metrics = page(port, "/metrics")[1]
    assert re.search(r'cert_refreshes_total\{result="ok"\} [4-9]', metrics)
    assert re.search(r'attempts_total\{outcome="call"\} [1-9]', metrics)
    process.send_signal(signal.SIGTERM)
    out, said = process.communicate(timeout=5)
    assert process.returncode == 0
    assert out == ""
    assert told.read_text().startswith("renewed\nrenewed\n")
    assert "Failed to obtain identity: " in said
    assert "Traceback" not in said
    pod.nothing_secret(said)
    requests = {r.certificate_signing_request for r in pod.service.requests}
    assert len(requests) == len(pod.service.requests), "a new key each time"
    with ssl_context(pod):
        pass


def test_run_without_any_service(pod: Pod) -> None:
    """Alive but not ready, while the service can't be reached; SIGINT ends it, too."""
    port = free_port()
    pod.environ[variables.SVC_ADDR] = f"127.0.0.1:{free_port()}"
    process = pod.start("run", "--admin-addr", f"127.0.0.1:{port}")
    assert process.stderr is not None
    line = process.stderr.readline()
    assert re.search(r": 127\.0\.0\.1 port \d+: Connection refused; again in", line)
    assert page(port, "/live")[0] == 200
    assert page(port, "/ready")[0] == 503
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=5)
    assert process.returncode == 0
    assert "Traceback" not in said


def test_run_says_when_its_address_is_taken(pod: Pod) -> None:
    """Exit 1 with the option to change."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        status, said = pod.run("run", "--admin-addr", address)
    assert status == 1
    assert "choose another --admin-addr" in said


def test_the_command_line_holds_no_secret(pod: Pod) -> None:
    """No option takes one: tokens and keys come from files."""
    help_text = subprocess.run(
        [sys.executable, "-m", "identity", "run", "--help"],
        env=pod.environ,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "--token-file" in help_text
    assert not re.search(r"--token\b(?!-file)|--key\b", help_text)


# === options over variables ===


def test_options_win_over_variables(pod: Pod) -> None:
    """What is given on the command line counts; anchors come from a file there."""
    other = pod.folder / "other.pem"
    other.write_bytes(CA().pem)
    read = read_config(
        {
            TRUST_ANCHORS: str(other),
            variables.SVC_ADDR: "[::1]:80",
            variables.connect_timeout_of("OUTBOUND"): "7s",
            LOCAL_NAME: None,
        },
        pod.environ,
    )
    assert read.anchors.text == other.read_text()
    assert read.service.host == "::1"
    assert read.connect_timeout == dt.timedelta(seconds=7), "of either direction"
    assert read.name == NAME
    assert env.read(pod.environ).anchors.text == ROOT.pem.decode()


def test_anchors_from_a_file_that_is_none(pod: Pod) -> None:
    """Missing or no certificates: told by the option's name."""
    for path in (pod.folder / "nowhere", Path(sys.executable)):
        with pytest.raises(Misconfigured, match=r"--trust-anchors: "):
            read_config({TRUST_ANCHORS: str(path)}, pod.environ)
