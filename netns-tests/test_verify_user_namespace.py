"""A pod with users of its own (hostUsers: false), seen from the node."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAM = str(Path(sys.executable).with_name("proxy-init"))
INSTALL = ("-p", "4143", "-o", "4140", "-u", "2102", "--iptables-mode", "nftables")
BOTH = [f"probe {what}, IPv{v}" for v in (4, 6) for what in ("in", "out", "as proxy")]
FIRST_ID = 100_000
POD = """
import ctypes, os, socket, subprocess, sys
NEW_USER_AND_NET = 0x50000000
if ctypes.CDLL(None, use_errno=True).unshare(NEW_USER_AND_NET):
    sys.exit(os.strerror(ctypes.get_errno()))
print("made", flush=True)
sys.stdin.readline()
os.setresgid(0, 0, 0)
os.setresuid(0, 0, 0)
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
uid, *ports = map(int, sys.argv[1:])
os.setresuid(uid, uid, uid)
anywhere = (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")
kept = [
    socket.create_server((host, port), family=family)
    for family, host in anywhere
    for port in ports
]
print("up", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def pod(request: pytest.FixtureRequest) -> Iterator[int]:
    """The pid of a process in a user and a network namespace of its own."""
    command = [sys.executable, "-c", POD, *map(str, request.param)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "made\n"
        for kind in ("uid", "gid"):
            Path(f"/proc/{process.pid}/{kind}_map").write_text(f"0 {FIRST_ID} 65536")
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "up\n"
        yield process.pid
        process.communicate("\n")


def verify(pid: int) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code of a verification with live connections, and its checks."""
    argv = [PROGRAM, "verify", "--probe", "--format", "json", "--pid", str(pid)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    checks = json.loads(done.stdout)["namespaces"][0]["checks"]
    return done.returncode, {check["name"]: check for check in checks}


def install(pid: int) -> None:
    subprocess.run([PROGRAM, *INSTALL, "--pid", str(pid)], check=True)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param((2102, 4143, 4140), id="the proxy runs"),
        pytest.param((2102,), id="no proxy yet"),
    ],
    indirect=True,
)
def test_its_users_are_known_by_its_own_ids(pod: int) -> None:
    """The proxy's user is the pod's 2102, and may leave; on the node it is another."""
    install(pod)
    code, checks = verify(pod)

    assert (code, [name for name in checks if "probe" in name]) == (0, BOTH)
    assert "fail" not in {check["state"] for check in checks.values()}


@pytest.mark.parametrize("mode", ["legacy", "nft"])
@pytest.mark.parametrize("pod", [(2102,)], indirect=True)
def test_what_iptables_can_not_do_from_outside_is_done_natively(
    pod: int, mode: str
) -> None:
    """The kernel takes rules for a pod's users from the pod alone; nft's it takes."""
    done = subprocess.run(
        [PROGRAM, *INSTALL[:-1], mode, "--pid", str(pod)],
        capture_output=True,
        text=True,
        check=False,
    )
    warned = [line for line in done.stderr.splitlines() if "level=warning" in line]

    assert done.returncode == 0, done.stderr
    assert "a user namespace of its own (hostUsers: false)" in warned[0]
    assert "trying nftables" in warned[-1]
    assert verify(pod)[0] == 0


@pytest.mark.parametrize("pod", [(1000, 4143, 4140)], indirect=True)
def test_a_stranger_on_the_proxys_ports_is_named_by_its_own_id(pod: int) -> None:
    """Who reads that finds the user in the pod's manifest."""
    install(pod)
    code, checks = verify(pod)

    assert code == 3
    assert "belongs to user 1000, not to 2102" in checks["inbound proxy"]["found"]
