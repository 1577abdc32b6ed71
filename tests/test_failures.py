"""Why a program failed, put together for people."""

from __future__ import annotations

import pytest

from proxyinit.errors import CommandFailed, ProgramMissing
from proxyinit.failures import explained, line_at_fault, no_backend, unusable
from proxyinit.options import Options
from proxyinit.testing import FakeKernel, run_on


@pytest.mark.parametrize(
    ("stderr", "line"),
    [
        ("iptables-restore: line 3 failed\n", "-A OUTPUT -j X"),
        ("Couldn't load target `X'\n\nError occurred at line: 3\n", "-A OUTPUT -j X"),
        ("iptables-nft-restore: line 3 failed: Bad rule\n", "-A OUTPUT -j X"),
        ("line 3: RULE_APPEND failed\n", "-A OUTPUT -j X"),
        ("iptables-restore: line 4 failed\n", ""),
        ("line 99 failed\n", ""),
        ("line 0 failed\n", ""),
        ("no number\n", ""),
    ],
)
def test_line_at_fault(stderr: str, line: str) -> None:
    """The line is shown when the program names one; COMMIT tells nothing."""
    assert line_at_fault(stderr, "# x\n*nat\n-A OUTPUT -j X\nCOMMIT\n") == line


def command(stderr: str, stdin: str = "") -> CommandFailed:
    return CommandFailed(["/sbin/iptables-x"], 4, stderr, stdin=stdin)


def test_an_explained_failure_keeps_what_was_printed() -> None:
    """Cause and advice are added to argv, status and the raw text."""
    session = run_on(FakeKernel(), Options()).session

    found = explained(session, command("line 2: bad\n", "*nat\n-A X -j Y\n"))

    assert str(found) == (
        "iptables-x failed with status 4 at '-A X -j Y': iptables refused the rules; "
        "look at what it printed (stderr) and at the kernel's log (dmesg)"
    )
    assert (found.stderr, found.status) == ("line 2: bad\n", 4)


def test_a_rule_that_can_t_be_deleted_by_its_text() -> None:
    """The advice is to delete it by number."""
    session = run_on(FakeKernel(), Options()).session

    found = explained(session, command("line 2 failed\n", "*nat\n-D OUTPUT -j Y\n"))

    assert "iptables -t nat -L OUTPUT --line-numbers" in str(found)


def test_a_failure_without_a_word() -> None:
    """A program that fails in silence is still quoted honestly."""
    assert str(command("")) == (
        "/sbin/iptables-x failed with status 4: it printed no reason"
    )


def test_no_backend() -> None:
    """All reasons in one message; equal advice is given once."""
    session = run_on(FakeKernel(), Options()).session
    missing = ProgramMissing("not found: a")

    failures = [unusable(session, mode, missing) for mode in ("nft", "legacy")]
    error = no_backend(failures)

    assert str(error) == (
        "nothing can redirect traffic here: iptables-nft can't be used here: "
        "not found: a; iptables-legacy can't be used here: not found: a. "
        "Next: install the iptables package"
    )
