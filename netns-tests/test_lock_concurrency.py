"""Several proxy-init at once in one namespace: one after the other, none undone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from installed import PROGRAM

from proxyinit.backend import KINDS, PLACES
from proxyinit.config import RedirectConfig
from proxyinit.lab import Namespace
from proxyinit.lab.tables import live, planned
from proxyinit.reconcile import differences, ours

CONFIGS = {
    ("-p", "4143", "-o", "4140", "-u", "2102"): RedirectConfig(4143, 4140, (2102,)),
    ("-p", "5143", "-o", "5140", "-u", "0"): RedirectConfig(5143, 5140, (0,)),
}
ROUNDS = 3


def at_once(namespace: Namespace, runs: Sequence[Sequence[str]]) -> None:
    """Start all runs, then wait for all; each ends with 0."""
    running = [
        subprocess.Popen(
            [PROGRAM, *arguments, "--netns", namespace.path, "--lock-wait-secs", "60"],
            stderr=subprocess.PIPE,
            text=True,
        )
        for arguments in runs
    ]
    logs = [process.communicate()[1] for process in running]
    for process, log in zip(running, logs, strict=True):
        assert process.returncode == 0, log


def standing(namespace: Namespace) -> list[RedirectConfig | None]:
    """What each place holds whole; None for nothing of ours."""
    found: list[RedirectConfig | None] = []
    for kind, version in PLACES:
        table = live(namespace, kind, version)
        if not ours(table).chains:
            found.append(None)
            continue
        configs = CONFIGS.values()
        whole = [c for c in configs if not differences(planned(c, version), table)]
        assert whole, table
        found += whole
    return found


@pytest.mark.parametrize("attempt", range(ROUNDS))
def test_eight_installs_at_once_leave_one_configuration(
    namespace: Namespace, mode: str, attempt: int
) -> None:
    """Both families hold one and the same configuration, and every jump once."""
    del attempt  # the moments differ
    runs = [(*arguments, "--iptables-mode", mode) for arguments in CONFIGS] * 4
    at_once(namespace, runs)
    configs = set(standing(namespace))
    assert configs in [{None, config} for config in CONFIGS.values()]


def test_installs_into_all_backends_at_once_leave_one(namespace: Namespace) -> None:
    """The last one clears the others: one holds all, the others nothing."""
    runs = [(*a, "--iptables-mode", k) for a in CONFIGS for k in KINDS] * 2
    at_once(namespace, runs)
    legacy4, legacy6, nft4, nft6, native = standing(namespace)
    assert legacy4 == legacy6
    assert nft4 == nft6
    assert [legacy4, nft4, native].count(None) == 2


def test_installs_and_cleanups_at_once_leave_all_or_nothing(
    namespace: Namespace, mode: str
) -> None:
    """Both families hold the same, one whole configuration or none."""
    install = (*next(iter(CONFIGS)), "--iptables-mode", mode)
    at_once(namespace, [install, ("cleanup",)] * 3)
    legacy4, legacy6, nft4, nft6, _ = standing(namespace)
    assert legacy4 == legacy6
    assert nft4 == nft6


def test_namespaces_do_not_wait_for_each_other(namespace: Namespace, mode: str) -> None:
    """Who is stuck in one namespace is named there, and holds up nobody elsewhere."""
    arguments = (*next(iter(CONFIGS)), "--iptables-mode", mode)
    with (
        contextlib.closing(Namespace("other")) as other,
        Path(other.path).open() as holder,
    ):
        fcntl.flock(holder, fcntl.LOCK_EX)
        at_once(namespace, [arguments])
        done = other.exec([PROGRAM, *arguments, "--lock-wait-secs", "1"])
    assert done.returncode == 1
    assert f"process {os.getpid()}" in done.stderr
