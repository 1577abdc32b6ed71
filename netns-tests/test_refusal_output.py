"""Output that nobody takes stops nothing: the rules matter, the log does not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest
from installed import PROGRAM

from proxyinit import reconcile
from proxyinit.lab import Namespace
from proxyinit.lab.tables import live, versions_of

ARGUMENTS = ("-p", "4143", "-o", "4140", "-u", "2102")


def jumps(namespace: Namespace, mode: str) -> set[int]:
    """How many jumps to our chains each table of the mode has."""
    tables = [live(namespace, mode, version) for version in versions_of(mode)]
    return {len(list(reconcile.jumps(table))) for table in tables}


@pytest.fixture
def broken_pipe() -> Iterator[int]:
    """A pipe that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def test_broken_pipe_on_stderr(
    namespace: Namespace, mode: str, broken_pipe: int
) -> None:
    """As in ``proxy-init 2>&1 | head -1``: both families are installed, and removed."""
    target = ("--netns", namespace.path)
    install = [PROGRAM, *ARGUMENTS, "--iptables-mode", mode, *target]
    assert subprocess.run(install, stderr=broken_pipe, check=False).returncode == 0
    assert jumps(namespace, mode) == {2}
    cleanup = [PROGRAM, "cleanup", *target]
    assert subprocess.run(cleanup, stderr=broken_pipe, check=False).returncode == 0
    assert jumps(namespace, mode) == {0}


@pytest.mark.parametrize(
    "redirection",
    [
        pytest.param("2>&-", id="stderr closed"),
        pytest.param("<&- >&- 2>&-", id="all three closed"),
        pytest.param("2>/dev/full", id="stderr on a full disk"),
    ],
)
def test_stderr_that_takes_nothing(
    namespace: Namespace, mode: str, redirection: str
) -> None:
    """Both families are installed although no line can be written."""
    script = f'"$@" {redirection}'
    argv = ["sh", "-c", script, "sh", PROGRAM, *ARGUMENTS, "--iptables-mode", mode]
    assert namespace.exec(argv).returncode == 0
    assert jumps(namespace, mode) == {2}


def test_broken_pipe_on_stdout_of_a_simulation(
    namespace: Namespace, broken_pipe: int
) -> None:
    """As in ``proxy-init --simulate | head -1``: no traceback."""
    argv = [PROGRAM, *ARGUMENTS, "--simulate", "--netns", namespace.path]
    done = subprocess.run(
        argv, stdout=broken_pipe, stderr=subprocess.PIPE, text=True, check=False
    )
    assert "Traceback" not in done.stderr
