"""Entering a network namespace, by path, without a process in between."""

from __future__ import annotations

import os
from fcntl import ioctl

from proxyinit.errors import NamespaceError

CLONE_NEWNET = 0x40000000
_NS_GET_NSTYPE = 0xB703  # linux/nsfs.h


def open_namespace(path: str) -> int:
    """A file descriptor of the network namespace at `path`.

    Raises `NamespaceError` when there is none, or it is something else. Nothing
    is entered yet.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise NamespaceError(
            f"expected a network namespace at {path!r}: {error.strerror}"
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
    """Whether process 1 lives there; False when this process may not see where."""
    try:
        first, other = os.stat("/proc/1/ns/net"), os.fstat(fd)  # noqa: PTH116  (8 ms)
    except OSError:
        return False
    return (first.st_dev, first.st_ino) == (other.st_dev, other.st_ino)


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
