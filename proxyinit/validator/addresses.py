"""Socket addresses as a command line names them: ``192.0.2.2:1404``, ``[::]:4140``."""

from __future__ import annotations

# Functions of the C library without state; `socket` itself would cost 7 ms.
from _socket import AF_INET, AF_INET6, inet_ntop, inet_pton

from proxyinit.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

MAX_PORT = 65535
MAX_SCOPE = 2**32 - 1
_MAPPED = bytes(10) + b"\xff\xff"
"""What stands before an IPv4 address within IPv6 (RFC 4291, 2.5.5.2)."""


class Address(Record):
    """An IP address and a TCP port; `host` is spelled as inet_ntop spells it.

    `scope` is the number of the interface that a link-local address belongs to.
    """

    host: str
    port: int
    scope: int = 0

    @property
    def version(self) -> Literal[4, 6]:
        """The IP version, 4 or 6."""
        return 6 if ":" in self.host else 4

    @property
    def is_wildcard(self) -> bool:
        """Whether it stands for every address of its version."""
        return self.host in ("0.0.0.0", "::")  # noqa: S104  (compared, not bound)

    @property
    def sockaddr(self) -> tuple[str, int] | tuple[str, int, int, int]:
        """As the socket functions want it."""
        if self.version == 6:
            return self.host, self.port, 0, self.scope
        return self.host, self.port

    def __str__(self) -> str:
        if self.version == 4:
            return f"{self.host}:{self.port}"
        scope = f"%{self.scope}" if self.scope else ""
        return f"[{self.host}{scope}]:{self.port}"


def parse_address(text: str) -> Address:
    """An address with a port, IPv6 in brackets, a scope behind ``%`` as a number.

    An IPv4 address mapped into IPv6 is taken as what the kernel takes it for: IPv4.
    """
    host, _, port_text = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        port = _number(port_text, 1, MAX_PORT)
        if not bracketed:
            return Address(inet_ntop(AF_INET, inet_pton(AF_INET, host)), port)
        host, percent, scope_text = host[1:-1].partition("%")
        scope = _number(scope_text, 0, MAX_SCOPE) if percent else 0
        packed = inet_pton(AF_INET6, host)
    except (ValueError, OSError):
        raise ValueError(
            "expected an IP address and a port from 1 to 65535, "
            "such as 192.0.2.2:1404 or [2001:db8::2]:1404"
        ) from None
    if packed.startswith(_MAPPED):
        return Address(inet_ntop(AF_INET, packed[12:]), port)
    return Address(inet_ntop(AF_INET6, packed), port, scope)


def _number(text: str, low: int, high: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError(text)
    number = int(text)
    if not low <= number <= high:
        raise ValueError(text)
    return number
