"""What the machine says of itself: the texts of /proc, and files that stand for it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from proxyinit.errors import NamespaceError
from proxyinit.host import Host, find_holders, read_text
from proxyinit.netns import open_namespace
from proxyinit.privileges import LockHolder

LOCKS = """\
1: FLOCK  ADVISORY  WRITE 4711 08:01:12345 0 EOF
1: -> FLOCK  ADVISORY  WRITE 4712 08:01:12345 0 EOF
2: POSIX  ADVISORY  READ  815 08:01:12345 1073741826 1073742335
3: FLOCK  ADVISORY  WRITE 16 08:02:12345 0 EOF
4: FLOCK  ADVISORY  WRITE 17 08:01:123456 0 EOF
5: FLOCK  ADVISORY  WRITE 0 08:01:12345 0 EOF
6: LEASE  ACTIVE    READ
7: FLOCK  ADVISORY  WRITE x 08:01:12345 0 EOF

"""


def test_holders_in_proc_locks() -> None:
    """Those of the same device and inode; waiters and odd lines don't hold it."""
    found = list(find_holders(LOCKS, "08:01:12345", "process-{}".format))

    assert found == [
        LockHolder(4711, "process-4711"),
        LockHolder(815, "process-815"),
        LockHolder(0, "process-0"),
    ]
    assert list(find_holders("", "08:01:12345", str)) == []


def test_the_holder_of_the_xtables_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real lock on a real file is found under this process' number and name."""
    lock = tmp_path / "xtables.lock"
    monkeypatch.setenv("XTABLES_LOCKFILE", str(lock))
    assert Host().lock_file() == str(lock)
    assert Host().lock_holders() == []

    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (holder,) = Host().lock_holders()

    assert holder == LockHolder(
        os.getpid(), Path("/proc/self/comm").read_text().strip()
    )
    assert Host().lock_holders() == []


def test_the_default_lock_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every iptables since 1.8 looks for it."""
    monkeypatch.delenv("XTABLES_LOCKFILE", raising=False)

    assert Host().lock_file() == "/run/xtables.lock"


def test_privileges() -> None:
    """As /proc tells them of this very process."""
    facts = dict(
        line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines()
    )

    found = Host().privileges()

    assert found.uid == os.geteuid()
    assert f"{found.bounding:016x}" == facts["CapBnd"]
    assert f"{found.effective:016x}" == facts["CapEff"]
    assert str(int(found.no_new_privs)) == facts["NoNewPrivs"]


def test_a_file_without_capabilities(tmp_path: Path) -> None:
    """A plain file carries none, and neither does one that is not there."""
    (tmp_path / "program").touch()

    assert Host().file_capabilities(str(tmp_path / "program")) == 0
    assert Host().file_capabilities(str(tmp_path / "nothing")) == 0


def test_reading_files(tmp_path: Path) -> None:
    """Text whole, bytes that are no text replaced, None for what can't be read."""
    (tmp_path / "long").write_text("x" * 200_000)
    (tmp_path / "binary").write_bytes(b"a\xffb")

    assert read_text(str(tmp_path / "long")) == "x" * 200_000
    assert read_text(str(tmp_path / "binary")) == "a\ufffdb"
    assert read_text(str(tmp_path / "nothing")) is None
    assert read_text(str(tmp_path)) is None


def test_ipv6_is_where_the_kernel_says_so() -> None:
    """The file exists whenever the kernel speaks IPv6, with or without addresses."""
    assert Host().has_ipv6() is Path("/proc/net/if_inet6").exists()


def test_opening_a_namespace() -> None:
    """The descriptor leads to the namespace at the path."""
    fd = open_namespace("/proc/self/ns/net")
    try:
        assert os.fstat(fd).st_ino == Path("/proc/self/ns/net").stat().st_ino
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    "kind", ["file", "folder", "pipe", "socket file", "link to nothing", "other kind"]
)
def test_no_network_namespace(tmp_path: Path, kind: str) -> None:
    """Anything else is refused without blocking, and no descriptor stays open."""
    path = tmp_path / "x"
    match kind:
        case "file":
            path.touch()
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "socket file":
            os.mknod(path, 0o140600)
        case "link to nothing":
            path.symlink_to("nothing")
        case _:
            path.symlink_to("/proc/self/ns/uts")
    before = len(list(Path("/proc/self/fd").iterdir()))

    with pytest.raises(NamespaceError, match="namespace") as caught:
        open_namespace(str(path))

    assert repr(str(path)) in str(caught.value)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
