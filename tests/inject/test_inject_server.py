"""The program `proxy-injector serve`: TLS, files and an API that change."""

from __future__ import annotations

import http.client
import ssl
import threading
from pathlib import Path

import pytest

from identity.testing import project
from identity.testing.https import Answer
from proxyinit.inject.testing import Cluster, pod, review, service
from proxyinit.inject.webhook import MOST_BYTES
from tests.inject.program import Program, running


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
