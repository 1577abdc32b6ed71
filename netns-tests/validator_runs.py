"""Running network-validator in a pod, and the reason that it tells."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from proxyinit.lab import Lab

VALIDATOR = [sys.executable, "-m", "proxyinit.validator", "--log-format=json"]
PORT = 20001
LISTEN = "--listen-addr=[::]:4140"
GIVEN_UP = (
    "Failed to validate networking configuration. "
    "Please ensure iptables rules are rewriting traffic as expected."
)

UNPRIVILEGED = [
    *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
    *("--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"),
]
"""As the pod runs it: before a command line, user 65534 without any capability."""


def at(host: str, port: int = PORT) -> str:
    """An address as the command line takes it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True)
class Told:
    """The exit code, and the fields of every line at its level."""

    status: int
    errors: list[Mapping[str, str]]
    warnings: list[Mapping[str, str]]


def run(lab: Lab, *argv: str, timeout: str = "100ms") -> Told:
    done = lab.pod.exec([*VALIDATOR, "--timeout", timeout, LISTEN, *argv])
    return told(done.returncode, done.stderr)


def told(status: int, stderr: str) -> Told:
    lines = [json.loads(line) for line in stderr.splitlines()]
    levels: dict[str, list[Mapping[str, str]]] = {"ERROR": [], "WARN": []}
    for line in lines:
        levels.setdefault(line["level"], []).append(line["fields"])
    return Told(status, levels["ERROR"], levels["WARN"])


def failure(found: Told, *, timeout: str = "100ms") -> Mapping[str, str]:
    """The one reason of a run that failed, told before upstream's last line."""
    assert found.status == 95
    reason, last = found.errors
    assert last == {"message": GIVEN_UP, "timeout": timeout}
    return reason


def command(lab: Lab, *argv: str) -> None:
    """Run in the pod; it must succeed."""
    done = lab.pod.exec(argv)
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def started(lab: Lab, argv: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A program in the pod; killed with its children if the test does not end it."""
    with lab.pod.run(
        lambda: subprocess.Popen(
            argv, stderr=subprocess.PIPE, text=True, process_group=0
        )
    ) as program:
        try:
            yield program
            program.wait(30)
        finally:
            program.kill()
