"""The service over a real network: both families, a silent API, cut connections."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from identity._proto.identity_pb2 import CertifyRequest, CertifyResponse
from identity.testing import CA, KubernetesApi
from identity.testing.calls import NAME, request
from identity.testing.service import write_issuer
from proxyinit.lab import CLIENT, POD, Lab, Namespace

SERVICE = "linkerd-identity.linkerd.serviceaccount.identity.linkerd.cluster.local"
PROGRAM = str(Path(sys.executable).with_name("proxy-identity"))
PORT = 8080


class Issuer:
    """The installed program, serving in a namespace."""

    def __init__(self, namespace: Namespace, args: list[str]) -> None:
        argv = [
            *(PROGRAM, "issuer", "--controller-namespace", "linkerd"),
            *("--identity-scheme", "kubernetes.io/tls"),
            *("--identity-trust-domain", "cluster.local", *args),
        ]
        self.process = namespace.run(
            lambda: subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
        )
        self.lines: list[str] = []
        self.until("ready to certify")
        # From here on somebody has to read, or the pipe fills up.
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def until(self, pattern: str) -> None:
        """Read log lines up to one that matches."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if re.search(pattern, line):
                return
        raise AssertionError(f"no line like {pattern!r}:\n{''.join(self.lines)}")

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(self.process.stderr)

    def stop(self) -> int:
        """Ask it to stop; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


@pytest.fixture
def api(lab: Lab) -> Iterator[KubernetesApi]:
    """An API server beside the pod, reached over the network."""
    made = KubernetesApi(host=CLIENT[4])
    lab.client.run(made.up)
    yield made
    made.down()


@contextlib.contextmanager
def issuing(lab: Lab, folder: Path, api: KubernetesApi, *args: str) -> Iterator[Issuer]:
    """The service in the pod, with its files, on all addresses."""
    kubeconfig = str(api.write_kubeconfig(folder))
    issuer = Issuer(
        lab.pod,
        [
            *("--issuer", str(folder / "issuer")),
            *("--trust-anchors", str(folder / "roots" / "ca-bundle.crt")),
            *("--kubeconfig", kubeconfig, *args),
        ],
    )
    try:
        yield issuer
    finally:
        code = issuer.stop()
    assert code == 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An issuer's files, and a certificate for the service itself."""
    root = CA()
    issuer = root.issuer()
    write_issuer(tmp_path, issuer, root)
    issuer.leaf(SERVICE).write(tmp_path, "serving")
    return tmp_path


_CALLER = """
import sys
import grpc
from identity._proto import CERTIFY
target, anchors, name = sys.argv[1:]
options = [("grpc.ssl_target_name_override", name), ("grpc.enable_http_proxy", 0)]
if anchors:
    credentials = grpc.ssl_channel_credentials(open(anchors, "rb").read())
    channel = grpc.secure_channel(target, credentials, options)
else:
    channel = grpc.insecure_channel(target, options)
try:
    answer = channel.unary_unary(CERTIFY)(bytes.fromhex(sys.stdin.read()), timeout=40)
    print("OK", answer.hex())
except grpc.RpcError as error:
    print(error.code().name, error.details())
"""


def certify(
    lab: Lab, message: CertifyRequest, version: int, anchors: Path | str = ""
) -> str:
    """One call from the client's namespace, over TLS if there are anchors.

    The caller is a process, as gRPC's threads live in the namespace of their maker.
    Its answer begins with the status.
    """
    address = POD[version] if version == 4 else f"[{POD[version]}]"
    argv = [sys.executable, "-c", _CALLER, f"{address}:{PORT}", str(anchors), SERVICE]
    run = lab.client.exec(argv, text=message.SerializeToString().hex())
    assert run.returncode == 0, run.stderr
    return run.stdout


def tls_args(folder: Path) -> list[str]:
    """The options for TLS with the service's own certificate."""
    files = folder / "serving.crt", folder / "serving.key"
    return ["--tls-cert", str(files[0]), "--tls-key", str(files[1])]


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "TLS"])
def test_certificates_over_the_network(
    lab: Lab, folder: Path, api: KubernetesApi, version: int, *, tls: bool
) -> None:
    """Bound to no address, the service answers in both families."""
    anchors = folder / "roots" / "ca-bundle.crt" if tls else ""
    with issuing(lab, folder, api, *(tls_args(folder) if tls else [])) as issuer:
        said = certify(lab, request(api.token("emojivoto", "web")), version, anchors)
    status, _, answer = said.partition(" ")
    assert status == "OK"
    assert CertifyResponse.FromString(bytes.fromhex(answer)).leaf_certificate
    assert any(f"issued certificate for {NAME}" in line for line in issuer.lines)


def test_an_api_behind_a_dead_network_is_given_up_and_found_again(
    lab: Lab, folder: Path, api: KubernetesApi
) -> None:
    """Packets to the API server vanish: an error in time; they flow: certificates."""
    message = request(api.token("emojivoto", "web"))
    away = ["ip", "route", "add", "blackhole", f"{CLIENT[4]}/32"]
    with issuing(lab, folder, api):
        assert certify(lab, message, 6).startswith("OK ")
        assert lab.pod.exec(away).returncode == 0
        said = certify(lab, message, 6)
        back = ["del" if word == "add" else word for word in away]
        assert lab.pod.exec(back).returncode == 0
        again = certify(lab, message, 6)
    assert said.startswith(f"INTERNAL error validating token for {NAME}: ")
    assert again.startswith("OK ")


def open_files(pid: int) -> int:
    """How many files and sockets a process holds."""
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208  (only counted)


def test_connections_that_are_cut_leave_nothing_behind(
    lab: Lab, folder: Path, api: KubernetesApi, version: int
) -> None:
    """Clients that reset before, in and after the handshake cost no file for long."""
    anchors = folder / "roots" / "ca-bundle.crt"
    context = ssl.create_default_context(cafile=str(anchors))
    message = request(api.token("emojivoto", "web"))

    def cut(number: int) -> None:
        raw = socket.create_connection((POD[version], PORT), timeout=10)
        linger = (1).to_bytes(4, sys.byteorder) + bytes(4)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)  # close resets
        if number % 3 == 0:
            raw.close()
            return
        if number % 3 == 1:
            raw.sendall(b"\x16\x03\x01\x02\x00\x01")  # the begin of a ClientHello
            raw.close()
            return
        with context.wrap_socket(raw, server_hostname=SERVICE) as secured:
            secured.sendall(b"PRI * HTTP/2.0\r\n")

    with issuing(lab, folder, api, *tls_args(folder)) as issuer:
        assert certify(lab, message, version, anchors).startswith("OK ")
        before = open_files(issuer.process.pid)
        for number in range(150):
            lab.client.run(cut, number)
        for _ in range(10):  # each call gives it time to notice
            assert certify(lab, message, version, anchors).startswith("OK ")
            if open_files(issuer.process.pid) <= before + 2:
                break
        assert open_files(issuer.process.pid) <= before + 2
