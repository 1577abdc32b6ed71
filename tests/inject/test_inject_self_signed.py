"""A certificate of the webhook's own making, and who trusts it."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from identity.issuer.errors import ApiError
from proxyinit.inject import self_signed
from proxyinit.inject.api import Conflict
from proxyinit.inject.serve import OwnCertificate
from proxyinit.inject.testing import Caller, Cluster, pod, review
from tests.inject.program import Program

NOW = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)


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
