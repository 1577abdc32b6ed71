"""What the kernel refuses: another backend, or a cause, a next step, and no trace.

System calls are made to fail by strace, with the errors that kernels without
ip_tables, nf_tables or IPv6, pods without capabilities and security modules give.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from installed import PROGRAM

from proxyinit.backend import title
from proxyinit.lab import Namespace

ARGUMENTS = ("-p", "4143", "-o", "4140", "-u", "2102")
FRONTENDS = ("iptables-legacy", "ip6tables-legacy", "iptables-nft", "ip6tables-nft")
ON_LEGACY, ON_NFT = set(FRONTENDS[:2]), set(FRONTENDS[2:])


def rules(namespace: Namespace) -> dict[str, list[str]]:
    """The rules and chains of each nat table that has any, counters aside."""
    found = {}
    for name in FRONTENDS:
        dump = namespace.exec([f"{name}-save", "-t", "nat"]).stdout
        lines = re.sub(r" \[\d+:\d+\]", "", dump).splitlines()
        kept = [line for line in lines if line.startswith("-A") or line.endswith(" -")]
        if kept:
            found[name] = kept
    native = namespace.exec(["nft", "list", "table", "inet", "proxy_init"]).stdout
    if native:
        found["nftables"] = native.splitlines()
    return found


def lines(done: subprocess.CompletedProcess[str], level: str) -> list[str]:
    return [line for line in done.stderr.splitlines() if f"level={level}" in line]


def refused(
    namespace: Namespace, *injections: str, mode: str = "legacy"
) -> subprocess.CompletedProcess[str]:
    """Run while system calls, as in ``getsockopt:error=EPERM``, fail."""
    strace = ["strace", "-f", "-qq", "-o", "/dev/null"]
    for injection in injections:
        strace += ["-e", f"inject={injection}"]
    return namespace.exec([*strace, PROGRAM, *ARGUMENTS, "--iptables-mode", mode])


FALLBACKS = [
    pytest.param(
        "getsockopt:error=ENOPROTOOPT",
        "legacy",
        "the kernel has no ip_tables",
        "iptables who?",
        id="no ip_tables",
    ),
    pytest.param(
        "getsockopt:error=ENOENT",
        "legacy",
        "the kernel has no legacy nat table",
        "Table does not exist",
        id="no iptable_nat",
    ),
    pytest.param(
        "getsockopt:error=EPERM",
        "legacy",
        "the kernel says no although",
        "Permission denied (you must be root)",
        id="not permitted",
    ),
    pytest.param(
        "getsockopt:error=EACCES",
        "legacy",
        "a security module such as SELinux",
        "Permission denied",
        id="SELinux",
    ),
    pytest.param(
        "recvmsg:error=EINVAL",
        "nft",
        "the kernel's nf_tables does not answer",
        "Could not fetch rule set generation id: Invalid argument",
        id="nf_tables not in the kernel",
    ),
    pytest.param(
        "recvmsg:error=EOPNOTSUPP",
        "nft",
        "the kernel's nf_tables does not answer",
        "Could not fetch rule set generation id: Operation not supported",
        id="nf_tables not loaded",
    ),
    pytest.param(
        "sendto,sendmsg:error=EPERM",
        "nft",
        "the kernel says no although",
        "Permission denied (you must be root)",
        id="nft not permitted",
    ),
    pytest.param(
        "recvmsg:error=EOPNOTSUPP",
        "nftables",
        "the kernel's nf_tables does not answer",
        "cache initialization failed: Operation not supported",
        id="no nf_tables, native",
    ),
    pytest.param(
        "sendto,sendmsg:error=EPERM",
        "nftables",
        "the kernel says no although",
        "Operation not permitted",
        id="native not permitted",
    ),
]


@pytest.mark.parametrize(("injection", "mode", "cause", "raw"), FALLBACKS)
def test_other_backend_takes_over(
    namespace: Namespace, injection: str, mode: str, cause: str, raw: str
) -> None:
    """Exit 0 on another backend in both families; a warning: cause and raw text."""
    done = refused(namespace, injection, mode=mode)
    assert done.returncode == 0, done.stderr
    assert set(rules(namespace)) == (ON_NFT if mode == "legacy" else ON_LEGACY)
    warning, *more = lines(done, "warning")
    assert len(more) == (mode == "nftables")  # iptables-nft can't be used either
    assert f"{title(mode)} can't be used here: {cause}" in warning
    assert raw in warning


ERRORS = [
    pytest.param(
        ("socket:error=EAFNOSUPPORT",),
        "the kernel was started without this IP version",
        "--ipv6=false",
        "Address family not supported by protocol",
        id="neither backend knows the address family",
    ),
    pytest.param(
        ("socket:error=EPERM",),
        "the kernel says no although",
        "audit log",
        "Operation not permitted",
        id="a seccomp profile forbids sockets",
    ),
    pytest.param(
        ("socket:error=EACCES",),
        "security module",
        "audit log",
        "Permission denied",
        id="a security module forbids sockets",
    ),
    pytest.param(
        ("socket:error=EPROTONOSUPPORT",),
        "the kernel has no nf_tables",
        "modprobe",
        "Protocol not supported",
        id="no protocol at all",
    ),
    pytest.param(
        ("getsockopt:error=ENOPROTOOPT", "recvmsg:error=EINVAL"),
        "the kernel has no ip_tables",
        "modprobe ip_tables",
        "iptables who?",
        id="neither ip_tables nor nf_tables",
    ),
]


@pytest.mark.parametrize(("injections", "cause", "advice", "raw"), ERRORS)
def test_no_backend_left(
    namespace: Namespace,
    mode: str,
    *,
    injections: tuple[str, ...],
    cause: str,
    advice: str,
    raw: str,
) -> None:
    """Exit 1; the error has cause, next step and raw text, no usage, no traceback."""
    done = refused(namespace, *injections, mode=mode)
    assert done.returncode == 1
    assert rules(namespace) == {}
    assert done.stdout == ""
    (error,) = lines(done, "error")
    assert cause in error
    assert advice in error
    assert raw in error
    assert "Usage" not in done.stderr
    assert "Traceback" not in done.stderr


def test_lock_that_the_kernel_lacks_is_held_by_nobody(namespace: Namespace) -> None:
    """A file system without locks is told apart from a lock that somebody holds."""
    done = refused(namespace, "flock:error=ENOLCK")
    assert done.returncode == 1
    assert rules(namespace) == {}
    (error,) = lines(done, "error")
    assert "No locks available" in error
    assert "held by" not in error.partition("stderr=")[0]
    assert "another program holds" not in error.partition("stderr=")[0]


# === one program that fails: the first of its name on PATH ===


def replace(folder: Path, name: str, script: str) -> None:
    """Put a script in place of one program."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def run_with(
    namespace: Namespace, folder: Path, mode: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    path = f"PATH={folder}:{os.environ['PATH']}"
    argv = [PROGRAM, *ARGUMENTS, "--iptables-mode", mode, *arguments]
    return namespace.exec(["env", path, *argv])


NO_MODULE = (
    "Warning: Extension owner revision 0 not supported, missing kernel module?\n"
    "iptables: No chain/target/match by that name."
)
FAILS_MIDWAY = [
    pytest.param("ip6tables-restore: line 7 failed", id="it says no reason"),
    pytest.param(
        "Another app is currently holding the xtables lock. Stopped waiting after 5s.",
        id="the lock was taken in between",
    ),
]


@pytest.fixture(params=["fresh", "older", "damaged"])
def before(
    request: pytest.FixtureRequest, namespace: Namespace, iptables_mode: str
) -> dict[str, list[str]]:
    """What stands in the tables before the run that fails midway."""
    changes: tuple[str, ...] = ()
    if request.param != "fresh":
        older = ("-p", "5143", "-o", "5140", "-u", "0,7", "-r", "80,443")
        done = namespace.exec([PROGRAM, *older, "--iptables-mode", iptables_mode])
        assert done.returncode == 0, done.stderr
        changes = ("-N MINE", "-I OUTPUT -p udp -j MINE", "-A OUTPUT -p tcp -j RETURN")
    if request.param == "damaged":
        changes += (
            "-I OUTPUT -m comment --comment mine -j PROXY_INIT_OUTPUT",
            "-A OUTPUT -p tcp -j PROXY_INIT_OUTPUT",
            "-A MINE -g PROXY_INIT_OUTPUT",
            "-F PREROUTING",
            "-F PROXY_INIT_REDIRECT",
            "-X PROXY_INIT_REDIRECT",
        )
    for change in changes:
        argv = [f"iptables-{iptables_mode}", "-t", "nat", *change.split()]
        made = namespace.exec(argv)
        assert made.returncode == 0, made.stderr
    return rules(namespace)


@pytest.mark.parametrize("message", FAILS_MIDWAY)
def test_ipv6_that_fails_midway_puts_ipv4_back(
    namespace: Namespace,
    iptables_mode: str,
    tmp_path: Path,
    before: dict[str, list[str]],
    message: str,
) -> None:
    """IPv4 was written and is put back, rule by rule in its place; exit 1 with why."""
    replace(
        tmp_path, f"ip6tables-{iptables_mode}-restore", f'echo "{message}" >&2; exit 1'
    )
    done = run_with(namespace, tmp_path, iptables_mode)
    assert done.returncode == 1
    assert (
        f"iptables-{iptables_mode}-restore" in lines(done, "info")[0]
    )  # it was written
    assert rules(namespace) == before
    (error,) = lines(done, "error")
    assert f"ip6tables-{iptables_mode}-restore failed with status 1" in error
    assert message in error
    assert any("IPv4: put back" in warning for warning in lines(done, "warning"))


def test_module_missing_for_ipv6_alone_moves_both_families(
    namespace: Namespace, iptables_mode: str, tmp_path: Path
) -> None:
    """IPv4 goes back and then goes, with IPv6, to the backend that can do both."""
    script = f"cat >&2 <<'END'\n{NO_MODULE}\nEND\nexit 1"
    replace(tmp_path, f"ip6tables-{iptables_mode}-restore", script)
    done = run_with(namespace, tmp_path, iptables_mode)
    assert done.returncode == 0, done.stderr
    assert set(rules(namespace)) == (ON_NFT if iptables_mode == "legacy" else ON_LEGACY)
    assert "missing kernel module?" in done.stderr


@pytest.mark.parametrize(
    "message",
    [
        pytest.param("Permission denied (you must be root)", id="not permitted"),
        pytest.param("something nobody has heard of", id="unknown"),
    ],
)
def test_ipv6_that_can_not_be_read_stops_before_any_write(
    namespace: Namespace, iptables_mode: str, tmp_path: Path, message: str
) -> None:
    """Both families are read before one is written: IPv4 stays as it is; exit 1."""
    script = f"echo 'iptables-save v1.8.9 ({iptables_mode}): {message}' >&2; exit 1"
    for name in ("ip6tables-legacy-save", "ip6tables-nft-save", "nft"):
        replace(tmp_path, name, script)
    before = rules(namespace)
    done = run_with(namespace, tmp_path, iptables_mode)
    assert done.returncode == 1
    assert rules(namespace) == before
    assert "-restore --noflush" not in done.stderr
    assert message in lines(done, "error")[-1]


def test_program_that_says_nothing(
    namespace: Namespace, iptables_mode: str, tmp_path: Path
) -> None:
    """A program that fails without a word is named with its exit status."""
    replace(tmp_path, f"iptables-{iptables_mode}-restore", "exit 3")
    done = run_with(namespace, tmp_path, iptables_mode)
    assert done.returncode == 1
    assert rules(namespace) == {}
    assert (
        f"iptables-{iptables_mode}-restore failed with status 3"
        in lines(done, "error")[0]
    )


def test_program_that_does_nothing_is_found_out(
    namespace: Namespace, iptables_mode: str, tmp_path: Path
) -> None:
    """Rules are read back: a restore that says yes and does nothing is an error."""
    replace(tmp_path, f"ip6tables-{iptables_mode}-restore", "cat > /dev/null")
    done = run_with(namespace, tmp_path, iptables_mode)
    assert done.returncode == 1
    assert rules(namespace) == {}
    assert "IPv6: chain PROXY_INIT_REDIRECT is missing" in lines(done, "error")[-1]


def test_dump_that_makes_no_sense(
    namespace: Namespace, iptables_mode: str, tmp_path: Path
) -> None:
    """What can't be understood is not taken for an empty table."""
    replace(
        tmp_path, f"iptables-{iptables_mode}-save", "echo '*nat'; echo ':OUTPUT ACCEPT'"
    )
    done = run_with(namespace, tmp_path, iptables_mode)
    assert done.returncode == 1
    assert rules(namespace) == {}
    assert "makes no sense" in lines(done, "error")[0]


def test_native_rules_that_iptables_nft_can_not_show(namespace: Namespace) -> None:
    """A nat table that is more than iptables is left alone, by install and cleanup."""
    native = (
        "table ip nat { set ports { type inet_service; }; "
        "chain PREROUTING { type nat hook prerouting priority -100; "
        "tcp dport @ports redirect to :9; ct state new meta mark set 5; }; }"
    )
    assert namespace.exec(["nft", native]).returncode == 0
    before = namespace.exec(["nft", "list", "ruleset"]).stdout
    for argv in ([PROGRAM, *ARGUMENTS, "--iptables-mode", "nft"], [PROGRAM, "cleanup"]):
        done = namespace.exec(argv)
        assert done.returncode == 1
        assert "nftables" in lines(done, "error")[0]
        assert namespace.exec(["nft", "list", "ruleset"]).stdout == before


# === IPv6 ===


def test_kernel_without_ipv6(namespace: Namespace, mode: str) -> None:
    """No IPv6 in the kernel: IPv4 is installed, one warning, ip6tables untouched."""
    hide = 'mount -t tmpfs none "/proc/$$/task/$$/net" && exec "$@"'
    argv = ["unshare", "--mount", "sh", "-c", hide, "sh", PROGRAM, *ARGUMENTS]
    done = namespace.exec([*argv, "--iptables-mode", mode])
    assert done.returncode == 0, done.stderr
    assert set(rules(namespace)) == {title(mode)}
    (warning,) = lines(done, "warning")
    assert "IPv6 is not redirected: this kernel has no IPv6" in warning
    assert "ip6tables" not in done.stderr


def test_ipv6_switched_off_by_sysctl_is_redirected_all_the_same(
    namespace: Namespace, mode: str
) -> None:
    """The switch can be turned back later; the rules are there then."""
    off = "/proc/sys/net/ipv6/conf/all/disable_ipv6"
    assert namespace.exec(["sh", "-c", f"echo 1 > {off}"]).returncode == 0
    done = namespace.exec([PROGRAM, *ARGUMENTS, "--iptables-mode", mode])
    assert done.returncode == 0, done.stderr
    assert len(rules(namespace)) == (1 if mode == "nftables" else 2)
