"""What verify prints reaches the reader whole, and steers nobody's terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from proxyinit.verify import report
from proxyinit.verify.checks import FAIL, Check
from proxyinit.verify.discover import Identity, Target
from proxyinit.verify.node import Report
from proxyinit.verify.verdict import Judgement

PROGRAM = str(Path(sys.executable).with_name("proxy-init"))
EVIL = "a\x1b[2Jb\x07\udcff"
SHOWN = r"a\x1b[2Jb\x07\udcff"
STRANGE = Report(
    Target("/proc/7/ns/net", 1, (7,)),
    Identity(EVIL, EVIL, "", 7, EVIL),
    Judgement("nft", None, None, (Check("rules", FAIL, EVIL, "mend it"),)),
)
FORMATS = [
    pytest.param((), id="text of one"),
    pytest.param(("--format=json",), id="JSON"),
    pytest.param(("--all",), id="text of all"),
]


def verify(stdout: int, *argv: str) -> tuple[int, str]:
    """The exit code of a run in this test's own namespace, and its errors."""
    done = subprocess.run(
        [PROGRAM, "verify", *argv],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("argv", FORMATS)
def test_a_full_disk_is_told(argv: tuple[str, ...]) -> None:
    """An answer that nobody gets is none: exit code 1, one sentence."""
    full = os.open("/dev/full", os.O_WRONLY)
    code, said = verify(full, *argv)
    os.close(full)

    assert code == 1
    assert said == (
        "Error: could not tell: can't print the answer: No space left on device\n"
    )


@pytest.mark.parametrize("argv", FORMATS)
def test_who_stops_reading_changes_no_verdict(argv: tuple[str, ...]) -> None:
    """The exit code is the namespace's, whether or not all of it is read."""
    away, pipe = os.pipe()
    os.close(away)
    answered, said = verify(pipe, *argv)
    os.close(pipe)
    expected, _ = verify(subprocess.DEVNULL, *argv)

    assert (answered, said) == (expected, "")


def test_names_and_rules_of_others_steer_no_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Host names, command lines and comments are anybody's: they come escaped."""
    report.print_one(STRANGE)
    one = capfd.readouterr().out
    report.print_all([STRANGE], hidden=0, others=0)
    everyone = capfd.readouterr().out

    assert one == (
        f"{SHOWN}, {SHOWN}: differs\n"
        f"FAIL  rules  {SHOWN}\n"
        "             -> mend it\n"
    )  # fmt: skip
    assert everyone.splitlines()[0] == f"FAIL  {SHOWN}  7  iptables-nft  rules: {SHOWN}"


def test_what_a_program_said_keeps_its_lines(capfd: pytest.CaptureFixture[str]) -> None:
    """Several lines of stderr stay several below each other, and one in the list."""
    check = Check("readable", FAIL, "two\nlines", "mend it")
    lined = replace(STRANGE, judgement=Judgement("nft", None, None, (check,)))
    report.print_one(lined)
    report.print_all([lined], hidden=0, others=0)
    shown = capfd.readouterr().out.splitlines()

    assert shown[1:4] == [
        "FAIL  readable  two",
        "                lines",
        "                -> mend it",
    ]
    assert shown[4].endswith("readable: two lines")
