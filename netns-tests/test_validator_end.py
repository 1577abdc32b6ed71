"""network-validator when its time is over, or it is told to end."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from validator_runs import VALIDATOR, at, failure, run, started, told

from proxyinit.lab import CLIENT, Lab


def test_the_timeout_is_kept(bare: Lab) -> None:
    """It ends when the time is over, however long one connection would take."""
    start = time.monotonic()
    found = run(bare, "--connect-addr", at(CLIENT[4], 9), timeout="1100ms")
    assert failure(found, timeout="1.1s")
    assert time.monotonic() - start >= 1.1


def test_no_connection_outlives_the_timeout(bare: Lab, tmp_path: Path) -> None:
    """Nobody answers, and what the program waits for is never more than is left."""
    calls = tmp_path / "calls"
    strace = ["strace", "-o", str(calls), "-e", "trace=poll"]
    done = bare.pod.exec([*strace, *VALIDATOR, "--timeout=100ms"])
    assert failure(told(done.returncode, done.stderr))
    waits = re.findall(r"POLLIN.*\}\], \d+, (-?\d+)\)", calls.read_text())
    assert waits
    assert all(0 <= int(wait) <= 100 for wait in waits)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(bare: Lab, number: signal.Signals) -> None:
    """At once, with upstream's line and exit code, as process 1 of a container too."""
    unshare = ["unshare", "--pid", "--fork", "--kill-child"]
    argv = [*unshare, *VALIDATOR, "--timeout=1d", "--connect-addr", at(CLIENT[4], 9)]
    with started(bare, argv) as program:
        assert program.stderr
        assert any("Not redirected yet" in line for line in program.stderr)
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
        (child,) = children.read_text(encoding="ascii").split()
        subprocess.run(["kill", f"-{number.name[3:]}", child], check=True)
        program.wait(30)
        rest = program.stderr.read()
    assert told(95, rest).errors == [{"message": f"Killed by {number.name}"}]
    assert program.returncode == 95
