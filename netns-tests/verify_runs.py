"""Installing in a namespace, running verify there, and reading its answer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from installed import PROGRAM

from proxyinit.lab import PROXY_UID, Namespace

ARGUMENTS = ("-p", "4143", "-o", "4140", "-u", str(PROXY_UID))


def install(namespace: Namespace, mode: str, *arguments: str) -> str:
    argv = [PROGRAM, *(arguments or ARGUMENTS), "--iptables-mode", mode]
    done = namespace.exec(argv)
    assert done.returncode == 0, done.stderr
    return done.stderr


def execute(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program in this process's own namespace."""
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def verify(*argv: str, inside: Namespace | None = None) -> tuple[int, dict[str, Any]]:
    """The exit code, and the document that --format json prints."""
    command = [PROGRAM, "verify", "--format", "json", *argv]
    run = inside.exec if inside else execute
    done = run(command)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def only(document: dict[str, Any]) -> dict[str, Any]:
    (found,) = document["namespaces"]
    return dict(found)


def states(found: dict[str, Any], name: str) -> list[str]:
    return [check["state"] for check in found["checks"] if check["name"] == name]
