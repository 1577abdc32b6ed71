"""What one attempt to be redirected came to, and what could be seen around it."""

from __future__ import annotations

from proxyinit.record import Record
from proxyinit.validator.addresses import Address


class Outcome(Record):
    """How a connection to `target` went.

    `code` is the errno it ended with, 0 for none, `reason` the same in words.
    `at_once` tells that the kernel refused before any packet left. `local` is our
    own end once `connected`. `accepted` tells that our listener had the connection,
    `direct` that it came to the very address it was meant for, without a redirect.
    `received` is what the other end said, `closed` that it will say no more.
    """

    target: Address
    code: int = 0
    reason: str = ""
    at_once: bool = False
    connected: bool = False
    local: Address | None = None
    accepted: bool = False
    direct: bool = False
    received: bytes = b""
    closed: bool = False


class Surroundings(Record):
    """What helps to explain an attempt that failed.

    `addresses` are those by which others reach this pod. `other_end` is the address
    of the other end of the connection when that is in this namespace, and `program`
    who has it, as far as is known.
    """

    addresses: tuple[str, ...] = ()
    other_end: Address | None = None
    program: str = ""
