"""The installed program, and other tools, run in a namespace to success."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from proxyinit.lab import Namespace

PROGRAM = str(Path(sys.executable).with_name("proxy-init"))


def sh(namespace: Namespace, script: str) -> str:
    """Run a script to success; what it printed."""
    done = namespace.exec(["sh", "-ec", script])
    assert done.returncode == 0, f"{script}: {done.stderr}"
    return done.stdout


def install(namespace: Namespace, *arguments: str, mode: str = "") -> str:
    """Run proxy-init to success, in its default mode or another; what it logged."""
    chosen = ["--iptables-mode", mode] if mode else []
    done = namespace.exec([PROGRAM, *arguments, *chosen])
    assert done.returncode == 0, done.stderr
    return done.stderr


def printed(namespace: Namespace, *argv: str) -> str:
    """What a program prints, without comments and with counters at zero."""
    done = namespace.exec(argv)
    assert done.returncode == 0, done.stderr
    return re.sub(r"\[\d+:\d+\]", "[0:0]", re.sub(r"(?m)^#.*\n", "", done.stdout))
