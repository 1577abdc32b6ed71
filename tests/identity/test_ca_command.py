"""``proxy-identity ca``: files, their modes, and what it refuses."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from identity import pem
from identity.cli import root as command
from identity.testing import CA, whole_second
from identity.testing.witness import openssl


def ca(folder: Path, *args: str) -> Result:
    """Run a command in a folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        return CliRunner().invoke(command, ["ca", *args])
    finally:
        os.chdir(before)


def made(folder: Path, *args: str) -> str:
    """Run a command that has to succeed; its output."""
    result = ca(folder, *args)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_two_commands_make_what_the_service_needs(tmp_path: Path) -> None:
    """A root, an issuer below it; openssl verifies; files are the owner's alone."""
    said = made(tmp_path, "root")
    made(tmp_path, "issuer")
    args = ("-CAfile", tmp_path / "ca.crt", tmp_path / "issuer.crt")
    assert openssl("verify", "-x509_strict", *args).strip().endswith("OK")
    names = ["ca.crt", "ca.key", "issuer.crt", "issuer.key"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    for name in names:
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    end = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    until = f"{end.not_valid_after_utc:%Y-%m-%d %H:%M:%S} UTC"
    assert said.splitlines() == [
        "certificate  ca.crt",
        "key          ca.key",
        f"valid until  {until}",
    ]


def test_keys_are_sec1_as_step_writes_them(tmp_path: Path) -> None:
    """Linkerd reads this form: unencrypted P-256, with one newline at the end."""
    made(tmp_path, "root")
    text = (tmp_path / "ca.key").read_text(encoding="ascii")
    assert text.startswith("-----BEGIN EC PRIVATE KEY-----\n")
    assert text.endswith("-----\n")
    assert not text.endswith("\n\n")
    told = openssl("ec", "-in", tmp_path / "ca.key", "-noout", "-text")
    assert "prime256v1" in told


def test_names_and_lifetimes_are_chosen(tmp_path: Path) -> None:
    """The answer for programs says where the files are and when they end."""
    made(tmp_path, "root", "--name", "my root", "--lifetime", "48h")
    said = made(
        tmp_path,
        *("issuer", "--name", "my issuer", "--lifetime", "1h", "--format", "json"),
        *("--cert", "tls.crt", "--key", "tls.key"),
    )
    answer = json.loads(said)
    certificate = x509.load_pem_x509_certificate((tmp_path / "tls.crt").read_bytes())
    assert answer == {
        "certificate": "tls.crt",
        "key": "tls.key",
        "not_after": certificate.not_valid_after_utc.isoformat(),
    }
    assert certificate.subject.rfc4514_string() == "CN=my issuer"
    assert certificate.issuer.rfc4514_string() == "CN=my root"
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert life == dt.timedelta(hours=1)


def test_an_issuer_never_outlives_its_root(tmp_path: Path) -> None:
    """What is asked for beyond the root's end is cut off there."""
    made(tmp_path, "root", "--lifetime", "24h")
    made(tmp_path, "issuer", "--lifetime", "9999h")
    root, issuer = (
        x509.load_pem_x509_certificate((tmp_path / name).read_bytes())
        for name in ("ca.crt", "issuer.crt")
    )
    assert issuer.not_valid_after_utc == root.not_valid_after_utc


def test_nothing_is_replaced_unless_asked_to(tmp_path: Path) -> None:
    """A key that exists may be in use: both files stay, until `--force`."""
    made(tmp_path, "root")
    before = (tmp_path / "ca.key").read_bytes()
    (tmp_path / "ca.crt").unlink()
    result = ca(tmp_path, "root")
    assert result.exit_code == 1
    assert "ca.key: will not replace what exists (--force does)" in result.output
    assert (tmp_path / "ca.key").read_bytes() == before
    assert not (tmp_path / "ca.crt").exists()
    made(tmp_path, "root", "--force")
    assert (tmp_path / "ca.key").read_bytes() != before


def rsa_pem() -> bytes:
    """A key of another kind."""
    return rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def unreadable(root: CA) -> tuple[bytes, bytes]:
    """A certificate of a curve that nobody knows, and its key."""
    der = root.certificate.public_bytes(serialization.Encoding.DER)
    curve = bytes.fromhex("2a8648ce3d030107")
    broken = pem.encode("CERTIFICATE", der.replace(curve, b"*" * len(curve)))
    return broken.encode(), root.key_pem


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        pytest.param("ca.crt", None, "can't read the root", id="no certificate"),
        pytest.param("ca.key", None, "can't read the root", id="no key"),
        pytest.param(
            "ca.crt", b"junk", "ca.crt: expected a certificate in PEM", id="no PEM"
        ),
        pytest.param(
            "ca.key",
            b"s3cret",
            "ca.key: expected a private key in PEM",
            id="no key PEM",
        ),
        pytest.param(
            "ca.key", rsa_pem(), "ca.key: expected an elliptic curve key", id="RSA"
        ),
        pytest.param(
            "ca.key",
            CA().key_pem,
            "ca.crt and ca.key don't belong together",
            id="other",
        ),
    ],
)
def test_a_root_that_can_not_sign_is_told(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    """Each broken file has its message; nothing is written, and no secret shown."""
    made(tmp_path, "root")
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    result = ca(tmp_path, "issuer")
    assert result.exit_code == 1
    assert message in result.output
    assert "s3cret" not in result.output
    assert not list(tmp_path.glob("issuer*"))


@pytest.mark.parametrize(
    ("root", "message"),
    [
        pytest.param(
            CA(not_after=whole_second() - dt.timedelta(hours=1)),
            "has expired",
            id="its life is over",
        ),
        pytest.param(CA().issuer(), "allows 0 authorities below it", id="an issuer"),
        pytest.param(
            unreadable(CA()), "ca.crt: expected a certificate in PEM", id="broken"
        ),
    ],
)
def test_a_root_whose_issuers_nobody_would_trust_makes_none(
    tmp_path: Path, root: CA | tuple[bytes, bytes], message: str
) -> None:
    """Better told now than by the service that is to use it."""
    crt, key = (root.pem, root.key_pem) if isinstance(root, CA) else root
    (tmp_path / "ca.crt").write_bytes(crt)
    (tmp_path / "ca.key").write_bytes(key)
    result = ca(tmp_path, "issuer")
    assert result.exit_code == 1
    assert message in result.output
    assert not list(tmp_path.glob("issuer*"))


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(["root", "--lifetime", "1d"], id="days are not Go's"),
        pytest.param(["root", "--lifetime", "0"], id="no life at all"),
        pytest.param(["root", "--lifetime", "99999999h"], id="beyond the year 9999"),
        pytest.param(["root", "--name", ""], id="no name"),
        pytest.param(["root", "--name", "a" * 65], id="a name too long for X.509"),
        pytest.param(
            ["issuer", "--name", "root.linkerd.cluster.local"], id="the root's name"
        ),
    ],
)
def test_mistakes_exit_with_2_and_write_nothing(
    tmp_path: Path, args: Sequence[str]
) -> None:
    """Usage errors have their own exit code."""
    if args[0] == "issuer":
        made(tmp_path, "root")
    before = sorted(tmp_path.iterdir())
    assert ca(tmp_path, *args).exit_code == 2
    assert sorted(tmp_path.iterdir()) == before


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    """Whoever corrects a command line does it once."""
    result = ca(tmp_path, "root", "--name", "", "--lifetime=1d", "--nope", "--format=x")
    assert result.exit_code == 2
    assert "Error: 4 mistakes" in result.output
    for option in ("--name", "--lifetime", "--nope", "--format"):
        assert f"'{option}'" in result.output


def test_a_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    """What can't be written is an error of one line, and leaves nothing behind."""
    result = ca(tmp_path, "root", "--cert", "ca.crt", "--key", "none/ca.key")
    assert result.exit_code == 1
    assert "can't write" in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        pytest.param(
            ("root", "--cert", "a", "--key", "./a"), "--cert and --key", id="root"
        ),
        pytest.param(
            ("issuer", "--cert", "link"), "--cert and --ca", id="over the root"
        ),
        pytest.param(
            ("issuer", "--key", "ca.key"), "--key and --ca-key", id="over its key"
        ),
    ],
)
def test_no_file_is_written_over_another(
    tmp_path: Path, arguments: Sequence[str], options: str
) -> None:
    """Not even with --force, which is meant for what was there before."""
    made(tmp_path, "root")
    (tmp_path / "link").symlink_to("ca.crt")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    result = ca(tmp_path, *arguments, "--force")
    assert result.exit_code == 2
    assert f"{options} are the same file" in result.output
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_example_is_shown_as_it_is_typed(tmp_path: Path) -> None:
    """Its lines are commands, and not a paragraph."""
    lines = [line.strip() for line in made(tmp_path, "--help").splitlines()]
    assert "proxy-identity ca root --cert ca.crt --key ca.key" in lines
    assert "proxy-identity ca issuer --ca ca.crt --ca-key ca.key \\" in lines
