"""network-validator where connections are redirected: it says so, without privilege."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from installed import PROGRAM
from validator_runs import UNPRIVILEGED

from proxyinit.lab import CLIENT, WORLD, Lab
from proxyinit.lab.programs import as_user

VALIDATOR = [sys.executable, "-m", "proxyinit.validator"]
REDIRECT = ("-p", "4143", "-o", "4140", "-u", "2102")
NOWHERE = {4: "192.0.2.2:1404", 6: "[2001:db8:1::2]:1404"}
BOTH = f"{NOWHERE[4]},{NOWHERE[6]}"
CHART = {
    4: ("--connect-addr", "1.1.1.1:20001", "--listen-addr", "0.0.0.0:4140"),
    6: ("--connect-addr", "[fd00::1]:20001", "--listen-addr", "[::]:4140"),
}
"""As Linkerd's chart writes them, without IPv6 and with it."""


def install(lab: Lab, mode: str, *more: str) -> None:
    done = lab.pod.exec([PROGRAM, *REDIRECT, "--iptables-mode", mode, *more])
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def redirected(mode: str) -> Iterator[Lab]:
    """A pod whose redirect is in place; nobody listens at the proxy's ports."""
    with Lab() as lab:
        install(lab, mode)
        yield lab


def run(lab: Lab, *argv: str) -> subprocess.CompletedProcess[str]:
    return lab.pod.exec([*VALIDATOR, *argv])


def messages(stderr: str) -> list[str]:
    """What lines at level info and above say, their times left out."""
    lines = (line.split(maxsplit=3) for line in stderr.splitlines())
    return [line[3] for line in lines if line[1] != "DEBUG"]


def test_defaults_are_validated(redirected: Lab) -> None:
    """Without any argument, with upstream's lines and nothing else."""
    done = run(redirected)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert messages(done.stderr) == [
        "Listening for connections on 0.0.0.0:4140",
        "Connecting to 192.0.2.2:1404",
        "Validated",
    ]


def test_arguments_of_the_chart(redirected: Lab, version: int) -> None:
    """All five arguments of the pod spec, in its order, for either IP version."""
    connect, listen = CHART[version][:2], CHART[version][2:]
    logs = ("--log-format", "plain", "--log-level", "debug")
    done = run(redirected, *logs, *connect, *listen, "--timeout", "10s")
    assert done.returncode == 0, done.stderr
    assert messages(done.stderr) == [
        f"Listening for connections on {listen[1]}",
        f"Connecting to {connect[1]}",
        "Validated",
    ]
    assert " DEBUG connect: linkerd_network_validator: Connected " in done.stderr


@pytest.mark.parametrize(
    "listen",
    [
        pytest.param((), id="where the proxy listens, by default"),
        pytest.param(("--listen-addr=[::]:4140",), id="one listener for both"),
        pytest.param(("--listen-addr=0.0.0.0:4140,[::]:4140",), id="one for each"),
        pytest.param(("--listen-addr=127.0.0.1:4140,[::1]:4140",), id="on loopback"),
    ],
)
def test_both_versions_in_one_run(redirected: Lab, listen: tuple[str, ...]) -> None:
    """Two addresses to connect to, two proofs, one word of success."""
    done = run(redirected, "--connect-addr", BOTH, *listen, "--log-level=debug")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Connected client.addr=10.1.0.2:") == 1
    assert done.stderr.count("Connected client.addr=[fd00:1::2]:") == 1
    assert done.stderr.count("Validated") == 1


def test_repeated_flags_are_lists_too(redirected: Lab) -> None:
    """As everywhere in this project, and in no way that upstream would take."""
    argv = [f"--connect-addr={NOWHERE[v]}" for v in (4, 6)]
    done = run(redirected, *argv)
    assert done.returncode == 0, done.stderr
    assert messages(done.stderr)[2:] == [
        f"Connecting to {NOWHERE[4]}",
        f"Connecting to {NOWHERE[6]}",
        "Validated",
    ]


def test_json_lines(redirected: Lab) -> None:
    """Every line is an object of tracing's form."""
    done = run(redirected, "--log-format=json", "--log-level=debug")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {line["target"] for line in lines} == {"linkerd_network_validator"}
    assert lines[-1]["fields"] == {"message": "Validated"}


def test_an_existing_server_at_the_address_does_not_matter(
    redirected: Lab, version: int
) -> None:
    """Whoever has the address is not asked: the connection never gets there."""
    host = WORLD[version] if version == 4 else f"[{WORLD[version]}]"
    redirected.world(7000 + version)
    done = run(redirected, "--connect-addr", f"{host}:{7000 + version}")
    assert done.returncode == 0, done.stderr


def test_nothing_is_left_on_the_port(redirected: Lab) -> None:
    """No socket in TIME_WAIT stands in the way of the proxy that binds next."""
    done = run(redirected, "--connect-addr", BOTH)
    assert done.returncode == 0, done.stderr
    assert redirected.pod.exec(["ss", "-Htan"]).stdout == ""


def test_as_the_pod_runs_it(redirected: Lab, public_program: list[str]) -> None:
    """User 65534 with no capability and no new privileges, nothing to write to."""
    read_only = 'mount --bind / /; mount -o remount,bind,ro /; exec "$@"'
    unshare = ["unshare", "--mount", "sh", "-c", read_only, "sh"]
    program = [*public_program[:-1], "proxyinit.validator"]
    done = redirected.pod.exec(
        [*unshare, *UNPRIVILEGED, *program, "--connect-addr", BOTH, "--log-level=debug"]
    )
    assert done.returncode == 0, done.stderr


def test_no_time_at_all_is_one_attempt(redirected: Lab) -> None:
    """A timeout of 0 fails only where an instant is not enough."""
    done = run(redirected, "--timeout=0")
    assert done.returncode == 0, done.stderr


def test_rules_that_come_late(lab: Lab, mode: str) -> None:
    """A redirect that is made while it tries is found by the next connection."""
    argv = [*VALIDATOR, "--timeout=60s", "--connect-addr", BOTH]
    with lab.pod.run(
        lambda: subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    ) as program:
        assert program.stderr
        try:
            assert any("Not redirected yet" in line for line in program.stderr)
            install(lab, mode)
            assert "Validated" in program.stderr.read()
        finally:
            program.kill()
    assert program.returncode == 0


def test_only_one_version_redirected(lab: Lab, mode: str) -> None:
    """IPv4 alone is not enough when both were asked for; the error names IPv6."""
    install(lab, mode, "--ipv6=false")
    done = run(lab, "--connect-addr", BOTH, "--timeout=1s")
    assert done.returncode == 95
    errors = [line for line in done.stderr.splitlines() if " ERROR " in line]
    assert len(errors) == 2
    assert NOWHERE[6] in errors[0]
    assert 'cause="redirect missing"' in errors[0]
    assert "Validated" not in done.stderr


def test_a_spared_user_is_told_so(lab: Lab, mode: str) -> None:
    """Run as the proxy's user its connections pass; the error names that user."""
    install(lab, mode)
    target = f"{CLIENT[4]}:9"
    argv = [*as_user(2102), *VALIDATOR, "--connect-addr", target, "--timeout=500ms"]
    done = lab.pod.exec(argv)
    assert done.returncode == 95
    assert "for user 2102" in done.stderr
