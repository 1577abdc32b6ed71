"""A network namespace to work in, and the values that addresses go by.

Sockets belong to the namespace, and to the user, of the thread that opens them;
so no process is needed to connect from inside a pod as any user.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from pyroute2 import IPRoute, netns

from proxyinit.netns import CLONE_NEWNET, enter, open_namespace

T = TypeVar("T")

FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}
"""Address families by IP version."""

IFA_F_NODAD = 0x02
"""Use an IPv6 address at once, without asking whether another has it."""

_numbers = itertools.count()


def version_of(address: str) -> int:
    """4 or 6."""
    return 6 if ":" in address else 4


class Namespace:
    """A network namespace of its own name, with loopback up; gone after `close`."""

    def __init__(self, label: str) -> None:
        self.name = f"proxyinit-{os.getpid()}-{next(_numbers)}-{label}"
        _make_namespace(self.name)
        self.path = f"/var/run/netns/{self.name}"
        self._fd = open_namespace(self.path)
        try:
            self.run(self._loopback_up)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _loopback_up() -> None:
        with IPRoute() as links:
            links.link("set", index=1, state="up")

    def close(self) -> None:
        """Remove the namespace; what runs inside must have ended before."""
        os.close(self._fd)
        netns.remove(self.name)

    def enter(self) -> None:
        """Move the calling thread into the namespace; made for ``preexec_fn``."""
        enter(self._fd)

    def run(
        self, function: Callable[..., T], *args: Any, uid: int = 0, gid: int = 0
    ) -> T:
        """Call a function inside the namespace; sockets it opens belong to `uid`."""
        outcome: list[T] = []
        failure: list[BaseException] = []

        def inside() -> None:
            try:
                with self.inside(uid=uid, gid=gid):
                    outcome.append(function(*args))
            except BaseException as error:  # noqa: BLE001  (raised again below)
                failure.append(error)

        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
        if failure:
            raise failure[0]
        return outcome[0]

    @contextlib.contextmanager
    def inside(self, *, uid: int = 0, gid: int = 0) -> Iterator[None]:
        """Make the calling thread live inside; it must end without leaving.

        The kernel compares owners with the *file system* ids a socket was opened
        under, which unlike the other ids belong to a single thread.
        """
        self.enter()
        libc = ctypes.CDLL(None)
        libc.setfsgid(gid)
        libc.setfsuid(uid)
        yield

    def exec(
        self, argv: Sequence[str], *, text: str = "", timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a program inside; never raises for its exit status."""
        # Started from a thread that lives inside: code between fork and exec could
        # deadlock with the stand-ins' threads, and takes twice as long.
        return self.run(
            lambda: subprocess.run(
                argv,
                input=text,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        )

    def add_address(self, interface: str, address: str, prefix: int) -> None:
        """Give an interface one more address, usable at once."""

        def add() -> None:
            with IPRoute() as links:
                flags = IFA_F_NODAD if version_of(address) == 6 else 0
                index = links.link_lookup(ifname=interface)[0]
                links.addr(
                    "add",
                    index=index,
                    address=address,
                    prefixlen=prefix,
                    family=FAMILY[version_of(address)],
                    flags=flags,
                )

        self.run(add)


def _make_namespace(name: str) -> None:
    """Name the new namespace of a thread that then ends.

    pyroute2's own `create` forks, and gives up on a child that a busy machine
    does not run within two seconds.
    """

    def make() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), name)
        netns.attach(name, "thread-self")

    with ThreadPoolExecutor(max_workers=1) as threads:
        threads.submit(make).result()
