"""TLS in front of the service: for clients that offer ALPN, and those that don't."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import grpc
import pytest

from identity._proto import CERTIFY
from identity._proto.identity_pb2 import CertifyRequest, CertifyResponse
from identity.issuer.config import IssuerConfig
from identity.issuer.errors import IssuerError
from identity.issuer.tls import TlsFiles
from identity.testing import CA, KubernetesApi
from identity.testing.calls import calling, request
from identity.testing.service import serving

SERVICE = "linkerd-identity.linkerd.serviceaccount.identity.linkerd.cluster.local"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How HTTP/2 begins: with these words, and an empty SETTINGS frame."""


@dataclass(frozen=True)
class Served:
    """A service with TLS."""

    port: int
    anchors: Path
    folder: Path


@pytest.fixture
def served(
    config: IssuerConfig, root: CA, issuer: CA, tmp_path: Path
) -> Iterator[Served]:
    """A service with a certificate of the mesh itself."""
    certificate, key = issuer.leaf(SERVICE).write(tmp_path, "serving")
    (tmp_path / "anchors.pem").write_bytes(root.pem)
    secured = replace(
        config,
        tls_certificate=certificate,
        tls_key=key,
        validator="jwks",
        poll_interval=timedelta(milliseconds=20),
    )
    with serving(secured) as (port, _):
        yield Served(port, tmp_path / "anchors.pem", tmp_path)


def connect(
    served: Served, *alpn: str, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> ssl.SSLSocket:
    """A verified connection, with or without ALPN."""
    context = ssl.create_default_context(cafile=str(served.anchors))
    context.maximum_version = version
    if alpn:
        context.set_alpn_protocols(list(alpn))
    raw = socket.create_connection(("127.0.0.1", served.port), timeout=10)
    try:
        return context.wrap_socket(raw, server_hostname=SERVICE)
    except BaseException:
        raw.close()
        raise


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        pytest.param((), None, id="no ALPN, as Linkerd's proxy"),
        pytest.param(("h2",), "h2", id="h2, as gRPC's libraries"),
        pytest.param(("grpc-exp", "h2"), "h2", id="h2 among others"),
        pytest.param(("http/1.1",), None, id="something else"),
    ],
)
def test_any_offer_of_protocols_is_served(
    served: Served, offered: tuple[str, ...], chosen: str | None
) -> None:
    """HTTP/2 is spoken whatever the client offers: the settings come back."""
    with connect(served, *offered) as connection:
        assert connection.version() == "TLSv1.3"
        assert connection.selected_alpn_protocol() == chosen
        connection.sendall(PREFACE)
        header = connection.recv(9)
    assert header[3] == 4  # a SETTINGS frame


def test_a_grpc_client_gets_its_certificate(served: Served, api: KubernetesApi) -> None:
    """The library's own TLS client, which insists on ALPN, is served."""
    credentials = grpc.ssl_channel_credentials(served.anchors.read_bytes())
    with grpc.secure_channel(
        f"127.0.0.1:{served.port}",
        credentials,
        options=[("grpc.ssl_target_name_override", SERVICE)],
    ) as channel:
        method: grpc.UnaryUnaryMultiCallable[CertifyRequest, CertifyResponse]
        method = channel.unary_unary(
            CERTIFY,
            request_serializer=CertifyRequest.SerializeToString,
            response_deserializer=CertifyResponse.FromString,
        )
        answer = method(request(api.token("emojivoto", "web")), timeout=10)
    assert answer.leaf_certificate


def test_openssl_sees_tls_1_3_and_a_good_chain(served: Served) -> None:
    """An independent client verifies the name and the chain that is presented."""
    run = subprocess.run(
        [
            *("openssl", "s_client", "-connect", f"127.0.0.1:{served.port}"),
            *("-servername", SERVICE, "-verify_hostname", SERVICE),
            *("-verify_return_error", "-CAfile", str(served.anchors)),
        ],
        input="",
        capture_output=True,
        encoding="ascii",
        errors="replace",  # it may print what HTTP/2 sends on its own
        check=False,
        timeout=30,
    )
    assert run.returncode == 0, run.stderr
    assert "TLSv1.3" in run.stdout
    assert "Verify return code: 0 (ok)" in run.stdout
    assert "No ALPN negotiated" in run.stdout


def test_older_tls_is_refused(served: Served) -> None:
    """A client that can do no more than TLS 1.2 gets no connection."""
    with pytest.raises(ssl.SSLError):
        connect(served, version=ssl.TLSVersion.TLSv1_2)


def test_plaintext_and_silence_hurt_nobody(served: Served, api: KubernetesApi) -> None:
    """Clients that speak no TLS, or nothing, don't keep others from being served."""
    silent = [
        socket.create_connection(("127.0.0.1", served.port), timeout=10)
        for _ in range(20)
    ]
    loud = socket.create_connection(("127.0.0.1", served.port), timeout=10)
    loud.sendall(PREFACE)
    test_a_grpc_client_gets_its_certificate(served, api)
    for connection in (*silent, loud):
        connection.close()
    test_a_grpc_client_gets_its_certificate(served, api)


def presented(served: Served) -> bytes | None:
    """The certificate that a new connection is shown."""
    with connect(served) as connection:
        return connection.getpeercert(binary_form=True)


def test_a_renewed_certificate_is_shown_to_new_connections(
    served: Served, issuer: CA
) -> None:
    """The files change; connections that are open go on, new ones see the new."""
    with connect(served) as old:
        new = issuer.leaf(SERVICE)
        new.write(served.folder, "serving")
        while presented(served) != new.der:
            pass
        old.sendall(PREFACE)
        assert old.recv(9)


def test_broken_files_keep_the_certificate_in_use(served: Served) -> None:
    """A key that is none, or is gone, changes nothing for clients."""
    before = presented(served)
    files = TlsFiles(served.folder / "serving.crt", served.folder / "serving.key")
    context = files.context
    (served.folder / "serving.key").write_bytes(b"junk")
    for _ in range(3):
        files.poll()
    (served.folder / "serving.key").unlink()
    for _ in range(3):
        files.poll()
    assert files.context is context
    assert presented(served) == before


def test_files_that_are_no_pair_are_told_at_the_start(
    tmp_path: Path, issuer: CA
) -> None:
    """The service does not start without a certificate and its key."""
    certificate, _ = issuer.leaf(SERVICE).write(tmp_path, "one")
    _, key = issuer.leaf(SERVICE).write(tmp_path, "two")
    with pytest.raises(IssuerError, match=r"can't use .* for TLS"):
        TlsFiles(certificate, key)
    with pytest.raises(IssuerError, match="can't read the TLS certificate"):
        TlsFiles(certificate, tmp_path / "none")


def test_a_key_with_a_password_is_refused_and_nobody_asked(
    tmp_path: Path, issuer: CA
) -> None:
    """OpenSSL would ask on the terminal, and all who wait for an answer would wait."""
    leaf = issuer.leaf(SERVICE)
    certificate, key = leaf.write(tmp_path, "one")
    files = TlsFiles(certificate, key)
    context = files.context
    command = ("openssl", "pkey", "-in", str(key), "-aes128", "-passout", "pass:x")
    encrypted = subprocess.run(command, check=True, capture_output=True).stdout
    key.write_bytes(encrypted)
    for _ in range(2):
        files.poll()
    assert files.context is context
    with pytest.raises(IssuerError, match="its key has a password"):
        TlsFiles(certificate, key)


def test_large_amounts_pass_both_ways(served: Served, api: KubernetesApi) -> None:
    """Many calls at once over one connection, with tokens of 100 KiB, get answers."""
    token = api.token("emojivoto", "web", padding="x" * 100_000)
    credentials = grpc.ssl_channel_credentials(served.anchors.read_bytes())
    with grpc.secure_channel(
        f"127.0.0.1:{served.port}",
        credentials,
        options=[("grpc.ssl_target_name_override", SERVICE)],
    ) as channel:
        method: grpc.UnaryUnaryMultiCallable[CertifyRequest, CertifyResponse]
        method = channel.unary_unary(
            CERTIFY,
            request_serializer=CertifyRequest.SerializeToString,
            response_deserializer=CertifyResponse.FromString,
        )
        message = request(token)
        calls = [method.future(message, timeout=20) for _ in range(50)]
        assert all(call.result().leaf_certificate for call in calls)


def test_calls_through_tls_finish_when_the_service_stops(
    config: IssuerConfig, root: CA, issuer: CA, api: KubernetesApi, tmp_path: Path
) -> None:
    """A graceful stop waits for calls that came through the terminator, too."""
    certificate, key = issuer.leaf(SERVICE).write(tmp_path, "serving")
    (tmp_path / "anchors.pem").write_bytes(root.pem)
    api.delay_s = 0.3
    done: list[bool] = []
    secured = replace(config, tls_certificate=certificate, tls_key=key)
    with serving(secured) as (port, _):
        served = Served(port, tmp_path / "anchors.pem", tmp_path)

        def work() -> None:
            test_a_grpc_client_gets_its_certificate(served, api)
            done.append(True)

        thread = threading.Thread(target=work)
        thread.start()
        api.wait(lambda seen: bool(seen.times("/apis/authentication")))
    thread.join()
    assert done == [True]


def test_without_files_the_service_is_plaintext(
    config: IssuerConfig, api: KubernetesApi
) -> None:
    """Behind a mesh proxy, which does the TLS, there is none here."""
    with serving(config) as (port, _), calling(port) as call:
        assert call(request(api.token("emojivoto", "web"))).leaf_certificate
