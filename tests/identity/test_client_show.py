"""`show`: what is in a directory, for people and for programs."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from identity import directory, keys
from identity.cli import root as command
from identity.config import Config, Service
from identity.credentials import Answer
from identity.errors import DirectoryUnusable
from identity.show import Report, examine
from identity.show_cli import panel
from identity.store import Disk
from identity.testing import CA, Leaf, whole_second
from identity.trust import Anchors, accept
from identity.variables import DIRECTORY, MAX_REFRESH, MIN_REFRESH

NAME = "web.emojivoto.serviceaccount.identity.linkerd.cluster.local"
NOW = whole_second()
DAY = dt.timedelta(days=1)
ROOT = CA()
ISSUER = ROOT.issuer()
ANCHORS = Anchors.parse(ROOT.pem.decode())
KEY = keys.generate()


def publish(folder: Path, leaf: Leaf | None = None) -> Config:
    """A directory as `run` leaves it."""
    made = leaf or ISSUER.leaf(NAME, key=KEY, not_after=NOW + DAY)
    config = Config(
        directory=str(folder),
        name=NAME,
        anchors=ANCHORS,
        token_file="",
        service=Service(host="localhost.", port=1),
    )
    answer = Answer(
        leaf_der=made.der,
        intermediates_der=made.chain_der,
        valid_until=made.certificate.not_valid_after_utc,
    )
    credential = accept(answer, key=KEY, name=NAME, anchors=ANCHORS, now=NOW)
    directory.load_pair(config, disk=Disk(), generate=lambda: KEY)
    directory.publish(config, credential, disk=Disk())
    return config


def show(*arguments: str, env: dict[str, str] | None = None) -> Result:
    """The command as people call it."""
    return CliRunner(env={"COLUMNS": "200", **(env or {})}).invoke(
        command, ["show", *arguments]
    )


def test_a_directory_in_order(tmp_path: Path) -> None:
    """Who, by whom, until when, renewal when; key and chain fit; exit 0."""
    publish(tmp_path)
    ran = show(str(tmp_path), "--format", "json")
    report = json.loads(ran.stdout)
    assert ran.exit_code == 0
    assert report["names"] == [NAME]
    assert report["requested"] == NAME
    assert report["issuer"] == "CN=identity.linkerd.cluster.local"
    assert report["not_after"] == (NOW + DAY).isoformat().replace("+00:00", "Z")
    assert report["key_matches"] is True
    assert report["chain_verifies"] is True
    assert report["problems"] == []
    renewal = dt.datetime.fromisoformat(report["renewal"])
    assert abs(renewal - NOW - DAY * 0.7) < dt.timedelta(minutes=2)


def test_a_panel_for_people(tmp_path: Path) -> None:
    """The same in words; the directory may come from the environment."""
    publish(tmp_path)
    ran = show(env={DIRECTORY: str(tmp_path)})
    assert ran.exit_code == 0
    for text in (NAME, "issued by", "identity.linkerd.cluster.local", "UTC, in 16:4"):
        assert text in ran.stdout
    assert "matches" in ran.stdout
    assert "verifies" in ran.stdout
    assert "PRIVATE" not in ran.stdout


def rsa_key() -> bytes:
    """A key of another kind, PEM."""
    return rsa.generate_private_key(65537, 2048).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )


def write(name: str, data: bytes) -> Callable[[Path], object]:
    """Replaces a file of the current set."""
    return lambda folder: (folder / name).write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        pytest.param(
            write("tls.key", ISSUER.leaf(NAME).key_pem),
            "tls.key is not the key of tls.crt",
            id="another key",
        ),
        pytest.param(
            write("tls.key", rsa_key()),
            "tls.key is not the key of tls.crt",
            id="another kind of key",
        ),
        pytest.param(
            write("tls.key", b"junk"), "tls.key is no private key in PEM", id="no key"
        ),
        pytest.param(
            lambda folder: (folder / "tls.key").resolve().unlink(),
            "tls.key is missing",
            id="key missing",
        ),
        pytest.param(
            lambda folder: (folder / "ca.crt").resolve().unlink(),
            "ca.crt is missing",
            id="anchors missing",
        ),
        pytest.param(
            write("ca.crt", b"junk"),
            "ca.crt: not a PEM certificate: there is no BEGIN line",
            id="no anchors",
        ),
        pytest.param(
            write("ca.crt", CA().pem),
            "the certificate does not lead to the trust anchors: ",
            id="other anchors",
        ),
        pytest.param(
            write("tls.crt", b"junk"), "tls.crt can't be read: ", id="no certificate"
        ),
        pytest.param(
            write("tls.crt", b"\xff"), "tls.crt can't be read: ", id="not even text"
        ),
        pytest.param(
            lambda folder: (folder / "tls.crt").resolve().unlink(),
            "there is no certificate yet: run proxy-identity certify, or run",
            id="not certified",
        ),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path, damage: Callable[[Path], object], problem: str
) -> None:
    """Each problem has its own words, for people and for programs; exit 1."""
    publish(tmp_path)
    damage(tmp_path)
    ran = show(str(tmp_path), "--format", "json")
    (said,) = json.loads(ran.stdout)["problems"]
    assert said.startswith(problem)
    assert ran.exit_code == 1
    people = show(str(tmp_path))
    assert people.exit_code == 1
    assert problem.split(":", maxsplit=1)[0] in people.stdout


def test_an_expired_certificate(tmp_path: Path) -> None:
    """Later it is expired, and the renewal is overdue."""
    publish(tmp_path)
    later = NOW + 2 * DAY
    report = examine(str(tmp_path), later)
    (problem,) = report.problems
    assert problem.startswith("the certificate expired at ")
    assert report.chain_verifies is False
    assert report.key_matches is True
    assert panel(report, later).border_style == "red"


def test_before_the_first_certificate(tmp_path: Path) -> None:
    """After the bootstrap alone, the name that is asked for is known."""
    publish(tmp_path)
    for name in ("tls.key", "tls.crt", "ca.crt", "..data"):
        (tmp_path / name).unlink()
    report = examine(str(tmp_path), NOW)
    assert (report.requested, report.names) == (NAME, ())
    assert NAME in show(str(tmp_path)).stdout


def test_no_directory(tmp_path: Path) -> None:
    """Missing, or not named at all: told, with what to do."""
    with pytest.raises(DirectoryUnusable):
        examine(str(tmp_path / "gone"), NOW)
    ran = show(str(tmp_path / "gone"))
    assert ran.exit_code == 1
    assert "mount a volume there" in ran.stderr
    ran = show(env={DIRECTORY: ""})
    assert ran.exit_code == 2
    assert f"give DIR, or set {DIRECTORY}" in ran.stderr


def test_names_that_are_longer_than_a_subject_should_be(tmp_path: Path) -> None:
    """Identities of more than 64 characters are shown without complaint."""
    publish(tmp_path)
    request = keys.csr_der(KEY, "a" * 63 + "." + "b" * 63)
    (tmp_path / "csr.der").write_bytes(request)
    assert examine(str(tmp_path), NOW).requested == "a" * 63 + "." + "b" * 63


def test_every_fact_is_in_the_json() -> None:
    """Programs get every field; instants as RFC 3339."""
    report = Report(directory="/d", not_after=dt.datetime(2026, 1, 2, tzinfo=dt.UTC))
    told = replace(report, problems=("x",)).as_json()
    assert told["not_after"] == "2026-01-02T00:00:00Z"
    assert set(told) == set(Report.__slots__)


def test_the_renewal_is_that_of_the_configured_bounds(tmp_path: Path) -> None:
    """`show` tells what `run` will do with the same environment."""
    publish(tmp_path)

    ran = show(str(tmp_path), "--format", "json", env={MAX_REFRESH: "1h"})

    told = json.loads(ran.stdout)
    made = dt.datetime.fromisoformat(told["renewal"]) - dt.timedelta(hours=1)
    assert abs(made - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=5)


def test_bounds_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    """As `run` refuses them, with the variable's name."""
    publish(tmp_path)

    ran = show(str(tmp_path), env={MIN_REFRESH: "soon"})

    assert ran.exit_code == 2
    assert MIN_REFRESH in ran.stderr
