"""What to redirect, as a checked value, and the strict parsers that make it.

Every parser takes the text a person typed and raises `ValueError` with a
sentence that says what was expected; the flag's name and the offending text are
added by the caller. Upstream logs a bad port and drops it, takes port 0 for a
port and uid 0 for "none" (contract, interception 3.5-3.7); nothing of that here.
"""

from __future__ import annotations

# Functions of the C library without state; `socket` itself would cost 7 ms.
from _socket import AF_INET, AF_INET6, inet_ntop, inet_pton

from proxyinit.record import Record
from proxyinit.rules import PortRange, Subnet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from proxyinit.rules import Version

MAX_PORT = 65535
MAX_ID = 4294967294
"""Highest uid or gid; 2^32-1 means "no one" to the kernel."""


class RedirectConfig(Record):
    """Which traffic goes to the proxy, and which goes past it.

    `ports_to_redirect` empty means all inbound ports. `proxy_uids` and
    `proxy_gids` are whose own connections are left alone; without any of them
    the proxy would be redirected to itself.
    """

    inbound_port: int
    outbound_port: int
    proxy_uids: tuple[int, ...] = ()
    proxy_gids: tuple[int, ...] = ()
    ports_to_redirect: tuple[int, ...] = ()
    inbound_ports_to_ignore: tuple[PortRange, ...] = ()
    outbound_ports_to_ignore: tuple[PortRange, ...] = ()
    inbound_subnets_to_ignore: tuple[Subnet, ...] = ()
    outbound_subnets_to_ignore: tuple[Subnet, ...] = ()


def parse_number(text: str, low: int, high: int, what: str) -> int:
    """A plain decimal number: no sign, no blanks, no leading zero, ASCII digits."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not low <= number <= high or (text[:1] == "0" and text != "0"):
        raise ValueError(f"expected {what} from {low} to {high}")
    return number


def parse_port(text: str) -> int:
    """A TCP port, 1-65535."""
    return parse_number(text, 1, MAX_PORT, "a port")


def parse_id(text: str) -> int:
    """A numeric uid or gid, 0-4294967294; names are not looked up."""
    return parse_number(text, 0, MAX_ID, "a numeric id")


def parse_ports(text: str) -> PortRange:
    """A port, or an inclusive range ``low-high``."""
    low_text, dash, high_text = text.partition("-")
    try:
        low = parse_port(low_text)
        high = parse_port(high_text) if dash else low
    except ValueError:
        raise ValueError(
            f"expected a port or a range such as 4567-4568, from 1 to {MAX_PORT}"
        ) from None
    if low > high:
        raise ValueError(f"expected the lower port first: {high}-{low}")
    return PortRange(low, high)


def parse_subnet(text: str) -> Subnet:
    """A CIDR of either family; host bits are cleared (`host_bits` tells).

    The address is spelled as inet_ntop spells it, because iptables does: it shows
    ::ffff:1.2.3.4 where `ipaddress` shows ::ffff:102:304, and what is read back
    must compare equal.
    """
    address, _, prefix = text.partition("/")
    version: Version = 6 if ":" in address else 4
    family, bits = (AF_INET6, 128) if version == 6 else (AF_INET, 32)
    try:
        length = parse_number(prefix, 0, bits, "a prefix length")
        packed = inet_pton(family, address)
    except (ValueError, OSError):
        raise ValueError("expected a CIDR such as 10.0.0.0/8 or fd00::/8") from None
    host = bits - length
    network = int.from_bytes(packed, "big") >> host << host
    first = network.to_bytes(bits // 8, "big")
    return Subnet(version, inet_ntop(family, first), length)


def host_bits(text: str, subnet: Subnet) -> bool:
    """Whether the address typed in a valid CIDR has bits beyond its prefix."""
    family = AF_INET6 if subnet.version == 6 else AF_INET
    typed = inet_pton(family, text.partition("/")[0])
    return typed != inet_pton(family, subnet.address)
