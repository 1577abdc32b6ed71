"""Whatever moment proxy-init is killed at, old or new rules stand whole."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from installed import PROGRAM

from proxyinit.backend import NFTABLES
from proxyinit.config import RedirectConfig
from proxyinit.lab import Namespace
from proxyinit.lab.tables import live, planned, versions_of
from proxyinit.reconcile import differences, ours
from proxyinit.rules import PortRange

if TYPE_CHECKING:
    from proxyinit.rules import Version

CONFIGS = {
    "A": RedirectConfig(4143, 4140, (2102,)),
    "B": RedirectConfig(5143, 5140, (2102, 0), (), (), (PortRange(4190, 4567),)),
}
ARGUMENTS = {
    "A": ("-p", "4143", "-o", "4140", "-u", "2102"),
    "B": (
        *("-p", "5143", "-o", "5140", "-u", "2102,0"),
        *("--inbound-ports-to-ignore", "4190-4567"),
    ),
    "none": ("cleanup",),
}
INSTALLS, CLEANUPS = 60, 45
"""How many runs are killed of each, per mode."""


def command(target: str, namespace: Namespace, mode: str) -> list[str]:
    chosen = () if target == "none" else ("--iptables-mode", mode)
    return [PROGRAM, *ARGUMENTS[target], *chosen, "--netns", namespace.path]


def standing(namespace: Namespace, mode: str, version: Version) -> str:
    """Which rules of ours one table holds, whole: A, B, or none."""
    table = live(namespace, mode, version)
    if not ours(table).chains:
        return "none"
    found = {n: differences(planned(c, version), table) for n, c in CONFIGS.items()}
    whole = [name for name, different in found.items() if not different]
    assert whole, f"neither A nor B stands whole: {found}"
    return whole[0]


def kill_after(argv: list[str], delay: float, *, with_children: bool) -> bool:
    """Run, kill after `delay` seconds, wait for all to end; whether it was killed."""
    alive, held = os.pipe()
    with subprocess.Popen(
        argv,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=[held],
    ) as process:
        os.close(held)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(delay)
        with contextlib.suppress(ProcessLookupError):
            if with_children:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        # A child that was left alone may still be writing: it holds the pipe too.
        os.read(alive, 1)
        os.close(alive)
    return process.returncode == -signal.SIGKILL


class Killer:
    """Kills runs at random moments and looks at what stands afterwards."""

    def __init__(self, namespace: Namespace, mode: str) -> None:
        self.namespace = namespace
        self.mode = mode
        self.random = random.Random(4143)  # noqa: S311  (moments, not secrets)
        self.kills = 0
        self.outcomes: Counter[str] = Counter()

    def complete(self, target: str) -> float:
        """Let a run come to its end, see that all is in place; how long it took."""
        start = time.monotonic()
        argv = command(target, self.namespace, self.mode)
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        took = time.monotonic() - start
        assert done.returncode == 0, done.stderr
        for version in versions_of(self.mode):
            assert standing(self.namespace, self.mode, version) == target
        return took

    def kill(self, old: str, new: str, lifetime: float) -> None:
        """Kill a run from `old` to `new`: each family holds one of the two."""
        killed = kill_after(
            command(new, self.namespace, self.mode),
            # The first third of a life is the interpreter's start.
            self.random.uniform(0.3, 1.1) * lifetime,
            with_children=self.random.random() < 0.5,
        )
        for version in versions_of(self.mode):
            found = standing(self.namespace, self.mode, version)
            assert found in {old, new}
            self.outcomes["new" if found == new else "old"] += killed
        self.kills += killed


def test_killed_install_leaves_old_or_new_rules_whole(
    namespace: Namespace, mode: str
) -> None:
    """After each kill of an install the next run completes, both families right."""
    killer = Killer(namespace, mode)
    killer.complete("A")
    old, new = "A", "B"
    lifetime = killer.complete("B")
    killer.complete("A")
    while killer.kills < INSTALLS or len(killer.outcomes) < 2:
        killer.kill(old, new, lifetime)
        lifetime = killer.complete(new)
        old, new = new, old


def test_killed_cleanup_leaves_rules_whole_or_none(
    namespace: Namespace, mode: str
) -> None:
    """After each kill of a cleanup the redirect stands or is gone, family by family."""
    killer = Killer(namespace, mode)
    killer.complete("A")
    lifetime = killer.complete("none")
    while killer.kills < CLEANUPS or len(killer.outcomes) < 2:
        killer.complete("A")
        killer.kill("A", "none", lifetime)
        if killer.kills % 5 == 0:
            lifetime = killer.complete("none")


def test_orphaned_restore_holds_the_next_run_up(
    namespace: Namespace, mode: str, tmp_path: Path
) -> None:
    """A program that outlives its killed proxy-init can't undo what comes after."""
    started, go_on = tmp_path / "started", tmp_path / "go-on"
    for fifo in (started, go_on):
        os.mkfifo(fifo)
    slow = tmp_path / ("nft" if mode == NFTABLES else f"iptables-{mode}-restore")
    real = shutil.which(slow.name)
    slow.write_text(f'#!/bin/sh\n: > {started}\n: < {go_on}\nexec {real} "$@"\n')
    slow.chmod(0o755)
    first = subprocess.Popen(
        command("A", namespace, mode),
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stderr=subprocess.DEVNULL,
    )
    started.read_bytes()  # returns once the program has opened it
    first.kill()
    first.wait()
    argv = [*command("B", namespace, mode), "--lock-wait-secs"]
    early = subprocess.run([*argv, "1"], capture_output=True, check=False)
    go_on.write_bytes(b"")
    assert early.returncode == 1
    late = subprocess.run([*argv, "60"], capture_output=True, check=False)
    assert late.returncode == 0
    for version in versions_of(mode):
        assert standing(namespace, mode, version) == "B"
