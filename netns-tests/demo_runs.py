"""The demo as its users start it, and what it left behind."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from proxyinit.lab import Namespace

DEMO = [sys.executable, "-m", "proxyinit.demo"]
NAMESPACES = Path("/var/run/netns")
LIMIT_S = 60
WEB = "web.shop.serviceaccount.identity.linkerd.cluster.local"


@dataclass(frozen=True)
class Run:
    """A demo that has ended; its pid names its namespaces and its session."""

    pid: int
    status: int
    stdout: str
    stderr: str


def run(argv: Sequence[str], *, inside: Namespace | None = None) -> Run:
    """Start a demo, in a session of its own, and wait for its end."""
    with start(argv, inside=inside) as process:
        stdout, stderr = process.communicate(timeout=LIMIT_S)
    return Run(process.pid, process.returncode, stdout, stderr)


@contextlib.contextmanager
def start(
    argv: Sequence[str], *, inside: Namespace | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A demo that runs; whatever happens it does not outlive the test."""

    def popen() -> subprocess.Popen[str]:
        return subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    process = inside.run(popen) if inside else popen()
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        with contextlib.suppress(ValueError):  # a test has closed the pipes
            process.communicate()


def left_by(pid: int) -> list[str]:
    """Namespaces and processes of a demo that has ended."""
    ours = f"proxyinit-{pid}-*"
    names = [path.name for path in NAMESPACES.glob(ours)]
    names += map(str, Path(tempfile.gettempdir()).glob(ours))
    return names + [stat.partition(" ")[2] for stat in stats() if session(stat) == pid]


def stats() -> Iterator[str]:
    """/proc/PID/stat of every process."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # ended meanwhile
            yield path.read_text()


def session(stat: str) -> int:
    """The session of a process, by its /proc/PID/stat (man proc)."""
    return int(stat.rpartition(")")[2].split()[3])
