"""openssl as an independent witness of certificates."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding


def openssl(*args: str | Path) -> str:
    """What an openssl command prints; it must succeed."""
    run = subprocess.run(
        ["openssl", *map(str, args)],  # noqa: S607  (wherever it is installed)
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        raise AssertionError(run.stderr + run.stdout)
    return run.stdout


def as_text(certificate: x509.Certificate, folder: Path) -> str:
    """A certificate as openssl reads it."""
    path = folder / "one.pem"
    path.write_bytes(certificate.public_bytes(Encoding.PEM))
    return openssl("x509", "-in", path, "-noout", "-text")


def section(text: str, heading: str) -> str:
    """The line after an extension's heading, behind the heading's `critical`."""
    lines = [line.strip() for line in text.splitlines()]
    at = next(i for i, line in enumerate(lines) if line.startswith(heading))
    return lines[at].removeprefix(heading).strip(" :") + "|" + lines[at + 1]
