"""The service over gRPC: statuses, certificates, events, metrics; no secrets."""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest

from identity import keys
from identity._proto import CERTIFY, SERVICE
from identity._proto.identity_pb2 import CertifyRequest, CertifyResponse
from identity.issuer import errors
from identity.issuer.config import IssuerConfig
from identity.issuer.events import NoEvents
from identity.issuer.metrics import code_name
from identity.issuer.policy import Account, Request
from identity.issuer.server import STATUS
from identity.issuer.service import Certifier
from identity.issuer.worker import Outside
from identity.testing import CA, Answer, KubernetesApi, csr_der, new_key
from identity.testing.calls import (
    NAME,
    Call,
    Failed,
    calling,
    failure,
    outcome,
    request,
)
from identity.testing.service import serving, write_issuer
from identity.testing.witness import as_text, openssl, section

Code = grpc.StatusCode
LONG = f"{'a' * 60}.emojivoto.serviceaccount.identity.linkerd.cluster.local"


def leaf(answer: CertifyResponse) -> x509.Certificate:
    """The certificate of an answer."""
    return x509.load_der_x509_certificate(answer.leaf_certificate)


@pytest.fixture(params=["kubernetes", "jwks"])
def call(request: pytest.FixtureRequest, config: IssuerConfig) -> Iterator[Call]:
    """A service with each of the two ways to check tokens."""
    with (
        serving(replace(config, validator=str(request.param))) as (port, _),
        calling(port) as made,
    ):
        yield made


def test_wire_bytes_are_those_of_the_contract() -> None:
    """Messages are encoded as Linkerd's proxy encodes them."""
    sent = CertifyRequest(identity="x", token=b"tt", certificate_signing_request=b"c")
    assert sent.SerializeToString().hex() == "0a0178120274741a0163"
    answer = CertifyResponse(
        leaf_certificate=b"L", intermediate_certificates=[b"I1", b"I2"]
    )
    answer.valid_until.seconds = 1
    assert answer.SerializeToString().hex() == "0a014c12024931120249321a020801"
    assert CERTIFY == "/io.linkerd.proxy.identity.Identity/Certify"


def test_openssl_verifies_what_the_service_issues(
    call: Call, api: KubernetesApi, root: CA, issuer: CA, tmp_path: Path
) -> None:
    """A certificate for the key and the name that were sent, down from the anchor."""
    key = new_key()
    answer = call(request(api.token("emojivoto", "web"), csr=csr_der(NAME, key)))
    certificate = leaf(answer)
    (tmp_path / "root.pem").write_bytes(root.pem)
    pem = certificate.public_bytes(Encoding.PEM)
    (tmp_path / "leaf.pem").write_bytes(pem)
    (tmp_path / "above.pem").write_bytes(issuer.pem)
    for purpose in ("sslserver", "sslclient"):
        said = openssl(
            *("verify", "-x509_strict", "-purpose", purpose),
            *("-verify_hostname", NAME, "-CAfile", tmp_path / "root.pem"),
            *("-untrusted", tmp_path / "above.pem", tmp_path / "leaf.pem"),
        )
        assert said.strip().endswith("OK")
    assert certificate.public_key() == key.public_key()
    issuer_der = issuer.certificate.public_bytes(Encoding.DER)
    assert list(answer.intermediate_certificates) == [issuer_der]


def test_certificates_have_upstream_s_fields(
    config: IssuerConfig, api: KubernetesApi, tmp_path: Path
) -> None:
    """Times, usages and names are upstream's; the serial number is random."""
    now = dt.datetime(2026, 5, 4, 3, 2, 1, 999, tzinfo=dt.UTC)
    now += dt.datetime.now(tz=dt.UTC) - now - dt.timedelta(hours=1)
    skew = dt.timedelta(seconds=20)
    chart = replace(config, skew=skew, lifetime=dt.timedelta(hours=24))
    outside = Outside(clock=lambda: now, random=lambda count: b"\x7f" * count)
    with serving(chart, outside) as (port, _), calling(port) as call:
        answer = call(request(api.token("emojivoto", "web")))
    certificate = leaf(answer)
    whole = now.replace(microsecond=0)
    end = whole + dt.timedelta(hours=24) + skew
    assert certificate.not_valid_before_utc == whole - skew
    assert certificate.not_valid_after_utc == end
    assert answer.valid_until.seconds == int(end.timestamp())
    assert answer.valid_until.nanos == 0
    assert certificate.serial_number == int.from_bytes(b"\x7f" * 16)
    text = as_text(certificate, tmp_path)
    assert "Signature Algorithm: ecdsa-with-SHA256" in text
    assert section(text, "Subject:").startswith("|")
    usage = section(text, "X509v3 Key Usage")
    assert usage == "critical|Digital Signature, Key Encipherment"
    uses = section(text, "X509v3 Extended Key Usage")
    assert uses == "|TLS Web Server Authentication, TLS Web Client Authentication"
    san = section(text, "X509v3 Subject Alternative Name")
    assert san == f"critical|DNS:{NAME}"
    assert [e.oid.dotted_string for e in certificate.extensions] == [
        *("2.5.29.15", "2.5.29.37", "2.5.29.35", "2.5.29.17")
    ]


def test_nothing_outlives_its_issuer(
    config: IssuerConfig, api: KubernetesApi, root: CA, tmp_path: Path
) -> None:
    """A certificate ends with the issuer's at the latest."""
    end = dt.datetime.now(tz=dt.UTC) + dt.timedelta(hours=2)
    write_issuer(tmp_path, root.issuer(not_after=end), root)
    with serving(config) as (port, _), calling(port) as call:
        certificate = leaf(call(request(api.token("emojivoto", "web"))))
    assert certificate.not_valid_after_utc == end.replace(microsecond=0)


def test_a_long_name_gets_its_certificate(
    call: Call, api: KubernetesApi, tmp_path: Path
) -> None:
    """What the bootstrap makes for an account of 60 characters is certified."""
    csr = keys.csr_der(keys.generate(), LONG)
    answer = call(request(api.token("emojivoto", "a" * 60), LONG, csr))
    path = tmp_path / "leaf.der"
    path.write_bytes(answer.leaf_certificate)
    args = ("x509", "-inform", "DER", "-in", path, "-noout")
    assert openssl(*args, "-subject").strip() == f"subject=CN = {LONG}"
    assert f"DNS:{LONG}" in openssl(*args, "-ext", "subjectAltName")


def test_a_spiffe_id_comes_second(
    config: IssuerConfig, api: KubernetesApi, tmp_path: Path
) -> None:
    """With the option, the SPIFFE id follows the name that Linkerd goes by."""
    with serving(replace(config, spiffe=True)) as (port, _), calling(port) as call:
        certificate = leaf(call(request(api.token("emojivoto", "web"))))
    san = section(as_text(certificate, tmp_path), "X509v3 Subject Alternative Name")
    spiffe_id = "spiffe://cluster.local/ns/emojivoto/sa/web"
    assert san == f"critical|DNS:{NAME}, URI:{spiffe_id}"


def test_extensions_of_a_csr_do_not_get_into_the_certificate(
    call: Call, api: KubernetesApi
) -> None:
    """Who asks to be a CA gets a workload's certificate."""
    key = new_key()
    csr = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.DER)
    )
    found = leaf(call(request(api.token("emojivoto", "web"), csr=csr))).extensions
    with pytest.raises(x509.ExtensionNotFound):
        found.get_extension_for_class(x509.BasicConstraints)


def rsa_csr() -> bytes:
    """A signing request for a kind of key that is not certified."""
    san = x509.SubjectAlternativeName([x509.DNSName(NAME)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    made = builder.add_extension(san, critical=False)
    key = rsa.generate_private_key(65537, 2048)
    return made.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


Make = Callable[[KubernetesApi], CertifyRequest]
OTHER = f"voting{NAME.removeprefix('web')}"


@pytest.mark.parametrize(
    ("make", "code", "details"),
    [
        pytest.param(
            lambda _: CertifyRequest(),
            Code.INVALID_ARGUMENT,
            "missing identity",
            id="an empty message",
        ),
        pytest.param(
            lambda _: request(b""),
            Code.INVALID_ARGUMENT,
            "missing token",
            id="no token",
        ),
        pytest.param(
            lambda api: request(api.token("emojivoto", "web"), csr=b"garbage"),
            Code.INVALID_ARGUMENT,
            "invalid certificate signing request",
            id="no CSR",
        ),
        pytest.param(
            lambda api: request(api.token("emojivoto", "web"), OTHER),
            Code.FAILED_PRECONDITION,
            "requested identity did not match provided token: "
            f"requested={OTHER}; found={NAME}",
            id="the token of another account",
        ),
        pytest.param(
            lambda api: request(
                api.token("emojivoto", "web"), csr=csr_der(OTHER, new_key())
            ),
            Code.FAILED_PRECONDITION,
            f"CSR name does not match requested identity: csr={OTHER}; req={NAME}",
            id="the CSR of another name",
        ),
        pytest.param(
            lambda api: request(api.token("emojivoto", "web"), csr=rsa_csr()),
            Code.INTERNAL,
            "CSR must contain an ECDSA public key",
            id="an RSA key",
        ),
        pytest.param(
            lambda api: request(
                api.token("emojivoto", "web", sub="system:node:worker-1")
            ),
            Code.INVALID_ARGUMENT,
            "Username must be in form system:TYPE:NS:SA: system:node:worker-1",
            id="the token of a node",
        ),
        pytest.param(
            lambda api: request(api.token("emojivoto", "web") + b"\n"),
            None,
            "",
            id="a newline behind the token",
        ),
        pytest.param(
            lambda _: request(b"\xff\xfe"), Code.INVALID_ARGUMENT, "", id="no text"
        ),
    ],
)
def test_each_refusal_has_its_status(
    call: Call, api: KubernetesApi, make: Make, code: Code | None, details: str
) -> None:
    """Statuses and messages are upstream's, whichever way tokens are checked."""
    found = failure(call, make(api))
    assert code is None or found.code is code
    assert found.details.startswith(details)
    assert call(request(api.token("emojivoto", "web"))).leaf_certificate


def test_a_mebibyte_is_not_even_read(call: Call, api: KubernetesApi) -> None:
    """Requests far beyond any real one are refused by their size."""
    token = api.token("emojivoto", "web")
    assert failure(call, request(token, csr=bytes(1 << 20))).code is (
        Code.RESOURCE_EXHAUSTED
    )
    assert call(request(token)).leaf_certificate


def test_without_an_issuer_the_service_is_not_available(config: IssuerConfig) -> None:
    """Before anything else is looked at, there has to be an issuer."""

    class Nobody:
        async def validate(self, token: bytes) -> Account:
            raise AssertionError(token)

    certifier = Certifier(
        config=config,
        credentials=lambda: None,
        validator=Nobody(),
        events=NoEvents(),
        clock=lambda: dt.datetime.now(tz=dt.UTC),
        random=bytes,
    )
    with pytest.raises(errors.NotReady, match=r"^cert issuer not ready yet$"):
        asyncio.run(certifier.certify(Request("", b"", b"")))


def test_every_refusal_has_a_status() -> None:
    """No class of refusals is missing from the table of statuses."""
    found = {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.Refusal)
    }
    assert found - {errors.Refusal} == set(STATUS)


def test_an_expired_issuer_refuses_and_recovers(
    config: IssuerConfig, api: KubernetesApi, root: CA, tmp_path: Path
) -> None:
    """Its own expiry is told as upstream does; a new issuer ends it."""
    start = dt.datetime.now(tz=dt.UTC)
    moved = [dt.timedelta(0)]
    outside = Outside(clock=lambda: dt.datetime.now(tz=dt.UTC) + moved[0])
    write_issuer(tmp_path, root.issuer(not_after=start + dt.timedelta(hours=1)), root)
    quick = replace(config, poll_interval=dt.timedelta(milliseconds=20))
    with serving(quick, outside) as (port, metrics), calling(port) as call:
        message = request(api.token("emojivoto", "web"))
        assert call(message).leaf_certificate
        moved[0] = dt.timedelta(hours=2)
        found = failure(call, message)
        assert found.code is Code.UNKNOWN
        assert " - Current Time : " in found.details
        api.wait(lambda seen: "IssuerValidationFailed" in reasons(seen))
        write_issuer(tmp_path, root.issuer(), root)
        while isinstance(outcome(call, message), Failed):
            pass
        updates = metrics.registry.get_sample_value("identity_issuer_updates_total")
    assert updates == 1


def reasons(api: KubernetesApi) -> list[str]:
    """What the events sent so far are about."""
    return [event["reason"] for event in api.events]


def test_rotation_under_load_fails_no_request(
    config: IssuerConfig, api: KubernetesApi, root: CA, tmp_path: Path
) -> None:
    """While requests keep coming, issuers and then roots change: every one succeeds."""
    quick = replace(
        config, validator="jwks", poll_interval=dt.timedelta(milliseconds=10)
    )
    next_root = CA("next root")
    failed: list[Failed] = []
    done = threading.Event()
    message = request(api.token("emojivoto", "web"))

    def work(port: int) -> None:
        with calling(port) as call:
            while not done.is_set():
                found = outcome(call, message)
                if isinstance(found, Failed):
                    failed.append(found)

    with serving(quick) as (port, _), calling(port) as call:
        threads = [threading.Thread(target=work, args=(port,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for anchor in (root, root, next_root):
            new = anchor.issuer()
            write_issuer(tmp_path, new, anchor)
            expected = new.certificate.public_bytes(Encoding.DER)
            while call(message).intermediate_certificates[0] != expected:
                pass
        done.set()
        for thread in threads:
            thread.join()
    assert failed == []


def test_events_tell_of_certificates(config: IssuerConfig, api: KubernetesApi) -> None:
    """An event on the account names the certificate by its hash, and its end."""
    with serving(config) as (port, _), calling(port) as call:
        answer = call(request(api.token("emojivoto", "web")))
        api.wait(lambda seen: bool(seen.events))
    (event,) = api.events
    until = leaf(answer).not_valid_after_utc.strftime("%Y-%m-%d %H:%M:%S +0000 UTC")
    digest = hashlib.sha256(answer.leaf_certificate).hexdigest()
    assert event["message"] == f"issued certificate for {NAME} until {until}: {digest}"
    assert (event["type"], event["reason"]) == ("Normal", "IssuedLeafCertificate")
    assert event["source"] == {"component": "linkerd-identity"}
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "namespace": "emojivoto",
        "name": "web",
    }
    assert event["metadata"]["namespace"] == "emojivoto"


def test_metrics_have_upstream_s_names(
    config: IssuerConfig, api: KubernetesApi
) -> None:
    """Calls by status, the issuer's remaining life and API calls are counted."""
    with serving(config) as (port, metrics), calling(port) as call:
        call(request(api.token("emojivoto", "web")))
        failure(call, request(b""))
    text = generate_latest(metrics.registry).decode()
    labels = f'grpc_method="Certify",grpc_service="{SERVICE}",grpc_type="unary"'
    for line in (
        f"grpc_server_started_total{{{labels}}} 2.0",
        f'grpc_server_handled_total{{grpc_code="OK",{labels}}} 1.0',
        f'grpc_server_handled_total{{grpc_code="InvalidArgument",{labels}}} 1.0',
        f'grpc_server_handled_total{{grpc_code="Canceled",{labels}}} 0.0',
        f"grpc_server_msg_received_total{{{labels}}} 2.0",
        f"grpc_server_msg_sent_total{{{labels}}} 1.0",
    ):
        assert line in text
    for le in ("0.1", "1.0", "300.0", "3600.0", "+Inf"):
        assert f'le="{le}"' in text
    ttl = metrics.registry.get_sample_value("issuer_cert_ttl_seconds")
    assert ttl is not None
    assert 0 < ttl <= 10 * 86400
    assert 'http_client_requests_total{code="201",method="post"}' in text


@pytest.mark.parametrize(
    ("code", "name"),
    [
        pytest.param(Code.OK, "OK", id="success"),
        pytest.param(Code.CANCELLED, "Canceled", id="one l, as Go has it"),
        pytest.param(Code.FAILED_PRECONDITION, "FailedPrecondition", id="two words"),
    ],
)
def test_statuses_are_called_as_go_calls_them(code: Code, name: str) -> None:
    """Dashboards know the labels of Go's library."""
    assert code_name(code) == name


def test_the_health_service_says_serving(config: IssuerConfig) -> None:
    """gRPC probes find the service, by its name and without one."""
    with (
        serving(config) as (port, _),
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        stub: Any = health_pb2_grpc.HealthStub(channel)
        for name in ("", SERVICE):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=10)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_calls_under_way_finish_when_the_service_stops(
    config: IssuerConfig, api: KubernetesApi
) -> None:
    """A graceful stop waits for the answer of a call that has begun."""
    api.delay_s = 0.3
    answers: list[CertifyResponse] = []
    message = request(api.token("emojivoto", "web"))

    def work(port: int) -> None:
        with calling(port) as call:
            answers.append(call(message))

    with serving(config) as (port, _):
        thread = threading.Thread(target=work, args=(port,))
        thread.start()
        api.wait(lambda seen: bool(seen.times("/apis/authentication")))
    thread.join()
    assert len(answers) == 1


def test_what_the_service_logs_can_be_shown_to_anybody(
    call: Call, api: KubernetesApi, caplog: pytest.LogCaptureFixture
) -> None:
    """At the most talkative level, no part of a token or CSR is in any line."""
    caplog.set_level(logging.DEBUG)
    token = api.token("emojivoto", "web")
    call(request(token))
    failure(call, request(token, OTHER))
    failure(call, request(token[:-4]))
    api.fault = Answer(500, "<html>no</html>")
    outcome(call, request(token))
    lines = caplog.text
    assert "issued certificate for" in lines
    for part in token.decode().split("."):
        assert part not in lines


wire = st.one_of(
    st.binary(max_size=300),
    st.builds(
        lambda name, token, csr: CertifyRequest(
            identity=name, token=token, certificate_signing_request=csr
        ).SerializeToString(),
        st.one_of(st.just(NAME), st.text(max_size=20)),
        st.binary(max_size=60),
        st.one_of(st.just(csr_der(NAME, new_key())), st.binary(max_size=60)),
    ),
)


def test_no_bytes_bring_the_service_down(
    config: IssuerConfig, api: KubernetesApi
) -> None:
    """Random messages get a status each, and real ones their certificates after."""
    allowed = {Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION, Code.INTERNAL}
    with serving(replace(config, validator="jwks")) as (port, metrics):
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            raw: grpc.UnaryUnaryMultiCallable[bytes, bytes]
            raw = channel.unary_unary(CERTIFY)

            @settings(max_examples=300, deadline=None)
            @given(wire)
            def send(message: bytes) -> None:
                with pytest.raises(grpc.RpcError) as failed:
                    raw(message, timeout=20)
                assert failed.value.code() in allowed

            send()
        with calling(port) as call:
            assert call(request(api.token("emojivoto", "web"))).leaf_certificate
        handled = "grpc_server_handled_total"
        samples = [
            sample
            for family in metrics.registry.collect()
            for sample in family.samples
            if sample.name == handled
        ]
    assert not [s for s in samples if s.labels["grpc_code"] == "Unknown" and s.value]
