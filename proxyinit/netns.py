"""Entering a network namespace, by path, without a process in between."""

from __future__ import annotations

import os
from fcntl import ioctl

from proxyinit.errors import NamespaceError

CLONE_NEWNET = 0x40000000
_NS_GET_USERNS = 0xB701  # linux/nsfs.h
_NS_GET_NSTYPE = 0xB703
_INITIAL = 0xEFFFFFF9
"""The inode of the namespace that the kernel booted with: NET_NS_INIT_INO in
linux/nsfs.h, since Linux 6.17. Others have had numbers from 0xF0000000 on always."""


def open_namespace(path: str) -> int:
    """A file descriptor of the network namespace at `path`.

    Raises `NamespaceError` when there is none, or it is something else. Nothing
    is entered yet.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        hint = "; run as root" if isinstance(error, PermissionError) else ""
        raise NamespaceError(
            f"expected a network namespace at {path!r}: {error.strerror}{hint}"
        ) from error
    try:
        kind = ioctl(fd, _NS_GET_NSTYPE)
    except OSError:
        kind = 0
    if kind != CLONE_NEWNET:
        os.close(fd)
        raise NamespaceError(
            f"{path!r} is no network namespace: expected a file such as "
            "/var/run/netns/NAME or /proc/PID/ns/net"
        )
    return fd


def is_nodes_own(fd: int) -> bool:
    """Whether the kernel booted with it, or process 1 lives there.

    Before Linux 6.17 it can't be told where process 1 is not to be seen: then False.
    """
    try:
        first = os.stat("/proc/1/ns/net")  # noqa: PTH116  (pathlib costs 8 ms)
    except OSError:
        first = None
    return leads_to_node(os.fstat(fd), first)


def leads_to_node(there: os.stat_result, first: os.stat_result | None) -> bool:
    """The same of a namespace's file and process 1's, None where it is hidden."""
    if there.st_ino == _INITIAL:
        return True
    return first is not None and os.path.samestat(there, first)


def other_owner() -> int | None:
    """The inode of the user namespace below this process's own that owns the network.

    None where it is this process's own, or may not be known: it is none that this
    one contains.
    """
    try:
        own = os.stat("/proc/self/ns/user").st_ino  # noqa: PTH116  (the same)
        fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        users = ioctl(fd, _NS_GET_USERNS)
    except OSError:
        return None
    finally:
        os.close(fd)
    try:
        found = os.fstat(users).st_ino
    finally:
        os.close(users)
    return None if found == own else found


def enter(fd: int) -> None:
    """Move the calling thread into the namespace; its children follow."""
    try:
        if hasattr(os, "setns"):  # Python 3.12
            os.setns(fd, CLONE_NEWNET)
        else:
            _setns(fd)
    except OSError as error:
        raise NamespaceError(
            f"can't enter the network namespace: {error.strerror}; "
            "run as root, or with CAP_SYS_ADMIN"
        ) from error


def _setns(fd: int) -> None:
    import ctypes  # noqa: PLC0415  (only needed on Python 3.11, and costs 2 ms)

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
