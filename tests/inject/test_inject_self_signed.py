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
from proxyinit.inject.serve import LOOKED_AT_EVERY, OwnCertificate
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


def authority(age: dt.timedelta = dt.timedelta()) -> x509.Certificate:
    """An authority that is so old."""
    return self_signed.generate("linkerd", NOW - age).authority


def test_bundles_do_not_grow_for_ever() -> None:
    """What has expired goes; ours stays, and of the others the newest."""
    others = [authority(dt.timedelta(days=n)) for n in range(20)]
    expired = authority(2 * self_signed.LIFETIME)
    own = authority(dt.timedelta(days=30))
    kept = x509.load_pem_x509_certificates(
        self_signed.bundle([expired, *others, own], own, NOW)
    )

    assert len(kept) == self_signed.MOST_KEPT
    assert set(kept) == {own, *others[: self_signed.MOST_KEPT - 1]}


def test_whoever_writes_a_bundle_writes_the_same() -> None:
    """Replicas leave each other's bundles as they are."""
    both = [authority(), authority()]

    assert self_signed.bundle(both, both[0], NOW) == self_signed.bundle(
        both[::-1], both[1], NOW
    )


class Bundle:
    """An API server with nothing but the caBundle of one webhook."""

    def __init__(self) -> None:
        self.encoded = ""
        self.down = False
        self.writes = 0

    @property
    def trusted(self) -> list[x509.Certificate]:
        """The authorities in it."""
        return x509.load_pem_x509_certificates(base64.b64decode(self.encoded))

    def get(self, path: str) -> dict[str, object]:
        """The configuration."""
        if self.down:
            raise ApiError(path)
        webhook = {"clientConfig": {"caBundle": self.encoded}}
        return {"metadata": {"resourceVersion": "1"}, "webhooks": [webhook]}

    def merge(self, _path: str, patch: Mapping[str, Any]) -> None:
        """Change it."""
        self.writes += 1
        self.encoded = patch["webhooks"][0]["clientConfig"]["caBundle"]


def test_a_certificate_of_ones_own_is_renewed() -> None:
    """In good time, and not before the API server trusts the new one."""
    now = [NOW]
    bundle = Bundle()
    own = OwnCertificate(bundle, "linkerd", lambda: now[0])
    first = own()
    now[0] = NOW + self_signed.RENEWED_AFTER - dt.timedelta(seconds=1)
    assert own() == first
    now[0] = NOW + self_signed.RENEWED_AFTER
    bundle.down = True
    with pytest.raises(self_signed.BundleRefused):
        own()
    bundle.down = False
    second = own()

    assert own() == second
    assert first.chain != second.chain
    assert len(bundle.trusted) == 2, "the old one for as long as it is valid"
    for pair, root in zip((first, second), bundle.trusted, strict=True):
        x509.load_pem_x509_certificate(pair.chain).verify_directly_issued_by(root)


def test_a_bundle_that_others_have_overwritten() -> None:
    """Who is trusted no more is trusted again within a minute."""
    now = [NOW]
    bundle = Bundle()
    own = OwnCertificate(bundle, "linkerd", lambda: now[0])
    pair = own()
    (trusted,) = bundle.trusted
    now[0] += LOOKED_AT_EVERY
    assert (own(), bundle.writes) == (pair, 1), "nothing to write"

    bundle.encoded = ""
    assert (own(), bundle.writes) == (pair, 1), "nobody looks yet"
    now[0] += LOOKED_AT_EVERY
    assert (own(), bundle.writes) == (pair, 2)
    assert bundle.trusted == [trusted]


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
