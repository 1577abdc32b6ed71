"""Socket addresses as a command line names them, and what is none."""

from __future__ import annotations

import ipaddress
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit.validator.addresses import Address, parse_address

PROPERTY = settings(deadline=None, max_examples=300)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("192.0.2.2:1404", Address("192.0.2.2", 1404)),
        ("[::]:4140", Address("::", 4140)),
        ("[FD00:0::1]:20001", Address("fd00::1", 20001)),
        ("[fe80::1%2]:1", Address("fe80::1", 1, 2)),
        ("[::ffff:192.0.2.2]:80", Address("192.0.2.2", 80)),
    ],
)
def test_address(text: str, address: Address) -> None:
    """Both versions; what the kernel would treat as IPv4 is IPv4."""
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", "1.2.3.4", "1.2.3.4:", ":80", "1.2.3.4:0", "1.2.3.4:65536"),
        *("1.2.3:80", "01.2.3.4:80", "1.2.3.4:+80", "1.2.3.4: 80", "localhost:80"),
        *("::1:80", "[::1]", "[::1]80", "[::1%eth0]:80", "[::1%]:80", "[1.2.3.4]:80"),
        *("::1", "[::1:80", "1.2.3.4:٨", "[::1\0]:80", "1.2.3.4\0:80", "]:80", "[]:80"),
    ],
)
def test_no_address(text: str) -> None:
    """A name is none either: the pod may have no DNS yet."""
    with pytest.raises(ValueError, match="expected an IP address and a port"):
        parse_address(text)


@PROPERTY
@given(st.ip_addresses(), st.integers(1, 65535))
def test_addresses_are_read_as_written(
    host: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int
) -> None:
    """The standard library's spelling in, ours out, and in again."""
    text = f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"
    found = parse_address(text)
    mapped = host.ipv4_mapped if isinstance(host, ipaddress.IPv6Address) else None
    assert ipaddress.ip_address(found.host) == (mapped or host)
    assert found.version == (mapped or host).version
    assert parse_address(str(found)) == found


@PROPERTY
@given(st.text(max_size=30) | st.from_regex(r"\[?[0-9a-f:.%]{0,20}\]?:[0-9]{0,6}"))
def test_any_text_is_an_address_or_a_mistake(text: str) -> None:
    """Nothing else is ever raised, and what is taken the C library takes."""
    try:
        found = parse_address(text)
    except ValueError:
        return
    family = socket.AF_INET6 if found.version == 6 else socket.AF_INET
    socket.inet_pton(family, found.host)
    assert found.sockaddr[:2] == (found.host, found.port)
