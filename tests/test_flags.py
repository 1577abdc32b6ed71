"""The flags of proxy-init: which there are, their values and their defaults."""

from __future__ import annotations

import pytest

from proxyinit.config import MAX_ID
from proxyinit.flags import INSTALL_FLAGS, LOG_LEVELS
from proxyinit.pflag import Arguments, Flag, parse
from proxyinit.rules import PortRange, Subnet


def read(*argv: str) -> Arguments:
    return parse(argv, INSTALL_FLAGS)


UPSTREAM = {
    "incoming-proxy-port": "p",
    "outgoing-proxy-port": "o",
    "proxy-uid": "u",
    "proxy-gid": "g",
    "ports-to-redirect": "r",
    "inbound-ports-to-ignore": "",
    "outbound-ports-to-ignore": "",
    "subnets-to-ignore": "",
    "simulate": "",
    "netns": "",
    "use-wait-flag": "w",
    "timeout-close-wait-secs": "",
    "log-format": "",
    "log-level": "",
    "iptables-mode": "",
    "ipv6": "",
    "firewall-bin-path": "",
    "firewall-save-bin-path": "",
}
OURS = {
    "inbound-subnets-to-ignore",
    "outbound-subnets-to-ignore",
    "lock-wait-secs",
    "pid",
    "host",
}


def test_the_flags_are_upstreams_and_ours() -> None:
    """Every flag of upstream is there with its short form, and no other but ours."""
    there = {flag.name: flag.short for flag in INSTALL_FLAGS}

    assert there == UPSTREAM | dict.fromkeys(OURS, "")


@pytest.mark.parametrize(
    ("argv", "name", "value"),
    [
        (["--incoming-proxy-port", "4143"], "incoming-proxy-port", 4143),
        (["--outgoing-proxy-port=4140"], "outgoing-proxy-port", 4140),
        (["--proxy-uid", "2102"], "proxy-uid", (2102,)),
        (["--proxy-uid", "0"], "proxy-uid", (0,)),
        (["--proxy-uid=2102,2103"], "proxy-uid", (2102, 2103)),
        (["--proxy-gid", str(MAX_ID)], "proxy-gid", (MAX_ID,)),
        (["--ports-to-redirect", "80,443"], "ports-to-redirect", (80, 443)),
        (
            ["--inbound-ports-to-ignore", "4190,4567-4568"],
            "inbound-ports-to-ignore",
            (PortRange(4190, 4190), PortRange(4567, 4568)),
        ),
        (
            ["--outbound-ports-to-ignore", "1-65535"],
            "outbound-ports-to-ignore",
            (PortRange(1, 65535),),
        ),
        (
            ["--subnets-to-ignore", "10.0.0.0/8,fd00::/8"],
            "subnets-to-ignore",
            (Subnet(4, "10.0.0.0", 8), Subnet(6, "fd00::", 8)),
        ),
        (
            ["--inbound-subnets-to-ignore", "0.0.0.0/0"],
            "inbound-subnets-to-ignore",
            (Subnet(4, "0.0.0.0", 0),),  # noqa: S104  (a subnet, nothing binds)
        ),
        (
            ["--outbound-subnets-to-ignore", "FD00::0:1/128"],
            "outbound-subnets-to-ignore",
            (Subnet(6, "fd00::1", 128),),
        ),
        (["--simulate"], "simulate", True),
        (["--netns", "/run/netns/a"], "netns", "/run/netns/a"),
        (["--pid", "1"], "pid", 1),
        (["--use-wait-flag"], "use-wait-flag", True),
        (["--timeout-close-wait-secs", "3600"], "timeout-close-wait-secs", 3600),
        (["--log-format", "json"], "log-format", "json"),
        (["--log-level", "Debug"], "log-level", "debug"),
        (["--iptables-mode", "nft"], "iptables-mode", "nft"),
        (["--ipv6=false"], "ipv6", False),
        (["--lock-wait-secs", "1"], "lock-wait-secs", 1),
        (
            ["--firewall-bin-path", "/sbin/iptables-nft"],
            "firewall-bin-path",
            "/sbin/iptables-nft",
        ),
        (
            ["--firewall-save-bin-path", "iptables-nft-save"],
            "firewall-save-bin-path",
            "iptables-nft-save",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_value(argv: list[str], name: str, value: object) -> None:
    """Each flag turns its text into the value that the rest works with."""
    arguments = read(*argv)

    assert arguments.problems == ()
    assert arguments.values[name] == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("incoming-proxy-port", None),
        ("proxy-uid", ()),
        ("ports-to-redirect", ()),
        ("simulate", False),
        ("use-wait-flag", False),
        ("ipv6", True),
        ("lock-wait-secs", 5),
        ("timeout-close-wait-secs", 0),
        ("log-format", "plain"),
        ("log-level", "info"),
        ("iptables-mode", None),
    ],
)
def test_default(name: str, value: object) -> None:
    """A flag that is not given has upstream's default."""
    assert read().values[name] == value


@pytest.mark.parametrize("flag", INSTALL_FLAGS, ids=lambda flag: flag.name)
def test_declaration(flag: Flag) -> None:
    """Each flag has a help text of a sentence, and a placeholder unless a switch."""
    assert flag.help.endswith(".")
    assert flag.is_bool or flag.metavar


def test_log_levels_are_ordered() -> None:
    """From the most severe to the least; the threshold is a place in this list."""
    words = ("error", "warn", "info", "debug")
    assert sorted(words, key=LOG_LEVELS.index) == list(words)
