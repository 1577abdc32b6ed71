"""network-validator where connections are not redirected to it: what it was instead.

Each test makes one thing wrong in a pod, and the one error line has to name it.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxyinit.lab import CLIENT, POD, PROXY_UID, WORLD, Lab

PROGRAM = str(Path(sys.executable).with_name("proxy-init"))
VALIDATOR = [sys.executable, "-m", "proxyinit.validator", "--log-format=json"]
PORT = 20001
LOOPBACK = {4: "127.0.0.1", 6: "::1"}
LISTEN = "--listen-addr=[::]:4140"
GIVEN_UP = (
    "Failed to validate networking configuration. "
    "Please ensure iptables rules are rewriting traffic as expected."
)


def at(host: str, port: int = PORT) -> str:
    """An address as the command line takes it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True)
class Told:
    """The exit code, and the fields of every line at its level."""

    status: int
    errors: list[Mapping[str, str]]
    warnings: list[Mapping[str, str]]


def run(lab: Lab, *argv: str, timeout: str = "100ms") -> Told:
    done = lab.pod.exec([*VALIDATOR, "--timeout", timeout, LISTEN, *argv])
    return told(done.returncode, done.stderr)


def told(status: int, stderr: str) -> Told:
    lines = [json.loads(line) for line in stderr.splitlines()]
    levels: dict[str, list[Mapping[str, str]]] = {"ERROR": [], "WARN": []}
    for line in lines:
        levels.setdefault(line["level"], []).append(line["fields"])
    return Told(status, levels["ERROR"], levels["WARN"])


def failure(found: Told, *, timeout: str = "100ms") -> Mapping[str, str]:
    """The one reason of a run that failed, told before upstream's last line."""
    assert found.status == 95
    reason, last = found.errors
    assert last == {"message": GIVEN_UP, "timeout": timeout}
    return reason


def command(lab: Lab, *argv: str) -> None:
    """Run in the pod; it must succeed."""
    done = lab.pod.exec(argv)
    assert done.returncode == 0, done.stderr


def ip(version: int) -> tuple[str, str]:
    return ("ip", f"-{version}")


@contextlib.contextmanager
def started(lab: Lab, argv: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A program in the pod; killed with its children if the test does not end it."""
    with lab.pod.run(
        lambda: subprocess.Popen(
            argv, stderr=subprocess.PIPE, text=True, process_group=0
        )
    ) as program:
        try:
            yield program
            program.wait(30)
        finally:
            program.kill()


@pytest.fixture(scope="module")
def bare() -> Iterator[Lab]:
    """A pod that nobody has set up; tests leave it as it was."""
    with Lab() as lab:
        yield lab


# === redirect missing ===


def test_nobody_answers(lab: Lab, version: int) -> None:
    """Packets leave for an address that nobody has: the usual missing redirect."""
    tables = "iptables-nft" if version == 4 else "ip6tables-nft"
    lab.client.exec([tables, "-A", "INPUT", "-p", "tcp", "-j", "DROP"])
    reason = failure(run(lab, "--connect-addr", at(WORLD[version])))
    assert reason["cause"] == '"redirect missing"'
    assert reason["error"] == "Connection timed out (os error 110)"
    assert reason["connect.addr"] == at(WORLD[version])
    assert f"nobody answers at {at(WORLD[version])}" in reason["message"]
    assert f"proxy-init verify --pod-ip {POD[version]}" in reason["message"]


def test_the_address_refuses(bare: Lab, version: int) -> None:
    """A host is there, no server: refused by the other side of the cable."""
    reason = failure(run(bare, "--connect-addr", at(CLIENT[version], 9)))
    assert reason["cause"] == '"redirect missing"'
    assert reason["error"] == "Connection refused (os error 111)"
    assert "refuses, so the connection was not redirected" in reason["message"]


def test_a_server_outside_answers(lab: Lab, version: int) -> None:
    """Somebody has the address and says something: that is not another redirect."""
    lab.world(PORT)
    reason = failure(run(lab, "--connect-addr", at(WORLD[version])))
    assert reason["cause"] == '"redirect missing"'
    assert "was reached, outside of this pod, and said" in reason["message"]
    assert "world" in reason["message"]


def test_a_server_outside_waits_to_be_spoken_to(lab: Lab) -> None:
    """As with the API server of a cluster: connected, and then nothing comes."""
    silent = [sys.executable, "-c", _SILENT, WORLD[4], str(PORT)]
    with lab.client.run(
        lambda: subprocess.Popen(silent, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    ) as server:
        assert server.stdout
        assert server.stdout.readline() == b"listening\n"
        reason = failure(run(lab, "--connect-addr", at(WORLD[4])))
    assert reason["cause"] == '"redirect missing"'
    assert "outside of this pod, and said nothing" in reason["message"]
    assert "error" not in reason


_SILENT = """
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listening", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("kind", "timeout"),
    [
        pytest.param("tcp-reset", "100ms", id="by a reset"),
        # The kernel hears of it at its second SYN, after a second.
        pytest.param("port-unreachable", "1600ms", id="by a message"),
    ],
)
def test_a_firewall_of_the_pod_rejects(
    lab: Lab, version: int, *, kind: str, timeout: str
) -> None:
    """Rejected on the way out, which comes after nat: refused as by a stranger."""
    tables = "iptables-nft" if version == 4 else "ip6tables-nft"
    prefix = "" if kind == "tcp-reset" else {4: "icmp-", 6: "icmp6-"}[version]
    reject = ("-j", "REJECT", "--reject-with", f"{prefix}{kind}")
    command(lab, tables, "-A", "OUTPUT", "-d", WORLD[version], "-p", "tcp", *reject)
    found = run(lab, "--connect-addr", at(WORLD[version]), timeout=timeout)
    reason = failure(found, timeout=timeout.replace("1600ms", "1.6s"))
    assert reason["cause"] == '"redirect missing"'
    assert reason["error"] == "Connection refused (os error 111)"


def test_a_router_says_unreachable(lab: Lab) -> None:
    """The connection had left already when somebody said no."""
    lab.client.exec(["ip", "route", "del", "local", "203.0.113.0/24"])
    lab.client.exec(["ip", "route", "add", "unreachable", "203.0.113.0/24"])
    lab.client.exec(["sysctl", "-qw", "net.ipv4.ip_forward=1"])
    reason = failure(run(lab, "--connect-addr", at(WORLD[4])))
    assert reason["cause"] == '"redirect missing"'
    assert reason["error"] == "No route to host (os error 113)"


def test_the_pod_itself(bare: Lab, version: int) -> None:
    """An address of the pod is never redirected; it is no proof to be answered."""
    for host in (POD[version], LOOPBACK[version]):
        # Even our own listener, which would answer with the very token.
        for port in (PORT, 4140):
            reason = failure(run(bare, "--connect-addr", at(host, port)))
            assert f"{at(host, port)} is this pod itself" in reason["message"]


# === egress blocked ===


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        pytest.param("blackhole", "Invalid argument (os error 22)", id="blackhole"),
        pytest.param("prohibit", "Permission denied (os error 13)", id="prohibit"),
        pytest.param("unreachable", "No route to host (os error 113)", id="no route"),
    ],
)
def test_a_route_forbids(bare: Lab, kind: str, error: str) -> None:
    """The kernel asks for a route before nat: no packet, so no redirect either."""
    command(bare, "ip", "route", "add", kind, "192.0.2.0/24")
    try:
        reason = failure(run(bare))
    finally:
        command(bare, "ip", "route", "del", kind, "192.0.2.0/24")
    assert reason["cause"] == '"egress blocked"'
    assert reason["error"] == error
    assert "lets no connection to 192.0.2.2:1404 begin" in reason["message"]
    assert "--connect-addr" in reason["message"]


def test_no_route_although_redirected(lab: Lab, version: int, mode: str) -> None:
    """A pod without a way out, rules in place: said as it is, with what helps."""
    command(lab, PROGRAM, "-p4143", "-o4140", "-u2102", "--iptables-mode", mode)
    command(lab, *ip(version), "route", "del", "default")
    far = at({4: "192.0.2.2", 6: "2001:db8:1::2"}[version])
    reason = failure(run(lab, "--connect-addr", far))
    assert reason["cause"] == '"egress blocked"'
    assert reason["error"] == "Network is unreachable (os error 101)"
    near = at({4: "10.1.0.99", 6: "fd00:1::99"}[version])  # of the pod's own network
    assert run(lab, "--connect-addr", near).status == 0


def test_a_kernel_filter_forbids(bare: Lab) -> None:
    """As an eBPF program of a CNI plugin does it: EPERM from connect."""
    strace = ["strace", "-f", "-o", "/dev/null", "-e", "inject=connect:error=EPERM"]
    done = bare.pod.exec([*strace, *VALIDATOR, "--timeout=0"])
    reason = failure(told(done.returncode, done.stderr), timeout="0ns")
    assert reason["cause"] == '"egress blocked"'
    assert reason["error"] == "Operation not permitted (os error 1)"
    assert "eBPF" in reason["message"]


# === a version that the pod lacks ===


def test_a_pod_without_ipv6_needs_none(lab: Lab, mode: str) -> None:
    """No IPv6 address: IPv4 proves it, and one warning tells what was left out."""
    command(lab, PROGRAM, "-p4143", "-o4140", "-u2102", "--iptables-mode", mode)
    command(lab, "ip", "-6", "addr", "flush", "dev", "eth0", "scope", "global")
    command(lab, "ip", "-6", "route", "flush", "dev", "eth0")
    found = run(lab, "--connect-addr=192.0.2.2:1404,[fd00::1]:20001")
    assert found.status == 0
    (warning,) = found.warnings
    assert warning["message"] == (
        "Skipped [fd00::1]:20001: "
        "this pod has no IPv6 address to connect to [fd00::1]:20001 from"
    )


def test_a_pod_without_ipv4_needs_none(lab: Lab, mode: str) -> None:
    """The same the other way round."""
    command(lab, PROGRAM, "-p4143", "-o4140", "-u2102", "--iptables-mode", mode)
    command(lab, "ip", "-4", "addr", "flush", "dev", "eth0")
    found = run(lab, "--connect-addr=192.0.2.2:1404,[fd00::1]:20001")
    assert found.status == 0
    (warning,) = found.warnings
    assert warning["message"].startswith("Skipped 192.0.2.2:1404: ")


def test_the_version_that_was_asked_for_alone_is_not_skipped(lab: Lab) -> None:
    """With nothing else to prove it would be no proof."""
    command(lab, "ip", "-6", "addr", "flush", "dev", "eth0", "scope", "global")
    command(lab, "ip", "-6", "route", "flush", "dev", "eth0")
    reason = failure(run(lab, "--connect-addr=[fd00::1]:20001"))
    assert reason["cause"] == '"egress blocked"'
    assert "no IPv6 address" in reason["message"]


def test_an_address_that_comes_late(lab: Lab) -> None:
    """Asked for alone, a version is waited for until the time is over."""
    command(lab, PROGRAM, "-p4143", "-o4140", "-u2102")
    command(lab, "ip", "link", "set", "eth0", "down")
    argv = [*VALIDATOR, "--timeout=60s", LISTEN, "--connect-addr=[fd00:1::99]:1"]
    with started(lab, argv) as program:
        assert program.stderr
        assert any("Not redirected yet" in line for line in program.stderr)
        command(lab, "ip", "link", "set", "eth0", "up")
        address = (POD[6] + "/64", "dev", "eth0", "nodad")
        command(lab, "ip", "-6", "addr", "replace", *address)
        assert "Validated" in program.stderr.read()
    assert program.returncode == 0


def test_a_pod_with_no_address_at_all_proves_nothing(lab: Lab) -> None:
    """Both versions are left out, so it fails, and says so of both."""
    command(lab, "ip", "link", "set", "eth0", "down")
    command(lab, "ip", "addr", "flush", "dev", "eth0")
    found = run(lab, "--connect-addr=192.0.2.2:1404,[fd00::1]:20001")
    assert found.status == 95
    assert ["no IPv" in error["message"] for error in found.errors] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("listen", "refused"),
    [
        # Sockets in order: the listeners, with what stands in for one that can't be
        # had, then those that connect by IPv4 and by IPv6.
        pytest.param("[::]:4140", "1..4+3", id="one listener for both"),
        pytest.param("0.0.0.0:4140,[::]:4140", "2..4+2", id="one for each"),
    ],
)
def test_a_kernel_without_ipv6(
    lab: Lab, mode: str, *, listen: str, refused: str
) -> None:
    """Every socket of IPv6 is refused: IPv4 is listened for, and proven, alone."""
    command(lab, PROGRAM, "-p4143", "-o4140", "-u2102", "--iptables-mode", mode)
    inject = f"inject=socket:error=EAFNOSUPPORT:when={refused}"
    strace = ["strace", "-o", "/dev/null", "-e", "trace=socket", "-e", inject]
    addresses = ["--listen-addr", listen, "--connect-addr", "192.0.2.2:1,[fd00::1]:1"]
    done = lab.pod.exec([*strace, *VALIDATOR, "--timeout=0", *addresses])
    found = told(done.returncode, done.stderr)
    assert found.status == 0, done.stderr
    assert [w["error"] for w in found.warnings] == [
        "Address family not supported by protocol (os error 97)"
    ] * 2


# === another program answered ===


def test_another_program_has_the_redirect(lab: Lab, version: int, mode: str) -> None:
    """Rules lead elsewhere in the pod: the port and its user are named."""
    lab.stand_in(lab.pod, "mesh", (15001,), uid=1337)
    command(lab, PROGRAM, "-p15006", "-o15001", "-u2102", "--iptables-mode", mode)
    reason = failure(run(lab, "--connect-addr", at(WORLD[version])))
    assert reason["cause"] == '"another program answered"'
    there = at(LOOPBACK[version], 15001)
    assert f"redirected to {there}, where user 1337" in reason["message"]
    assert "expected [::]:4140" in reason["message"]


def test_a_redirect_to_a_port_where_nobody_listens(lab: Lab) -> None:
    """Refused by the pod itself; both explanations are given."""
    command(lab, PROGRAM, "-p15006", "-o15001", "-u2102")
    reason = failure(run(lab, "--connect-addr", at(WORLD[4])))
    assert reason["error"] == "Connection refused (os error 111)"
    assert "or to a port where nobody listens" in reason["message"]


# === listening ===


def test_the_proxy_is_there_already(lab: Lab, version: int) -> None:
    """Its port is taken: at once, and who has it is named."""
    lab.proxy()
    listen = at({4: "0.0.0.0", 6: "::"}[version], 4140)
    target = at(WORLD[version])
    found = run(lab, f"--listen-addr={listen}", "--connect-addr", target, timeout="9h")
    assert found.status == 95
    (error,) = found.errors
    assert error["cause"] == '"listen address taken"'
    assert error["error"] == "Address already in use (os error 98)"
    assert f"taken by user {PROXY_UID} (process " in error["message"]


def test_who_has_the_port_when_other_processes_are_hidden(
    lab: Lab, public_program: list[str]
) -> None:
    """Without the right to look at processes the user is known still."""
    lab.proxy()
    setpriv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    setpriv += ["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    program = [*public_program[:-1], "proxyinit.validator", "--log-format=json"]
    done = lab.pod.exec([*setpriv, *program])
    (error,) = told(done.returncode, done.stderr).errors
    assert f"is taken by user {PROXY_UID}: " in error["message"]


def test_an_address_of_somebody_else(bare: Lab) -> None:
    """No interface of the pod has it."""
    done = bare.pod.exec([*VALIDATOR, "--listen-addr=192.0.2.9:4140"])
    (error,) = told(done.returncode, done.stderr).errors
    assert done.returncode == 95
    assert error["error"] == "Cannot assign requested address (os error 99)"
    assert "expected an address of this pod" in error["message"]


# === time, and being told to end ===


def test_the_timeout_is_kept(bare: Lab) -> None:
    """It ends when the time is over, however long one connection would take."""
    start = time.monotonic()
    found = run(bare, "--connect-addr", at(CLIENT[4], 9), timeout="1100ms")
    assert failure(found, timeout="1.1s")
    assert time.monotonic() - start >= 1.1


def test_no_connection_outlives_the_timeout(bare: Lab, tmp_path: Path) -> None:
    """Nobody answers, and what the program waits for is never more than is left."""
    calls = tmp_path / "calls"
    strace = ["strace", "-o", str(calls), "-e", "trace=poll"]
    done = bare.pod.exec([*strace, *VALIDATOR, "--timeout=100ms"])
    assert failure(told(done.returncode, done.stderr))
    waits = re.findall(r"POLLIN.*\}\], \d+, (-?\d+)\)", calls.read_text())
    assert waits
    assert all(0 <= int(wait) <= 100 for wait in waits)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(bare: Lab, number: signal.Signals) -> None:
    """At once, with upstream's line and exit code, as process 1 of a container too."""
    unshare = ["unshare", "--pid", "--fork", "--kill-child"]
    argv = [*unshare, *VALIDATOR, "--timeout=1d", "--connect-addr", at(CLIENT[4], 9)]
    with started(bare, argv) as program:
        assert program.stderr
        assert any("Not redirected yet" in line for line in program.stderr)
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
        (child,) = children.read_text(encoding="ascii").split()
        subprocess.run(["kill", f"-{number.name[3:]}", child], check=True)
        program.wait(30)
        rest = program.stderr.read()
    assert told(95, rest).errors == [{"message": f"Killed by {number.name}"}]
    assert program.returncode == 95
