"""Verify on a terminal and off it: a bar and colours are for people alone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

from installed import PROGRAM
from verify_runs import execute, install

from proxyinit.lab import Namespace


def test_no_bar_and_no_colour_outside_a_terminal(namespace: Namespace) -> None:
    """What a program reads holds nothing but text; standard error stays empty."""
    install(namespace, "nft")
    done = execute([PROGRAM, "verify", "--all"])

    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert namespace.name in done.stdout


def test_on_a_terminal(namespace: Namespace) -> None:
    """A bar while it works, then one line a namespace however narrow it is."""
    install(namespace, "nft")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 25, 72, 0, 0))
    argv = [PROGRAM, "verify", "--all"]
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        argv,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**environment, "TERM": "xterm"},
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while data := os.read(ours, 65536):
            shown += data
    os.close(ours)
    process.wait()

    bar, _, rest = shown.decode().rpartition("\x1b[?25h")  # the cursor comes back
    assert "100%" in bar
    lines = re.sub(r"\x1b\[[\d;?]*[A-Za-z]|\r", "", rest).splitlines()
    assert max(map(len, lines)) <= 72, lines
    (line,) = [line for line in lines if namespace.name in line]
    assert line.startswith("ok  ")
