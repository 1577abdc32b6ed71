"""What network-validator costs a pod that is redirected, against a bare interpreter.

Whole processes, started in turn in one namespace of one run, as in `interception`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from interception import DEFAULT_ARGS, PAIRS, PROGRAM, Row, compare, spawn

from proxyinit import validator
from proxyinit.lab import Lab

TARGET = 3.0
"""Times what an interpreter takes that does nothing."""
BARE = [sys.executable, "-I", "-S", "-c", "pass"]
LAUNCHER = str(Path(validator.__file__).with_name("launcher.py"))
OURS = [sys.executable, LAUNCHER]
BOTH = ["--connect-addr", "192.0.2.2:1404,[2001:db8::2]:1404"]
CHART = ["--log-format", "plain", "--log-level", "debug", "--timeout", "10s"]


def rows() -> Iterator[Row]:
    """Every figure of network-validator."""
    with Lab() as lab:
        spawn(lab.pod, [PROGRAM, *DEFAULT_ARGS, "--iptables-mode", "nft"])
        yield _start(lab, "network-validator, whole process", [])
        arguments = [*CHART, *BOTH]
        yield _start(lab, "network-validator, IPv4 and IPv6, debug lines", arguments)


def _start(lab: Lab, what: str, arguments: list[str]) -> Row:
    ours = [*OURS, *arguments]
    spawn(lab.pod, ours)
    spawn(lab.pod, BARE)
    found = [(spawn(lab.pod, ours), spawn(lab.pod, BARE)) for _ in range(PAIRS)]
    title = f"{what}, against the interpreter's bare start"
    return compare(title, found, TARGET, ("ours", "bare"))
