"""network-validator where connections are not redirected to it: what it was instead.

Each test makes one thing wrong in a pod, and the one error line has to name it.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from installed import PROGRAM
from validator_runs import PORT, VALIDATOR, at, command, failure, run, told

from proxyinit.lab import CLIENT, POD, WORLD, Lab

LOOPBACK = {4: "127.0.0.1", 6: "::1"}


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
    command(lab, "ip", f"-{version}", "route", "del", "default")
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
