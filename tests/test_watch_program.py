"""`proxy-init watch` as a program: how it is started, and how it starts verify."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from proxyinit.cli import root
from proxyinit.errors import ProxyInitError
from proxyinit.verify.watch_cli import look

SCRIPT = str(Path(sys.executable).with_name("proxy-init"))
PATIENCE_S = 30


def free_port() -> int:
    """A port that nobody has at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def metrics(port: int, process: subprocess.Popen[str]) -> str:
    """What is served once there is an outcome."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            url = f"http://127.0.0.1:{port}/metrics"
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                text: str = answer.read().decode()
                return text
        except (urllib.error.URLError, ConnectionError):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)  # nothing tells of its start but an answer


@pytest.mark.parametrize(
    "command",
    [
        pytest.param((SCRIPT,), id="by its name"),
        pytest.param((sys.executable, "-m", "proxyinit"), id="as a module"),
    ],
)
def test_it_finds_verify(command: tuple[str, ...]) -> None:
    """However it was called, what verify finds is served."""
    port = free_port()
    argv = [*command, "watch", "--addr", f"127.0.0.1:{port}", "--interval", "1"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        try:
            served = metrics(port, process)
        finally:
            process.terminate()
            said = process.communicate()[1]

    assert "proxyinit_verify_duration_seconds " in served
    assert (process.returncode, said) == (0, "")


def test_a_verify_that_can_not_be_started_ends_nothing() -> None:
    """It is said, like any other answer that does not come."""
    with pytest.raises(ProxyInitError, match="can't start /etc/passwd: Permission"):
        look(program=("/etc/passwd",))


def test_help_shows_addresses_as_they_are_typed() -> None:
    """The default can be typed as it is shown; verify's flags may all be left out."""
    runner = CliRunner()
    watch = runner.invoke(root, ["watch", "--help"]).output

    assert "(default: :4194)" in " ".join(watch.split())
    for command in ("verify", "explain"):
        shown = runner.invoke(root, [command, "--help"]).output
        (entry,) = (part for part in shown.split("  -") if "p, --incoming" in part)
        assert "required" not in entry
