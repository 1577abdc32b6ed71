"""The program from outside: help, version, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import proxyinit
from proxyinit.flags import CLEANUP_FLAGS, INSTALL_FLAGS
from proxyinit.pflag import Flag

PROGRAM = str(Path(sys.executable).with_name("proxy-init"))


def run(*argv: str, program: tuple[str, ...] = (PROGRAM,)) -> str:
    """The standard output of a run that must succeed and say nothing else."""
    result = subprocess.run(
        [*program, *argv],
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        check=True,
        text=True,
    )
    assert result.stderr == ""
    return result.stdout


def test_version() -> None:
    """The program, the module and the package agree."""
    said = f"proxy-init {proxyinit.__version__}\n"

    assert run("--version") == said
    module = (sys.executable, "-m", "proxyinit")
    assert run("--version", program=module) == said


@pytest.mark.parametrize(
    ("argv", "flags"),
    [
        (("--help",), INSTALL_FLAGS),
        (("-h",), INSTALL_FLAGS),
        (("-p", "0", "--nothing", "--help"), INSTALL_FLAGS),
        (("cleanup", "--help"), CLEANUP_FLAGS),
        (("cleanup", "-h"), CLEANUP_FLAGS),
    ],
    ids=lambda value: " ".join(value) if isinstance(value[0], str) else "",
)
def test_help(argv: tuple[str, ...], flags: tuple[Flag, ...]) -> None:
    """Every flag is there, with its short form, its placeholder and its text."""
    said = run(*argv)
    unwrapped = "".join(said.split())  # lines may break within a flag's name

    for flag in flags:
        short = f"-{flag.short}, " if flag.short else ""
        value = "[=true|false]" if flag.is_bool else f" {flag.metavar}"
        for text in (f"{short}--{flag.name}{value}", flag.help):
            assert "".join(text.split()) in unwrapped


def test_help_names_every_command() -> None:
    """The page of the program leads to those of its commands."""
    said = run("--help")

    assert "cleanup" in said.partition("Commands:")[2]
    assert "proxy-init --incoming-proxy-port 4143" in said


def test_help_of_the_other_command_hides_flags_it_does_not_take() -> None:
    """Cleanup has no ports."""
    assert "--incoming-proxy-port" not in run("cleanup", "--help")


def test_no_usage_after_a_failure_at_run_time(tmp_path: Path) -> None:
    """One error line with the cause; the usage text would only hide it."""
    for name in ("iptables-legacy-save", "iptables-legacy-restore"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'it broke' >&2\nexit 3\n")
        (tmp_path / name).chmod(0o755)
    command = [PROGRAM, "-p4143", "-o4140", "-u1", "--ipv6=false"]
    result = subprocess.run(
        command,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        check=False,
        text=True,
    )

    assert result.returncode == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert " level=error " in line
    assert 'stderr="it broke\\n"' in line
    assert "Usage" not in result.stderr
