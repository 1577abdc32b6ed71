"""Single values of a configuration: ports, ids and subnets, and what is none."""

from __future__ import annotations

import pytest

from proxyinit.config import host_bits, parse_id, parse_port, parse_ports, parse_subnet


@pytest.mark.parametrize("text", ["1", "80", "65535"])
def test_port(text: str) -> None:
    """Both ends of the range are ports."""
    assert parse_port(text) == int(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "65536",
        "-5",
        "+5",
        "abc",
        "8O",
        "080",
        "00",
        " 80",
        "1_0",
        "٣",
        "1" * 50,
    ],
)
def test_no_port(text: str) -> None:
    """Nothing else is one: no sign, blank, leading zero or other alphabet's digit."""
    with pytest.raises(ValueError, match="expected a port from 1 to 65535"):
        parse_port(text)


@pytest.mark.parametrize("text", ["", "-1", "-2", "4294967295", "root", "0x1", "1.0"])
def test_no_id(text: str) -> None:
    """An id is a number that the kernel takes for somebody."""
    with pytest.raises(ValueError, match="expected a numeric id from 0 to 4294967294"):
        parse_id(text)


@pytest.mark.parametrize(
    "text", ["", "-", "1-", "-1", "0-5", "1-65536", "1-2-3", "a-b"]
)
def test_no_ports(text: str) -> None:
    """A range has two ports."""
    with pytest.raises(ValueError, match="expected a port or a range such as"):
        parse_ports(text)


def test_ports_the_wrong_way_round() -> None:
    """The message shows the right order."""
    with pytest.raises(ValueError, match="expected the lower port first: 70-80"):
        parse_ports("80-70")


@pytest.mark.parametrize(
    ("text", "expected", "bits"),
    [
        ("10.0.0.0/8", "10.0.0.0/8", False),
        ("10.0.0.1/8", "10.0.0.0/8", True),
        ("1.2.3.4/32", "1.2.3.4/32", False),
        ("1.2.3.4/0", "0.0.0.0/0", True),
        ("::/0", "::/0", False),
        ("FD00:0:0::1/64", "fd00::/64", True),
        ("::ffff:1.2.3.4/128", "::ffff:1.2.3.4/128", False),
    ],
)
def test_subnet(text: str, expected: str, bits: bool) -> None:  # noqa: FBT001
    """Written as the kernel's tools write it, host bits cleared and reported."""
    subnet = parse_subnet(text)

    assert str(subnet) == expected
    assert host_bits(text, subnet) is bits


@pytest.mark.parametrize(
    "text",
    [
        *("", "/", "/8", "10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "fd00::/129"),
        *(
            "10.0.0.0/-1",
            "10.0.0.0/255.0.0.0",
            "10.0.0/8",
            "010.0.0.0/8",
            "10.0.0.0/08",
        ),
        *("example.com", "example.com/8", "fe80::1%eth0/64", "10.0.0.0/8/8", "x\0/8"),
        *(
            "10.0.0.0/8\n",
            " 10.0.0.0/8",
            "10.0.0.0/ 8",
            "\ud800/8",
            "10.0.0.0/" + "1" * 30,
        ),
    ],
    ids=repr,
)
def test_no_subnet(text: str) -> None:
    """Nothing but an address, a slash and a prefix length of its family."""
    with pytest.raises(ValueError, match="expected a CIDR such as"):
        parse_subnet(text)
