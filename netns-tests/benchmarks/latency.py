"""What rules add to the time that a new connection takes, mode against mode.

Connections are opened in turn in four laboratories that stand side by side, with
and without the rules in question and in both modes, so whatever else the machine
does slows all alike. A connection is established by the kernel alone: nobody has to
be woken up to accept it within the time that is measured.
"""

from __future__ import annotations

import socket
import statistics
import struct
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from proxyinit.lab import POD, Lab

PROGRAM = str(Path(sys.executable).with_name("proxy-init"))
ROUNDS = 4000
IGNORED = [
    "--inbound-ports-to-ignore",
    ",".join(f"{20000 + 20 * n}-{20009 + 20 * n}" for n in range(500)),
    "--inbound-subnets-to-ignore",
    ",".join(f"172.{16 + n // 256}.{n % 256}.0/25" for n in range(500)),
]
"""500 ranges and 500 subnets; none of them is the client's or of its connections."""

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: close by a reset, so that no port stays occupied."""


@dataclass
class Place:
    """A pod with rules, somebody who connects to it, and how long that took."""

    lab: Lab
    listener: socket.socket
    times_us: list[float] = field(default_factory=list)

    def connect(self) -> None:
        """Open one connection from the client, in the calling thread."""
        self.lab.client.enter()
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            start = time.perf_counter()
            connection.connect((POD[4], 8080))
            self.times_us.append(1e6 * (time.perf_counter() - start))
            self.listener.accept()[0].close()


def added_us(base: list[str], modes: tuple[str, str]) -> tuple[float, float]:
    """Microseconds that the ignored lists add to a connection, in each mode."""
    with ExitStack() as stack:
        places = {
            (mode, more): _place(stack, [*base, *(IGNORED if more else ()), *_in(mode)])
            for mode in modes
            for more in (False, True)
        }
        # A thread of its own, since it goes from namespace to namespace.
        worker = threading.Thread(target=_connect_in_turn, args=[[*places.values()]])
        worker.start()
        worker.join()
    medians = {key: statistics.median(p.times_us) for key, p in places.items()}
    one, other = (medians[mode, True] - medians[mode, False] for mode in modes)
    return one, other


def _in(mode: str) -> list[str]:
    return ["--iptables-mode", mode]


def _place(stack: ExitStack, arguments: list[str]) -> Place:
    lab = stack.enter_context(Lab())
    listener = lab.pod.run(_listen)
    stack.callback(listener.close)
    done = lab.pod.exec([PROGRAM, *arguments])
    if done.returncode:
        raise RuntimeError(done.stderr)
    return Place(lab, listener)


def _listen() -> socket.socket:
    listener = socket.socket()
    listener.bind(("", 4143))
    listener.listen(16)
    listener.settimeout(10)
    return listener


def _connect_in_turn(places: list[Place]) -> None:
    for place in places:  # warm up, uncounted: the address of the other end
        place.connect()
        place.times_us.clear()
    for _ in range(ROUNDS):
        for place in places:
            place.connect()
