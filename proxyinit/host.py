"""What the kernel and this process say of themselves: facts without side effects.

Reading legacy ``-t nat`` creates that table, and tools that guess the backend
from what exists then flip over (istio#61019); so whether a table is there is
asked of /proc and of netlink, which create nothing.
"""

from __future__ import annotations

import os
import struct
import time
from fcntl import LOCK_EX, LOCK_NB, flock

from proxyinit.errors import NamespaceBusy, SysctlError
from proxyinit.nf_netlink import DORMANT, NFPROTO, nft_tables
from proxyinit.privileges import LockHolder, Privileges
from proxyinit.rules import INET, OUR_TABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from proxyinit.rules import Version

_NAMESPACE = "/proc/self/ns/net"
_NET = "/proc/thread-self/net"
"""As /proc/net, but of the thread that asks and not of the process's first one."""
_IPTABLES_TABLES = ("filter", "nat", "mangle", "raw", "security")
CLOSE_WAIT = "net.netfilter.nf_conntrack_tcp_timeout_close_wait"


def read_text(path: str) -> str | None:
    """A file's text, or None when it can't be read; binary bytes are replaced."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        chunks = list(iter(lambda: os.read(fd, 65536), b""))
    except OSError:
        return None
    finally:
        os.close(fd)
    return b"".join(chunks).decode("utf-8", "replace")


class Host:
    """The machine, seen from the network namespace that this process is in."""

    def has_ipv6(self) -> bool:
        """Whether the kernel speaks IPv6 at all; without it there is no traffic."""
        # Where /proc is hidden nothing is known, and ip6tables has to say.
        return _may_exist(f"{_NET}/if_inet6")

    def legacy_has_nat(self, version: Version) -> bool | None:
        """Whether a legacy nat table exists; None when root or /proc would tell."""
        path = f"{_NET}/ip{'' if version == 4 else '6'}_tables_names"
        names = read_text(path)
        if names is None:
            return None if _may_exist(path) else False
        return "nat" in names.split()

    def nft_has_nat(self, version: Version) -> bool | None:
        """Whether nf_tables holds iptables-nft's nat table; None when not told."""
        tables = self._nft_tables()
        return None if tables is None else (NFPROTO[version], "nat") in tables

    def nftables_has_ours(self) -> bool | None:
        """Whether nf_tables holds our own table; None when not told."""
        tables = self._nft_tables()
        return None if tables is None else (NFPROTO[INET], OUR_TABLE) in tables

    def nft_nat_is_dormant(self, version: Version) -> bool:
        """Whether iptables-nft's nat table is put to sleep: no packet asks it."""
        key = (NFPROTO[version], "nat")
        return bool((self._nft_tables() or {}).get(key, 0) & DORMANT)

    def has_native_tables(self) -> bool:
        """Whether nf_tables holds tables that are neither ours nor iptables-nft's."""
        known = {(NFPROTO[INET], OUR_TABLE)}
        known |= {(NFPROTO[v], t) for v in (4, 6) for t in _IPTABLES_TABLES}
        return bool((self._nft_tables() or {}).keys() - known)

    def _nft_tables(self) -> dict[tuple[int, str], int] | None:
        """Flags by (family, name) of every table of nf_tables; None when not told."""
        try:
            return dict(nft_tables())
        except OSError as error:
            # No such protocol or subsystem: this kernel has no nf_tables.
            return None if isinstance(error, PermissionError) else {}

    def has_other_users(self) -> bool:
        """Whether the network namespace is of a user namespace below this process's.

        So is a pod's with ``hostUsers: false``, seen from the node.
        """
        from proxyinit import netns  # noqa: PLC0415  (when something fails alone)

        return netns.other_owner() is not None

    def privileges(self) -> Privileges:
        """Uid and capabilities, from /proc/self/status."""
        text = read_text("/proc/self/status") or ""
        facts = dict(
            line.split(":\t", 1) for line in text.splitlines() if ":\t" in line
        )
        return Privileges(
            uid=os.geteuid(),
            bounding=int(facts.get("CapBnd", "0"), 16),
            effective=int(facts.get("CapEff", "0"), 16),
            no_new_privs=facts.get("NoNewPrivs", "0") == "1",
        )

    def file_capabilities(self, path: str) -> int:
        """The permitted capabilities that a program file carries, as a bit mask."""
        try:
            data = os.getxattr(path, "security.capability")
            return int(struct.unpack_from("<I", data, 4)[0])  # vfs_cap_data
        except (OSError, struct.error):
            return 0

    def lock_file(self) -> str:
        """The xtables lock, which iptables-legacy takes (iptables >= 1.8.6)."""
        return os.environ.get("XTABLES_LOCKFILE", "/run/xtables.lock")

    def lock_holders(self) -> list[LockHolder]:
        """Who holds the xtables lock, as far as /proc tells."""
        return _holders_of(self.lock_file())

    def lock_namespace(self, wait_s: float) -> None:
        """Be the only proxy-init at work in this network namespace from now on.

        The lock sits on the namespace itself, so it needs no file that could be
        missing or read-only, and containers of one pod see each other. It goes
        with the process. Raises `NamespaceBusy` after `wait_s` seconds.

        Where the xtables lock is on the namespace as well, as Istio's CNI sets it,
        iptables must be able to take it; then its lock has to do.
        """
        if _same_file(self.lock_file(), _NAMESPACE):
            return
        deadline = time.monotonic() + wait_s
        try:
            fd = os.open(_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)
            while not _try_lock(fd):
                if time.monotonic() >= deadline:
                    raise self._busy(wait_s)
                time.sleep(0.02)
            # A program that outlives a killed proxy-init keeps the lock: its
            # transaction must not come on top of a later run's.
            os.set_inheritable(fd, True)  # noqa: FBT003
        except OSError:
            return  # a sandbox kernel without locks on namespaces: go on without

    def _busy(self, wait_s: float) -> NamespaceBusy:
        holders = _holders_of(_NAMESPACE)
        who = ", ".join(f"process {h.pid} ({h.name})" for h in holders if h.pid)
        return NamespaceBusy(
            f"another proxy-init works in this network namespace: {who or 'unknown'}; "
            f"its lock was not free within {wait_s:g} s: let it finish, or wait longer "
            "with --lock-wait-secs"
        )

    def check_sysctl(self) -> None:
        """Raises `SysctlError` when the setting is there and can't be written."""
        path = _sysctl_path()
        if os.access(path, os.F_OK):
            os.close(_open_sysctl(path))

    def set_close_wait(self, seconds: int) -> None:
        """Set how long conntrack keeps a connection in CLOSE_WAIT."""
        fd = _open_sysctl(_sysctl_path())
        try:
            os.write(fd, b"%d\n" % seconds)
        except OSError as error:
            raise SysctlError(f"can't set {CLOSE_WAIT}: {error.strerror}") from error
        finally:
            os.close(fd)


def _may_exist(path: str) -> bool:
    """Whether a file of _NET is there, or /proc is hidden so that nothing is seen."""
    return os.access(path, os.F_OK) or not os.access(_NET, os.F_OK)


def _same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)  # noqa: PTH121
    except OSError:
        return False


def _try_lock(fd: int) -> bool:
    try:
        flock(fd, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sysctl_path() -> str:
    return f"/proc/sys/{CLOSE_WAIT.replace('.', '/')}"


def _open_sysctl(path: str) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        raise SysctlError(
            f"can't set {CLOSE_WAIT}: {path}: {error.strerror}; it needs root and a "
            "writable /proc/sys, in a pod 'privileged: true' and 'runAsUser: 0'"
        ) from error


def _process_name(pid: int) -> str:
    return (read_text(f"/proc/{pid}/comm") or "a process that has ended").strip()


def _holders_of(path: str) -> list[LockHolder]:
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return []
    device = status.st_dev
    file = f"{os.major(device):02x}:{os.minor(device):02x}:{status.st_ino}"
    return list(find_holders(read_text("/proc/locks") or "", file, _process_name))


def find_holders(
    locks: str, file: str, name_of: Callable[[int], str]
) -> Iterator[LockHolder]:
    """The holders of locks on a file, from the text of /proc/locks.

    `file` is what the kernel calls it, device in hex and inode: ``08:01:12345``.
    A line is ``1: FLOCK ADVISORY WRITE 4711 08:01:12345 0 EOF``; waiters have
    ``->`` after the number. A process of another pid namespace shows as 0.
    """
    for line in locks.splitlines():
        words = line.split()
        if len(words) < 6 or words[1] == "->":
            continue
        if words[5] == file and words[4].isdigit():
            pid = int(words[4])
            yield LockHolder(pid, name_of(pid))
