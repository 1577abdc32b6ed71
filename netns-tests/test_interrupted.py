"""Ctrl-C in the middle of an install: what is said to be put back is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxyinit.lab import Namespace

PROGRAM = str(Path(sys.executable).with_name("proxy-init"))
ARGUMENTS = ("-p", "4143", "-o", "4140", "-u", "2102", "--lock-wait-secs", "1")
NAMES = ("iptables", "ip6tables")
AT_WORK = """#!/bin/sh
{program} "$@" || exit
[ -e {pipe} ] || exit 0
echo done >{pipe}
rm {pipe}
exec sleep 60
"""
"""A program that has done its work and, the first time, does not end."""


def rules(namespace: Namespace, mode: str) -> list[int]:
    """How many lines of each family's table are about our chains."""
    dumps = (namespace.exec([f"{n}-{mode}-save", "-t", "nat"]).stdout for n in NAMES)
    return [dump.count("PROXY_INIT_") for dump in dumps]


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    """What the program that does not end tells of its work by."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    yield path
    path.unlink(missing_ok=True)


def interrupted(
    namespace: Namespace, folder: Path, pipe: Path, program: str, *argv: str
) -> tuple[int, str]:
    """The exit code and the log of a run, interrupted when `program` has written."""
    for path in Path("/usr/sbin").glob("*tables-*"):
        (folder / path.name).symlink_to(path)
    (folder / program).unlink()
    text = AT_WORK.format(program=f"/usr/sbin/{program}", pipe=pipe)
    (folder / program).write_text(text)
    (folder / program).chmod(0o755)
    command = [
        *("ip", "netns", "exec", namespace.name),
        *("env", "--default-signal=INT", f"PATH={folder}:{os.environ['PATH']}"),
        *(PROGRAM, *argv),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        pipe.read_text()
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
    return process.returncode, said


@pytest.mark.parametrize("family", NAMES)
def test_an_install(
    namespace: Namespace, iptables_mode: str, tmp_path: Path, pipe: Path, family: str
) -> None:
    """No rule is left of either family, no program at work, and the next run goes."""
    folder = tmp_path / "sbin"
    folder.mkdir()
    install = (*ARGUMENTS, "--iptables-mode", iptables_mode)

    code, said = interrupted(
        namespace, folder, pipe, f"{family}-{iptables_mode}-restore", *install
    )

    assert code == 130
    assert said.count("put back what was there before") == NAMES.index(family) + 1
    assert rules(namespace, iptables_mode) == [0, 0]
    again = namespace.exec([PROGRAM, *install])
    assert again.returncode == 0, again.stderr


def test_a_cleanup(namespace: Namespace, tmp_path: Path, pipe: Path) -> None:
    """What is gone stays gone, and nothing else is claimed."""
    folder = tmp_path / "sbin"
    folder.mkdir()
    assert namespace.exec([PROGRAM, *ARGUMENTS]).returncode == 0

    code, said = interrupted(
        namespace, folder, pipe, "iptables-legacy-restore", "cleanup"
    )

    assert (code, rules(namespace, "legacy")) == (130, [0, 8])
    assert "put back" not in said
