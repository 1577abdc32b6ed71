"""A packet to ask about: the first one of a connection, as nat chains get to see it.

Later packets of a connection, and its answers, don't come to nat chains: what was
decided for the first holds for all (netfilter, nf_nat_inet_fn). Pure.
"""

from __future__ import annotations

from _socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from proxyinit.rules import IPV4, IPV6, Subnet

if TYPE_CHECKING:
    from proxyinit.rules import Version

ALL_BITS = 0xFFFFFFFF
UNKNOWN_INTERFACE = None
"""An interface nobody named; the empty name is that of no interface at all."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark of 32 bits; only those set in `known` are known."""

    value: int = 0
    known: int = 0

    def changed(self, value: int, mask: int) -> Mark:
        """The mark after ``--set-xmark value/mask``: clear the mask, then xor."""
        known = self.known | mask
        return Mark((self.value & ~mask ^ value) & known, known)

    def equals(self, value: int, mask: int) -> bool | None:
        """Whether the masked bits are `value`; None when a bit is not known."""
        if (self.value ^ value) & mask & self.known or value & ~mask:
            return False
        return True if mask & ~self.known == 0 else None


def read_mark(text: str) -> tuple[int, int]:
    """Value and mask of ``0x1/0xff``; the whole mark when there is no mask."""
    value, slash, mask = text.partition("/")
    return int(value, 0) & ALL_BITS, int(mask, 0) & ALL_BITS if slash else ALL_BITS


UNKNOWN_MARK = Mark()
NO_MARK = Mark(0, ALL_BITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """The first packet of a connection, where it meets the nat chains.

    `outbound` packets were made here and meet OUTPUT, others came in by an
    interface and meet PREROUTING. None stands for what is not known: the source
    port, the interface, the owner of the socket. `own` are the addresses of the
    namespace itself, loopback apart, or None when nobody said which they are.
    Ports are None for protocols without them.
    """

    version: Version
    source: str
    destination: str
    outbound: bool
    protocol: str = "tcp"
    source_port: int | None = None
    destination_port: int | None = None
    interface: str | None = UNKNOWN_INTERFACE
    uid: int | None = None
    gid: int | None = None
    mark: Mark = UNKNOWN_MARK
    own: tuple[Subnet, ...] | None = None

    @property
    def hook(self) -> str:
        """The builtin chain that it meets first."""
        return "OUTPUT" if self.outbound else "PREROUTING"

    @property
    def in_interface(self) -> str | None:
        """Where it came in: nowhere for packets made here, the kernel's empty name."""
        return "" if self.outbound else self.interface

    @property
    def out_interface(self) -> str | None:
        """Where it leaves: before routing, nowhere yet."""
        return self.interface if self.outbound else ""

    def is_own(self, address: str) -> bool | None:
        """Whether an address belongs to the namespace; None when that is not known."""
        if is_loopback(address):
            return True
        if self.own is None:
            # Only an address of its own can be where its connections come from.
            return True if self.outbound and address == self.source else None
        return any(lies_in(address, subnet) for subnet in self.own)

    def marked(self, mark: Mark) -> Packet:
        """The same packet with another mark."""
        return self if mark == self.mark else replace(self, mark=mark)

    def __str__(self) -> str:
        to = endpoint(self.destination, self.destination_port)
        return f"{self.protocol} {endpoint(self.source, self.source_port)} -> {to}"


def endpoint(address: str, port: int | None) -> str:
    """Address and port as people write them: ``[fd00::1]:80``."""
    if port is None:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def canonical(address: str) -> str:
    """The address as inet_ntop spells it; `ValueError` when it is none."""
    family = AF_INET6 if ":" in address else AF_INET
    try:
        return inet_ntop(family, inet_pton(family, address))
    except OSError:
        raise ValueError("expected an address such as 10.0.0.7 or fd00::7") from None


def version_of(address: str) -> Version:
    """The IP version that an address is of, by its spelling."""
    return IPV6 if ":" in address else IPV4


@lru_cache(maxsize=65536)
def number(address: str) -> int:
    """The address as a number; `ValueError` when it is none."""
    family = AF_INET6 if ":" in address else AF_INET
    try:
        return int.from_bytes(inet_pton(family, address), "big")
    except OSError:
        raise ValueError(f"expected an address, found {address!r}") from None


def bits(version: Version) -> int:
    """How many bits an address has."""
    return 128 if version == IPV6 else 32


def lies_in(address: str, subnet: Subnet) -> bool:
    """Whether the address is one of the subnet's."""
    if version_of(address) != subnet.version:
        return False
    host = bits(subnet.version) - subnet.prefix
    return (number(address) ^ number(subnet.address)) >> host == 0


def is_loopback(address: str) -> bool:
    """Whether every namespace has the address on its loopback interface."""
    return address == "::1" or (address.startswith("127.") and ":" not in address)
