"""network-validator in a pod that lacks an IP version: what is skipped, what not."""

from __future__ import annotations

import pytest
from installed import PROGRAM
from validator_runs import LISTEN, VALIDATOR, command, failure, run, started, told

from proxyinit.lab import POD, Lab


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
