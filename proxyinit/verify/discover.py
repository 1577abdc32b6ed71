"""Which network namespaces there are on this node, and whose they are.

Found through /proc and the folders where namespaces are mounted by name, as Istio's
repair finds pods: no container runtime is asked and no program is run.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from proxyinit import netns
from proxyinit.errors import NamespaceError
from proxyinit.host import read_text

MOUNTED = ("/run/netns", "/var/run/netns", "/run/docker/netns")
"""Where `ip netns`, container runtimes and Docker keep namespaces by name."""

_CLONE_NEWUTS = 0x04000000


class NamespaceGone(NamespaceError):
    """A network namespace ended between being found and being entered."""


@dataclass(frozen=True, slots=True)
class Target:
    """A network namespace: how to open it, and the processes that live in it.

    `inode` tells whether what `path` leads to later is still the same. `name` is
    the name it is mounted under, if any.
    """

    path: str
    inode: int
    pids: tuple[int, ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose namespace it is, as far as its oldest process tells.

    `pod` is the host name that the process sees where it is not the node's own:
    in Kubernetes the pod's name. `pod_uid` comes from the name of its cgroup.
    """

    name: str
    pod: str = ""
    pod_uid: str = ""
    pid: int | None = None
    command: str = ""


def targets() -> tuple[list[Target], int]:
    """Every network namespace, and how many processes may not be looked at.

    In the order of their oldest process ids; those without a process come last.
    """
    pids: dict[int, list[int]] = {}
    hidden = 0
    names = [entry.name for entry in Path("/proc").iterdir()]
    for pid in sorted(int(name) for name in names if name.isdigit()):
        try:
            status = Path(_of_process(pid)).stat()
        except PermissionError:
            hidden += 1
        except OSError:  # it has ended
            continue
        else:
            pids.setdefault(status.st_ino, []).append(pid)
    mounted = dict(_mounted())
    found = [
        Target(_of_process(members[0]), inode, tuple(members), _base(path))
        for inode, members in pids.items()
        for path in [mounted.pop(inode, "")]
    ]
    found += [Target(path, inode, (), _base(path)) for inode, path in mounted.items()]
    return found, hidden


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _mounted() -> Iterator[tuple[int, str]]:
    """(inode, path) of every namespace that is mounted by name."""
    try:
        nsfs = Path("/proc/self/ns/net").stat().st_dev
    except OSError:
        return
    for folder in MOUNTED:
        with contextlib.suppress(OSError):
            for path in sorted(Path(folder).iterdir()):
                with contextlib.suppress(OSError):
                    status = path.stat()
                    if status.st_dev == nsfs:
                        yield status.st_ino, str(path)


def target(path: str) -> Target:
    """The namespace at a path; raises `NamespaceError` when there is none."""
    fd = netns.open_namespace(path)
    inode = os.fstat(fd).st_ino
    os.close(fd)
    pid = re.fullmatch(r"/proc/(\d+)/ns/net", path)
    return Target(
        path, inode, (int(pid[1]),) if pid else (), "" if pid else _base(path)
    )


def enter(wanted: Target) -> None:
    """Move this thread into the namespace, by any process that still lives there.

    To stay where one is needs no privilege. Raises `NamespaceGone` when nothing
    leads there any more.
    """
    if Path("/proc/thread-self/ns/net").stat().st_ino == wanted.inode:
        return
    failure: NamespaceError | None = None
    for path in dict.fromkeys((wanted.path, *map(_of_process, wanted.pids))):
        try:
            fd = netns.open_namespace(path)
        except NamespaceError as error:
            failure = None if isinstance(error.__cause__, FileNotFoundError) else error
            continue
        try:
            if os.fstat(fd).st_ino == wanted.inode:
                netns.enter(fd)
                return
        finally:
            os.close(fd)
    if failure:
        raise failure
    raise NamespaceGone(f"the network namespace at {wanted.path!r} went away meanwhile")


def _of_process(pid: int) -> str:
    return f"/proc/{pid}/ns/net"


@contextlib.contextmanager
def inside(wanted: Target) -> Iterator[None]:
    """Be in a namespace for a while, and come back."""
    home = netns.open_namespace("/proc/thread-self/ns/net")
    try:
        enter(wanted)
        yield
    finally:
        netns.enter(home)
        os.close(home)


def holding(
    address: str, found: list[Target], addresses: Callable[[], tuple[str, ...]]
) -> list[Target]:
    """Those of the namespaces that have an interface with the address."""
    holders = []
    for candidate in found:
        with contextlib.suppress(NamespaceError), inside(candidate):
            if address in addresses():
                holders.append(candidate)
    return holders


# === whose it is ===


def identify(found: Target) -> Identity:
    """Whose namespace it is; what has ended meanwhile leaves its part empty."""
    pid = min(found.pids, key=_started, default=None)
    if pid is None:
        return Identity(found.name or f"namespace {found.inode}")
    command = _command(pid)
    pod = _host_name(pid)
    program = command.split(" ")[0].rpartition("/")[2]
    node = "the node itself" if 1 in found.pids else ""
    name = pod or found.name or node or f"process {pid} ({program})"
    return Identity(
        name, pod, pod_uid(read_text(f"/proc/{pid}/cgroup") or ""), pid, command
    )


def pod_uid(cgroup: str) -> str:
    """The pod's uid, from the text of /proc/PID/cgroup; empty when it has none.

    The kubelet names groups ``kubepods/.../pod<uid>/`` or, through systemd, with
    underscores for dashes: ``kubepods-burstable-pod<uid>.slice``.
    """
    found = re.search(
        r"kubepods.*pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})", cgroup
    )
    return found[1].replace("_", "-") if found else ""


def _started(pid: int) -> int:
    """When a process started, in clock ticks; one that has ended counts as young."""
    text = read_text(f"/proc/{pid}/stat") or ""
    fields = text.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 else 2**63


def _command(pid: int) -> str:
    line = (read_text(f"/proc/{pid}/cmdline") or "").replace("\0", " ").strip()
    return line or (read_text(f"/proc/{pid}/comm") or "").strip()


def _host_name(pid: int) -> str:
    """The host name in the process's UTS namespace, unless that is this process's."""
    try:
        there = os.open(f"/proc/{pid}/ns/uts", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    home = os.open("/proc/thread-self/ns/uts", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.path.sameopenfile(there, home):
            return ""
        libc = ctypes.CDLL(None)
        if libc.setns(there, _CLONE_NEWUTS):
            return ""
        name = os.uname().nodename
        libc.setns(home, _CLONE_NEWUTS)
        return name
    finally:
        os.close(there)
        os.close(home)
