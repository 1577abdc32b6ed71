"""What the service survives: a stop in a crowd, and mistakes of our own."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from identity._proto import CERTIFY, SERVICE
from identity._proto.identity_pb2 import CertifyRequest
from identity.issuer.config import IssuerConfig
from identity.issuer.metrics import Metrics
from identity.issuer.policy import Request
from identity.issuer.server import Handler
from identity.issuer.service import Certified
from identity.issuer.worker import Outside
from identity.testing import CA, KubernetesApi
from identity.testing.calls import calling, request
from identity.testing.service import serving, write_issuer

CERTIFIES = {"grpc_type": "unary", "grpc_service": SERVICE, "grpc_method": "Certify"}
SECRET = "eyJhbGciOiJub25lIn0.secret"  # noqa: S105  (nobody's)


def test_a_crowd_that_waits_is_served_when_the_service_stops(
    config: IssuerConfig, api: KubernetesApi
) -> None:
    """Calls that have arrived and are not taken up yet are in flight, too."""
    message = request(api.token("emojivoto", "web"))
    with contextlib.ExitStack() as channels:
        with serving(replace(config, validator="jwks")) as (port, metrics):
            crowd = []
            for number in range(16):
                options = [("grpc.use_local_subchannel_pool", 1), ("number", number)]
                channel = channels.enter_context(
                    grpc.insecure_channel(f"127.0.0.1:{port}", options)
                )
                grpc.channel_ready_future(channel).result(20)
                method: grpc.UnaryUnaryMultiCallable[CertifyRequest, bytes]
                method = channel.unary_unary(
                    CERTIFY, request_serializer=CertifyRequest.SerializeToString
                )
                crowd.append(method)
            calls = [method.future(message) for method in crowd for _ in range(12)]
            calls[0].result(20)
        assert all(call.result(20) for call in calls)
    name = "grpc_server_handling_seconds_count"
    assert metrics.registry.get_sample_value(name, CERTIFIES) == len(calls)


def test_what_nobody_thought_of_is_told_without_its_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A mistake of ours is a status, a line and a count, and quotes no secret."""

    class Aborted(Exception):
        pass

    class Context:
        async def abort(self, code: grpc.StatusCode, details: str) -> None:
            raise Aborted(code, details)

    async def certify(_: Request) -> Certified:
        raise RuntimeError(SECRET)

    metrics = Metrics()
    handler = Handler(certify, metrics)
    with pytest.raises(Aborted) as caught:
        asyncio.run(handler.call(b"", cast("Any", Context())))
    assert caught.value.args == (grpc.StatusCode.UNKNOWN, "unexpected error")
    assert "unexpected RuntimeError" in caplog.text
    assert SECRET not in caplog.text
    name = "grpc_server_handled_total"
    unknown = {**CERTIFIES, "grpc_code": "Unknown"}
    assert metrics.registry.get_sample_value(name, unknown) == 1


def test_what_nobody_thought_of_ends_no_watching(
    config: IssuerConfig, api: KubernetesApi, root: CA, tmp_path: Path
) -> None:
    """A poll that fails by a mistake of ours is followed by others."""
    failing = threading.Event()

    def clock() -> dt.datetime:
        if failing.is_set():
            failing.clear()
            raise RuntimeError(SECRET)
        return dt.datetime.now(tz=dt.UTC)

    quick = replace(config, poll_interval=dt.timedelta(milliseconds=10))
    with serving(quick, Outside(clock=clock)) as (port, _), calling(port) as call:
        failing.set()
        while failing.is_set():
            threading.Event().wait(0.01)
        new = root.issuer()
        write_issuer(tmp_path, new, root)
        message = request(api.token("emojivoto", "web"))
        expected = new.certificate.public_bytes(Encoding.DER)
        while call(message).intermediate_certificates[0] != expected:
            pass
