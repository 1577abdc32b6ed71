"""--timeout-close-wait-secs: set when all else is right, and not before."""

from __future__ import annotations

import os
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from installed import PROGRAM

from proxyinit.lab import Namespace
from proxyinit.lab.tables import live, versions_of
from proxyinit.reconcile import ours

LINKERD = ("-p", "4143", "-o", "4140", "-u", "2102")
NAME = "net.netfilter.nf_conntrack_tcp_timeout_close_wait"
FILE = f"/proc/sys/{NAME.replace('.', '/')}"
HOUR = ("--timeout-close-wait-secs", "3600")


def run(namespace: Namespace, *arguments: str) -> CompletedProcess[str]:
    return namespace.exec([PROGRAM, *arguments])


def close_wait(namespace: Namespace) -> int:
    """The timeout in the namespace, in seconds."""
    return int(namespace.exec(["cat", FILE]).stdout)


def has_rules(namespace: Namespace, mode: str) -> bool:
    """Whether our rules stand in any table of the mode."""
    tables = [live(namespace, mode, version) for version in versions_of(mode)]
    return any(ours(table).chains for table in tables)


@pytest.fixture
def default(namespace: Namespace) -> int:
    """What a fresh namespace has; a value that no test sets."""
    seconds = close_wait(namespace)
    assert seconds not in (1, 3600)
    return seconds


def test_timeout_is_set(namespace: Namespace, mode: str, default: int) -> None:
    """Once by the first run, and again by one that has no rule to write."""
    done = run(namespace, *LINKERD, *HOUR, "--iptables-mode", mode)
    assert done.returncode == 0, done.stderr
    assert f"{NAME} = 3600" in done.stderr
    assert close_wait(namespace) == 3600 != default
    shorter = ("--timeout-close-wait-secs=1", "--iptables-mode", mode)
    done = run(namespace, *LINKERD, *shorter)
    assert "nothing written" in done.stderr
    assert close_wait(namespace) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((), id="no flag"),
        pytest.param(("--timeout-close-wait-secs", "0"), id="zero means leave it"),
    ],
)
def test_timeout_is_left_alone(
    namespace: Namespace, arguments: tuple[str, ...], default: int
) -> None:
    """Without a wish it stays as it was."""
    assert run(namespace, *LINKERD, *arguments).returncode == 0
    assert close_wait(namespace) == default


MISTAKES = [
    pytest.param(("-p", "0"), id="port 0"),
    pytest.param(("-o", "4143"), id="one port for both directions"),
    pytest.param(("-u", "root"), id="a user's name"),
    pytest.param(("--inbound-ports-to-ignore", "80-70"), id="a range backwards"),
    pytest.param(("--subnets-to-ignore", "10.0.0.0/33"), id="a prefix too long"),
    pytest.param(("--unknown",), id="an unknown flag"),
    pytest.param(("stray",), id="a stray word"),
    pytest.param(("--iptables-mode", "maybe"), id="an unknown mode"),
    pytest.param(("--timeout-close-wait-secs", "-1"), id="a timeout below zero"),
    pytest.param(("--timeout-close-wait-secs", "1h"), id="a timeout with a unit"),
    pytest.param(("--timeout-close-wait-secs", "2147484"), id="beyond an int of ms"),
    pytest.param(("--netns", "/nowhere"), id="a namespace that is none"),
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_on_the_line_leaves_it_alone(
    namespace: Namespace, mistake: tuple[str, ...], default: int
) -> None:
    """Exit 2, in front of or behind a valid timeout: nothing was touched."""
    for arguments in ((*LINKERD, *HOUR, *mistake), (*LINKERD, *mistake, *HOUR)):
        done = run(namespace, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "nothing was changed" in done.stderr
    assert close_wait(namespace) == default
    assert namespace.exec(["cat", "/proc/net/ip_tables_names"]).stdout == ""
    assert namespace.exec(["nft", "list", "tables"]).stdout == ""


def test_simulation_leaves_it_alone(
    namespace: Namespace, mode: str, default: int
) -> None:
    """It says as a comment what would be set, once, behind the transactions."""
    arguments = (*LINKERD, *HOUR, "--simulate", "--iptables-mode", mode)
    done = run(namespace, *arguments)
    assert done.returncode == 0, done.stderr
    end = "}" if mode == "nftables" else "COMMIT"
    assert done.stdout.endswith(f"\n{end}\n# sysctl -w {NAME}=3600\n")
    assert done.stdout.count("sysctl") == 1
    assert close_wait(namespace) == default


def test_longest_timeout(namespace: Namespace) -> None:
    """What is accepted arrives as it is."""
    longest = ("--timeout-close-wait-secs", "2147483")
    assert run(namespace, *LINKERD, *longest).returncode == 0
    assert close_wait(namespace) == 2147483


def test_failed_install_leaves_it_alone(
    namespace: Namespace, mode: str, default: int, tmp_path: Path
) -> None:
    """Rules that the kernel refuses: exit 1, the timeout is not set either."""
    name = "nft" if mode == "nftables" else f"ip6tables-{mode}-restore"
    fake = tmp_path / name
    fake.write_text("#!/bin/sh\necho 'line 1 failed' >&2\nexit 1\n")
    fake.chmod(0o755)
    path = f"PATH={tmp_path}:{os.environ['PATH']}"
    argv = ["env", path, PROGRAM, *LINKERD, *HOUR, "--iptables-mode", mode]
    assert namespace.exec(argv).returncode == 1
    assert close_wait(namespace) == default
    assert not has_rules(namespace, mode)


def test_timeout_that_can_not_be_set_stops_before_the_rules(
    namespace: Namespace, mode: str, default: int
) -> None:
    """With /proc/sys read-only, as in a pod: exit 1, why, and no rule written."""
    script = 'mount -o bind,ro /proc/sys /proc/sys && exec "$@"'
    argv = ["unshare", "--mount", "sh", "-c", script, "sh", PROGRAM]
    done = namespace.exec([*argv, *LINKERD, *HOUR, "--iptables-mode", mode])
    assert done.returncode == 1
    assert NAME in done.stderr
    assert "Read-only file system" in done.stderr
    assert not has_rules(namespace, mode)
    assert close_wait(namespace) == default


def test_cleanup_does_not_know_it(namespace: Namespace) -> None:
    """Nobody noted what it was before, so cleanup leaves it and takes no such flag."""
    assert run(namespace, *LINKERD, *HOUR).returncode == 0
    assert run(namespace, "cleanup").returncode == 0
    assert close_wait(namespace) == 3600
    assert run(namespace, "cleanup", *HOUR).returncode == 2
