"""What /proc/net says of the sockets and addresses of this network namespace. Pure."""

from __future__ import annotations

import sys
from _socket import AF_INET, AF_INET6, inet_ntop

from proxyinit.record import Record
from proxyinit.validator.addresses import Address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LISTEN = 10
"""TCP_LISTEN (net/tcp_states.h)."""
_SCOPE_GLOBAL = 0x00


class TcpSocket(Record):
    """One line of /proc/net/tcp or tcp6; IPv4 within IPv6 is shown as IPv4."""

    local: Address
    peer: Address
    state: int
    uid: int
    inode: int


def parse_tcp(text: str) -> Iterator[TcpSocket]:
    """The sockets of /proc/net/tcp or tcp6; lines of another form are left out."""
    for line in text.splitlines()[1:]:
        words = line.split()
        try:
            yield TcpSocket(
                _end(words[1]),
                _end(words[2]),
                int(words[3], 16),
                int(words[7]),
                int(words[9]),
            )
        except (IndexError, ValueError):
            continue


def _end(text: str) -> Address:
    """An address as words of 32 bits in the machine's order, and a port, in hex."""
    words, _, port = text.partition(":")
    step = -1 if sys.byteorder == "little" else 1
    packed = b"".join(
        bytes.fromhex(words[at : at + 8])[::step] for at in range(0, len(words), 8)
    )
    host = inet_ntop(AF_INET if len(packed) == 4 else AF_INET6, packed)
    mapped = "." in host
    return Address(host.removeprefix("::ffff:") if mapped else host, int(port, 16))


def parse_if_inet6(text: str) -> Iterator[str]:
    """The addresses in /proc/net/if_inet6 by which more than the link is reached."""
    for line in text.splitlines():
        words = line.split()
        try:
            if int(words[3], 16) == _SCOPE_GLOBAL:
                yield inet_ntop(AF_INET6, bytes.fromhex(words[0]))
        except (IndexError, ValueError):
            continue


def parse_fib_trie(text: str) -> Iterator[str]:
    """The IPv4 addresses that /proc/net/fib_trie says are here, loopback left out."""
    address = ""
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["|--"] and len(words) == 2:
            address = words[1]
        elif words == ["/32", "host", "LOCAL"] and not address.startswith("127."):
            yield address
