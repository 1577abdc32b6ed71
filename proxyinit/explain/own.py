"""Which addresses are a namespace's own, from the routing tables in /proc. Pure."""

from __future__ import annotations

from _socket import AF_INET6, inet_ntop

from proxyinit.rules import IPV4, IPV6, Subnet

FIB_TRIE = "/proc/thread-self/net/fib_trie"
IPV6_ROUTE = "/proc/thread-self/net/ipv6_route"

_RTF_LOCAL = 0x80000000
"""A route that ends in this host (linux/ipv6_route.h)."""


def own_of_fib_trie(text: str) -> set[Subnet]:
    """IPv4: networks that the kernel delivers here, such as ``/32 host LOCAL``."""
    own: set[Subnet] = set()
    address = ""
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["|--"] and len(words) > 1:
            address = words[1]
        elif words[-1:] == ["LOCAL"] and address and words[0][1:].isdigit():
            own.add(Subnet(IPV4, address, int(words[0][1:])))
    return own


def own_of_ipv6_route(text: str) -> set[Subnet]:
    """IPv6: destination and prefix length of every local route, in hex."""
    own: set[Subnet] = set()
    for line in text.splitlines():
        words = line.split()
        try:
            if len(words) == 10 and int(words[8], 16) & _RTF_LOCAL:
                address = inet_ntop(AF_INET6, bytes.fromhex(words[0]))
                own.add(Subnet(IPV6, address, int(words[1], 16)))
        except (ValueError, OSError):
            continue
    return own
