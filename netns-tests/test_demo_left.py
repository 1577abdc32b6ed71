"""What the demo leaves on a machine, however it ends: nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile

import pytest
from demo_runs import DEMO, LIMIT_S, left_by, run, start

from proxyinit.demo.machine import residue
from proxyinit.lab import Namespace

FOREIGN = """*nat
-A PREROUTING -p udp --dport 53 -j REDIRECT --to-ports 5353
-A OUTPUT -d 192.0.2.1/32 -j RETURN
COMMIT
"""


def rules_of(machine: Namespace) -> list[str]:
    """Everything a machine's firewall holds, and which legacy tables exist."""
    commands = [
        ["cat", "/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"],
        ["iptables-legacy-save"],
        ["ip6tables-legacy-save"],
        ["nft", "list", "ruleset"],
    ]
    texts = [machine.exec(argv).stdout for argv in commands]
    return [re.sub(r"(?m)^#.*\n", "", text) for text in texts]


def test_the_machine_stays_as_it_was(namespace: Namespace, iptables_mode: str) -> None:
    """A machine's own rules, legacy and nft, are the same bytes afterwards."""
    for restore in ("iptables-legacy-restore", "ip6tables-nft-restore"):
        text = FOREIGN if restore[2] != "6" else FOREIGN.replace("192.0.2.1/32", "::2")
        assert namespace.exec([restore], text=text).returncode == 0
    before = rules_of(namespace)
    done = run([*DEMO, "--iptables-mode", iptables_mode], inside=namespace)
    assert done.status == 0, done.stderr
    assert rules_of(namespace) == before
    assert left_by(done.pid) == []


def test_a_machine_without_rules_gets_no_table(namespace: Namespace) -> None:
    """Looking at a machine's rules does not make the tables looked for."""
    done = run(DEMO, inside=namespace)
    assert done.status == 0, done.stderr
    assert rules_of(namespace) == ["", "", "", ""]


@pytest.mark.parametrize(
    ("part", "chapter", "number"),
    [
        pytest.param("all", "1", signal.SIGINT, id="while the pod is tried"),
        pytest.param("all", "4", signal.SIGINT, id="under load"),
        pytest.param("examination", "4", signal.SIGINT, id="while it is verified"),
        pytest.param("identity", "4", signal.SIGINT, id="while the service starts"),
        pytest.param("identity", "7", signal.SIGINT, id="during the renewals"),
        pytest.param("all", "4", signal.SIGTERM, id="by another signal"),
    ],
)
def test_an_interrupt_leaves_nothing(
    part: str, chapter: str, number: signal.Signals
) -> None:
    """Ctrl-C ends the demo soon, with the status shells expect, and cleans up."""
    with start([*DEMO, "--part", part]) as process:
        assert process.stdout
        assert any(line.startswith(f"{chapter}  ") for line in process.stdout)
        # As a terminal does: to every process of the foreground at once.
        os.killpg(process.pid, number)
        stdout, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 128 + number
    assert stderr == f"demo: ended by {number.name}\nnothing is left behind\n"
    assert "Everything happened as it should" not in stdout
    assert left_by(process.pid) == []


def test_a_reader_that_goes_away_leaves_nothing() -> None:
    """``demo | head`` ends quietly, and cleans up."""
    with start(DEMO) as process:
        assert process.stdout
        process.stdout.readline()
        process.stdout.close()
        process.wait(LIMIT_S)
        assert process.stderr
        assert (process.returncode, process.stderr.read()) == (1, "")
    assert left_by(process.pid) == []


def test_what_is_left_is_named() -> None:
    """The demo's own look at what it leaves sees namespaces, folders, processes."""
    assert residue() == []
    left = Namespace("left")
    try:
        assert residue() == [f"network namespace {left.name}"]
    finally:
        left.close()
    with tempfile.TemporaryDirectory(prefix=f"proxyinit-{os.getpid()}-") as folder:
        assert residue() == [f"folder {folder}"]
    for_ever = [sys.executable, "-c", "import signal; signal.pause()"]
    with subprocess.Popen(for_ever) as process:
        try:
            assert residue() == ["a process that was started"]
        finally:
            process.kill()
    assert residue() == []
