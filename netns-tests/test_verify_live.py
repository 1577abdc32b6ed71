"""Verify in real namespaces: it finds them, reads them, changes nothing."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from proxyinit.lab import PROXY_UID, Lab, Namespace, StandIn
from proxyinit.lab.programs import as_user
from proxyinit.verify import discover
from proxyinit.verify.node import Question, examine

PROGRAM = str(Path(sys.executable).with_name("proxy-init"))
ARGUMENTS = ("-p", "4143", "-o", "4140", "-u", str(PROXY_UID))
LONG = (
    *ARGUMENTS,
    *("-g", "77", "-r", "80,443", "--inbound-ports-to-ignore", "4190,4191,4567-4568"),
    *("--outbound-ports-to-ignore", "25,587,3306"),
    *("--subnets-to-ignore", "10.9.0.0/16,fd00:9::/32"),
    *("--outbound-subnets-to-ignore", "172.16.0.0/12,2001:db8:9::/48"),
)


def install(namespace: Namespace, mode: str, *arguments: str) -> str:
    argv = [PROGRAM, *(arguments or ARGUMENTS), "--iptables-mode", mode]
    done = namespace.exec(argv)
    assert done.returncode == 0, done.stderr
    return done.stderr


def execute(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program in this process's own namespace."""
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def verify(*argv: str, inside: Namespace | None = None) -> tuple[int, dict[str, Any]]:
    """The exit code, and the document that --format json prints."""
    command = [PROGRAM, "verify", "--format", "json", *argv]
    run = inside.exec if inside else execute
    done = run(command)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def only(document: dict[str, Any]) -> dict[str, Any]:
    (found,) = document["namespaces"]
    return dict(found)


def states(found: dict[str, Any], name: str) -> list[str]:
    return [check["state"] for check in found["checks"] if check["name"] == name]


def everything(namespace: Namespace) -> str:
    """All that a look could change: rules with counters, tables, interfaces."""
    script = (
        "nft -s list ruleset 2>&1; iptables-nft-save -c; ip6tables-nft-save -c; "
        "iptables-legacy-save -c; ip6tables-legacy-save -c; ip addr; ip route; "
        "cat /proc/net/ip_tables_names /proc/net/ip6_tables_names"
    )
    lines = namespace.exec(["sh", "-c", script]).stdout.splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


# === reading ===


def test_a_look_changes_nothing(namespace: Namespace, mode: str) -> None:
    """No table is made, no counter moved, before an install and after it."""
    for _ in range(2):
        before = everything(namespace)
        verify("--netns", namespace.path)
        assert everything(namespace) == before
        install(namespace, mode)


@pytest.mark.parametrize("arguments", [ARGUMENTS, LONG], ids=["few flags", "many"])
def test_flags_shown_are_those_that_were_given(
    namespace: Namespace, mode: str, arguments: tuple[str, ...]
) -> None:
    """What is read back, given to an install again, finds nothing to do."""
    install(namespace, mode, *arguments)
    code, document = verify(inside=namespace)

    assert (code, only(document)["verdict"]) == (0, "intercepted")
    shown = " ".join(only(document)["flags"]).split()
    log = install(namespace, mode, *shown)
    assert "nothing written" in log
    assert "redirect in place" not in log
    assert verify(*arguments, inside=namespace)[0] == 0


def test_other_flags_differ(namespace: Namespace, mode: str) -> None:
    """Held against flags that were not given, each difference is named."""
    install(namespace, mode)
    code, document = verify(*ARGUMENTS, "-r", "80", inside=namespace)

    assert code == 3
    assert set(states(only(document), "rules")) == {"fail"}


def test_nothing_installed(namespace: Namespace) -> None:
    """A namespace without rules is not intercepted: 3, not 1."""
    assert verify(inside=namespace)[0] == 3


def test_ipv6_in_use_is_not_passed_over(lab: Lab, mode: str) -> None:
    """Addresses of IPv6 without a redirect of IPv6 are a failure."""
    install(lab.pod, mode, *ARGUMENTS, "--ipv6=false")
    code, document = verify(inside=lab.pod)

    assert code == 3
    assert states(only(document), "IPv6") == ["fail"]
    assert "--ipv6=false" in only(document)["flags"]


def test_the_proxy_is_seen(lab: Lab, mode: str) -> None:
    """Its sockets and their user are the kernel's to tell, by sock_diag."""
    install(lab.pod, mode)
    lab.proxy()
    _, document = verify(inside=lab.pod)

    for name in ("inbound proxy", "outbound proxy"):
        assert states(only(document), name) == ["ok"]


def test_another_program_on_the_proxys_ports(lab: Lab) -> None:
    """Sockets of a user whose traffic does not pass mean a loop."""
    install(lab.pod, "nft")
    lab.stand_in(lab.pod, "impostor", (4143, 4140), uid=1000)
    code, document = verify(inside=lab.pod)

    assert code == 3
    assert set(states(only(document), "outbound proxy")) == {"fail"}


# === finding ===


@contextmanager
def living(namespace: Namespace, *argv: str) -> Iterator[int]:
    """The pid of a program that lives inside; it says so before this goes on."""
    command = [*argv, "sh", "-c", "echo here; exec sleep 600"]
    process = namespace.run(
        lambda: subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    )
    assert process.stdout
    assert process.stdout.readline() == "here\n"
    try:
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def test_by_pid_and_by_path(namespace: Namespace) -> None:
    """Either leads to the same namespace."""
    install(namespace, "nft")
    with living(namespace) as pid:
        by_pid = only(verify("--pid", str(pid))[1])
        by_path = only(verify("--netns", namespace.path)[1])

    assert by_pid["inode"] == by_path["inode"]
    assert by_pid["checks"] == by_path["checks"]
    assert by_pid["name"] == f"process {pid} (sleep)"
    assert by_path["name"] == namespace.name


def addresses(namespace: Namespace) -> tuple[str, str]:
    """Addresses that nobody else on this machine has, on an interface of its own."""
    number = os.getpid() % 60000
    pair = f"10.{200 + number % 50}.{number % 251}.9", f"fd00:7e57:{number:x}::9"
    script = "ip link add eth0 type veth peer name other && ip link set eth0 up"
    for address, prefix in zip(pair, (32, 128), strict=True):
        script += f" && ip addr add {address}/{prefix} dev eth0"
    assert namespace.exec(["sh", "-c", script]).returncode == 0
    return pair


def test_by_address(namespace: Namespace) -> None:
    """The namespace whose interface has the address, of either version."""
    for address in addresses(namespace):
        code, document = verify("--pod-ip", address)
        assert (code, only(document)["name"]) == (3, namespace.name)


def test_an_address_twice(namespace: Namespace) -> None:
    """Which one is meant can't be told: both are listed, and how to say it."""
    twin = Namespace("twin")
    try:
        address, _ = addresses(namespace)
        assert addresses(twin)[0] == address
        done = execute([PROGRAM, "verify", "--pod-ip", address])
    finally:
        twin.close()

    assert done.returncode == 1
    assert f"2 network namespaces have the address {address}" in done.stderr
    for member in (namespace, twin):
        assert f"{member.path.replace('/var', '')}: {member.name}" in done.stderr


def test_all(namespace: Namespace) -> None:
    """Every backend's redirect and every proxy without one; nobody else."""
    others = {name: Namespace(name) for name in ("legacy", "nftables", "idle", "proxy")}
    install(namespace, "nft")
    try:
        for mode in ("legacy", "nftables"):
            install(others[mode], mode)
        proxy = StandIn(others["proxy"], "proxy", (4143,), uid=PROXY_UID)
        code, document = verify("--all")
        proxy.close()
    finally:
        for other in others.values():
            other.close()

    found = {member["name"]: member for member in document["namespaces"]}
    assert code in (1, 3)  # the proxy's, or one that is not this test's
    assert found[namespace.name]["backend"] == "nft"
    for mode in ("legacy", "nftables"):
        assert found[others[mode].name]["backend"] == mode
        assert found[others[mode].name]["verdict"] == "intercepted"
    assert found[others["proxy"].name]["verdict"] == "differs"
    assert others["idle"].name not in found


def test_a_pod_goes_by_its_host_name(namespace: Namespace) -> None:
    """A process with a host name of its own is a pod, and that is its name."""
    install(namespace, "legacy")
    renamed = ("unshare", "--uts", "sh", "-c", 'hostname web-0; exec "$@"', "sh")
    with living(namespace, *renamed) as pid:
        _, document = verify("--all")

    inode = os.stat(namespace.path).st_ino  # noqa: PTH116  (a magic link)
    (found,) = [m for m in document["namespaces"] if m["inode"] == inode]
    assert (found["name"], found["pod"], found["pid"]) == ("web-0", "web-0", pid)


def test_a_namespace_that_ends_meanwhile() -> None:
    """It is reported, and is no failure of the others."""
    namespace = Namespace("brief")
    target = discover.target(namespace.path)
    namespace.close()

    report = examine(Question(), target)
    assert report
    assert report.verdict == "gone"


# === what can't be told ===


def as_nobody(namespace: Namespace, *argv: str) -> tuple[int, str]:
    """Run verify as a user who may read every file, and no more."""
    done = namespace.exec([*as_user(65534), PROGRAM, "verify", *argv])
    return done.returncode, done.stdout + done.stderr


def test_without_privileges(namespace: Namespace, mode: str) -> None:
    """Who may not look does not say that nothing is there."""
    install(namespace, mode)
    code, said = as_nobody(namespace)

    assert code == 1
    assert re.search(r"^\?  +readable", said, re.MULTILINE)
    assert "-> " in said


def test_another_namespace_without_privileges(namespace: Namespace) -> None:
    """A namespace that may not be entered is a sentence with a next step."""
    code, said = as_nobody(namespace, "--netns", "/proc/1/ns/net")
    assert code == 1
    assert "Permission denied" in said
    other = Namespace("other")
    code, said = as_nobody(namespace, "--netns", other.path)
    other.close()
    assert code == 1
    assert "can't enter the network namespace" in said
    assert "-> run as root" in said


def test_all_without_privileges(namespace: Namespace) -> None:
    """Processes that may not be looked at are counted, not passed over."""
    _, said = as_nobody(namespace, "--all")

    assert re.search(r"^\d+ process(es)? may not be looked at", said, re.MULTILINE)


@pytest.mark.parametrize(
    ("tool", "prints"),
    [
        pytest.param("iptables-nft-save", "echo '*nat'", id="a dump cut in half"),
        pytest.param("iptables-nft-save", "head -c 1000000 /dev/urandom", id="garbage"),
        pytest.param("iptables-nft-save", "echo broken >&2; exit 1", id="a failure"),
    ],
)
def test_programs_that_make_no_sense(
    namespace: Namespace, tmp_path: Path, tool: str, prints: str
) -> None:
    """What is not understood is not taken for absence, nor does it end the look."""
    install(namespace, "nft")
    fake = tmp_path / tool
    fake.write_text(f"#!/bin/sh\n{prints}\n")
    fake.chmod(0o755)
    path = f"PATH={tmp_path}:{os.environ['PATH']}"
    done = namespace.exec(["env", path, PROGRAM, "verify", "--format", "json"])

    assert done.stderr == ""
    found = only(json.loads(done.stdout))
    assert "unknown" in states(found, "readable")
    assert done.returncode in (1, 3)
    assert found["verdict"] != "intercepted"


@pytest.mark.parametrize(
    "prints",
    [
        pytest.param("echo 'table inet proxy_init { chain '", id="cut in half"),
        pytest.param('echo \'{"nftables": [{"metainfo": {}}]}\'', id="JSON"),
        pytest.param("echo 'nft: syntax v99' >&2; exit 1", id="a failure"),
    ],
)
def test_an_nft_of_another_style(
    namespace: Namespace, tmp_path: Path, prints: str
) -> None:
    """Its answer is shown, and nothing is said about the rules."""
    install(namespace, "nftables")
    fake = tmp_path / "nft"
    fake.write_text(f"#!/bin/sh\n{prints}\n")
    fake.chmod(0o755)
    path = f"PATH={tmp_path}:{os.environ['PATH']}"
    done = namespace.exec(["env", path, PROGRAM, "verify", "--format", "json"])

    assert done.stderr == ""
    assert done.returncode == 1
    assert states(only(json.loads(done.stdout)), "readable") == ["unknown"]


def test_no_bar_and_no_colour_outside_a_terminal(namespace: Namespace) -> None:
    """What a program reads holds nothing but text; standard error stays empty."""
    install(namespace, "nft")
    done = execute([PROGRAM, "verify", "--all"])

    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert namespace.name in done.stdout


def test_on_a_terminal(namespace: Namespace) -> None:
    """A bar while it works, then one line a namespace however narrow it is."""
    install(namespace, "nft")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 25, 72, 0, 0))
    argv = [PROGRAM, "verify", "--all"]
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        argv,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**environment, "TERM": "xterm"},
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while data := os.read(ours, 65536):
            shown += data
    os.close(ours)
    process.wait()

    bar, _, rest = shown.decode().rpartition("\x1b[?25h")  # the cursor comes back
    assert "100%" in bar
    lines = re.sub(r"\x1b\[[\d;?]*[A-Za-z]|\r", "", rest).splitlines()
    assert max(map(len, lines)) <= 72, lines
    (line,) = [line for line in lines if namespace.name in line]
    assert line.startswith("ok  ")


def test_interrupted(namespace: Namespace) -> None:
    """Ctrl-C ends it without a traceback."""
    fifo = f"/tmp/{namespace.name}"  # noqa: S108
    os.mkfifo(fifo)
    install(namespace, "nft")
    script = f"echo > {fifo}; sleep 60"
    folder = Path(f"{fifo}-bin")
    folder.mkdir()
    fake = folder / "iptables-nft-save"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    try:
        process = namespace.run(
            lambda: subprocess.Popen(
                [PROGRAM, "verify"],
                env=environment,
                stderr=subprocess.PIPE,
                text=True,
                process_group=0,
            )
        )
        Path(fifo).read_text(encoding="ascii")  # until the program runs
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=30)
    finally:
        shutil.rmtree(folder)
        Path(fifo).unlink()

    assert process.returncode not in (0, 3)
    assert "Traceback" not in said
