"""The xtables lock: waited for, for a while; whoever holds it is named."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from installed import PROGRAM

from proxyinit.lab import Namespace

ARGUMENTS = ("-p", "4143", "-o", "4140", "-u", "2102")
WAIT = ("--lock-wait-secs", "1")
ON_NF_TABLES = ("nft", "nftables")
"""Modes that take no lock: the kernel takes their transactions one by one."""


def rules(namespace: Namespace) -> list[str]:
    """The rules and chains of all nat tables, of any backend and family."""
    text = ""
    for name in (
        "iptables-legacy",
        "ip6tables-legacy",
        "iptables-nft",
        "ip6tables-nft",
    ):
        text += namespace.exec([f"{name}-save", "-t", "nat"]).stdout
    native = namespace.exec(["nft", "list", "table", "inet", "proxy_init"]).stdout
    return [
        *(li for li in text.splitlines() if li.startswith("-A") or "- [" in li),
        *native.splitlines(),
    ]


def proxy_init(
    namespace: Namespace, lock: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run with another lock file; 30 s at most, whatever it waits for."""
    argv = ["env", f"XTABLES_LOCKFILE={lock}", PROGRAM, *arguments]
    return namespace.exec(argv, timeout=30)


@contextlib.contextmanager
def held(lock: Path, name: str) -> Iterator[int]:
    """Let another process, called `name`, hold a lock; its pid."""
    script = (
        "import fcntl, sys\n"
        "lock = open(sys.argv[1], 'w')\n"
        "fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "open('/proc/self/comm', 'w').write(sys.argv[2])\n"
        "print(flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(lock), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout
        assert holder.stdin
        holder.stdout.readline()
        yield holder.pid
        holder.stdin.close()


def errors(log: str) -> list[str]:
    return [line for line in log.splitlines() if "level=error" in line]


def warnings(log: str) -> list[str]:
    return [line for line in log.splitlines() if "level=warning" in line]


@pytest.mark.parametrize(
    "arguments",
    [pytest.param(ARGUMENTS, id="install"), pytest.param(("cleanup",), id="cleanup")],
)
def test_held_lock_ends_the_run_after_the_wait(
    namespace: Namespace, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """Exit 1 with file, pid and name; nothing changed, and no other backend taken."""
    if arguments == ("cleanup",):
        assert namespace.exec([PROGRAM, *ARGUMENTS]).returncode == 0
    before = rules(namespace)
    lock = tmp_path / "lock"
    with held(lock, "calico-felix") as pid:
        done = proxy_init(namespace, lock, *arguments, *WAIT)
    assert done.returncode == 1
    assert rules(namespace) == before
    assert warnings(done.stderr) == []
    told = errors(done.stderr)
    assert told
    for error in told:  # cleanup tells of each family
        assert str(lock) in error
        assert f"{pid} (calico-felix)" in error
        assert "--lock-wait-secs" in error
        assert "Another app is currently holding the xtables lock" in error


def test_lock_let_go_while_waiting(namespace: Namespace, tmp_path: Path) -> None:
    """A run that waits for the lock goes on when it is free."""
    lock = tmp_path / "lock"
    with (
        lock.open("w") as holder,
        subprocess.Popen(
            [PROGRAM, *ARGUMENTS, "--lock-wait-secs", "60", "--netns", namespace.path],
            env={**os.environ, "XTABLES_LOCKFILE": str(lock)},
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert process.stderr
        line = process.stderr.readline()  # the transaction, just before it is fed
        assert "iptables-legacy-restore" in line
        await_waiter(lock)
        assert rules(namespace) == []
        fcntl.flock(holder, fcntl.LOCK_UN)
        log = process.stderr.read()
    assert process.returncode == 0, log
    assert errors(log) == []
    assert sum("-j PROXY_INIT" in rule for rule in rules(namespace)) == 4


def await_waiter(lock: Path) -> None:
    """Return once /proc/locks shows somebody waiting for the file."""
    waiter = re.compile(rf"-> FLOCK .*:{lock.stat().st_ino} ")
    while not waiter.search(Path("/proc/locks").read_text()):
        time.sleep(0.005)  # the kernel tells nobody that somebody waits


def test_holder_of_another_file_is_not_blamed(
    namespace: Namespace, tmp_path: Path
) -> None:
    """Two files may have one inode number; only the holder of the lock is named."""
    folders = [tmp_path / "run", tmp_path / "elsewhere"]
    with contextlib.ExitStack() as stack:
        for folder in folders:
            folder.mkdir()
            mount = ["mount", "-t", "tmpfs", "none", str(folder)]
            subprocess.run(mount, check=True)
            stack.callback(subprocess.run, ["umount", str(folder)], check=True)
        lock, other = (folder / "file" for folder in folders)
        guilty = stack.enter_context(held(lock, "guilty"))
        innocent = stack.enter_context(held(other, "innocent"))
        assert lock.stat().st_ino == other.stat().st_ino
        done = proxy_init(namespace, lock, *ARGUMENTS, *WAIT)
    (error,) = errors(done.stderr)
    assert f"{guilty} (guilty)" in error
    assert f"{innocent} (innocent)" not in error


def test_lock_is_not_needed_when_nothing_is_written(
    namespace: Namespace, tmp_path: Path
) -> None:
    """A run that finds all in place doesn't wait for anybody."""
    assert namespace.exec([PROGRAM, *ARGUMENTS]).returncode == 0
    lock = tmp_path / "lock"
    with held(lock, "holder"):
        done = proxy_init(namespace, lock, *ARGUMENTS, *WAIT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mode", ON_NF_TABLES)
def test_nf_tables_takes_no_xtables_lock(
    namespace: Namespace, tmp_path: Path, mode: str
) -> None:
    """Through it the rules are installed and removed while the lock is held."""
    lock = tmp_path / "lock"
    with held(lock, "holder"):
        install = proxy_init(namespace, lock, *ARGUMENTS, "--iptables-mode", mode)
        assert len(rules(namespace)) > 0
        cleanup = proxy_init(namespace, lock, "cleanup")
    assert (install.returncode, cleanup.returncode) == (0, 0)
    assert rules(namespace) == []


@pytest.mark.parametrize("mode", ON_NF_TABLES)
def test_leftovers_behind_a_held_lock_undo_the_run(
    namespace: Namespace, tmp_path: Path, mode: str
) -> None:
    """When the other backend's old rules can't go, the new ones don't stay."""
    assert namespace.exec([PROGRAM, *ARGUMENTS]).returncode == 0
    before = rules(namespace)
    lock = tmp_path / "lock"
    with held(lock, "holder"):
        nft = (*ARGUMENTS, "--iptables-mode", mode)
        done = proxy_init(namespace, lock, *nft, *WAIT)
    assert done.returncode == 1
    assert "holder" in errors(done.stderr)[-1]
    assert rules(namespace) == before
    assert proxy_init(namespace, lock, *nft).returncode == 0


# === a lock file that can't be opened ===

READ_ONLY_RUN = 'mount -t tmpfs -o ro none /run && exec "$@"'


def in_read_only_run(
    namespace: Namespace, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run where /run is a read-only file system, as in a pod without an emptyDir."""
    unshared = ["unshare", "--mount", "sh", "-c", READ_ONLY_RUN, "sh"]
    return namespace.exec(
        [*unshared, "env", "-u", "XTABLES_LOCKFILE", PROGRAM, *arguments]
    )


def test_read_only_run(namespace: Namespace) -> None:
    """Exit 1, with the lock file, the reason and what to do; nothing is applied."""
    done = in_read_only_run(namespace, *ARGUMENTS)
    assert done.returncode == 1
    assert rules(namespace) == []
    assert warnings(done.stderr) == []
    (error,) = errors(done.stderr)
    assert "/run/xtables.lock" in error
    assert "Read-only file system" in error
    assert "emptyDir" in error


@pytest.mark.parametrize("mode", ON_NF_TABLES)
def test_read_only_run_is_no_matter_to_nf_tables(
    namespace: Namespace, mode: str
) -> None:
    """Modes on nf_tables install where the lock file can't be opened."""
    done = in_read_only_run(namespace, *ARGUMENTS, "--iptables-mode", mode)
    assert done.returncode == 0, done.stderr
    assert len(rules(namespace)) > 0


def test_lock_file_in_a_missing_folder(namespace: Namespace, tmp_path: Path) -> None:
    """Exit 1, with the lock file and the reason; nothing is applied."""
    lock = tmp_path / "missing" / "lock"
    done = proxy_init(namespace, lock, *ARGUMENTS)
    assert done.returncode == 1
    assert rules(namespace) == []
    (error,) = errors(done.stderr)
    assert str(lock) in error
    assert "No such file or directory" in error
    assert "XTABLES_LOCKFILE" in error


def test_lock_file_is_the_namespace_itself(namespace: Namespace) -> None:
    """With the namespace for a lock file, as other CNI plugins have it: no deadlock."""
    done = proxy_init(namespace, Path(namespace.path), *ARGUMENTS, *WAIT)
    assert done.returncode == 0, done.stderr
    assert sum("-j PROXY_INIT" in rule for rule in rules(namespace)) == 4
