"""Flags seen together: the backend, the options, contradictions and warnings."""

from __future__ import annotations

import pytest

from proxyinit import options
from proxyinit.config import RedirectConfig
from proxyinit.flags import CLEANUP_FLAGS, INSTALL_FLAGS, MODES
from proxyinit.pflag import Arguments, parse

BOTH = (
    "--incoming-proxy-port and --outgoing-proxy-port are both 4143: "
    "expected two different ports"
)
NO_PAIR = (
    "--firewall-bin-path 'iptables-nft' and --firewall-save-bin-path "
    "'iptables-save' are not one pair: expected 'iptables-nft-save'"
)
LOOP = (
    "neither --proxy-uid nor --proxy-gid is given: "
    "the proxy's own connections will be redirected to itself"
)
PORTS = ["-p", "4143", "-o", "4140"]


def read(*argv: str) -> Arguments:
    return parse(argv, INSTALL_FLAGS)


def config(*argv: str) -> RedirectConfig:
    arguments = read(*PORTS, *argv)
    assert not arguments.problems
    assert not arguments.words
    return options.redirect_config(arguments)


def chosen(*argv: str) -> options.Options:
    arguments = read(*PORTS, *argv)
    assert [*arguments.problems, *options.problems(arguments), *arguments.words] == []
    return options.options(arguments)


@pytest.mark.parametrize(
    ("argv", "mode", "folder"),
    [
        ([], "legacy", ""),
        (
            [
                *("--firewall-bin-path", "iptables-nft"),
                *("--firewall-save-bin-path", "iptables-nft-save"),
            ],
            "nft",
            "",
        ),
        (["--firewall-bin-path", "iptables-legacy"], "legacy", ""),
        (["--firewall-bin-path", "iptables"], "plain", ""),
        (["--firewall-bin-path", "/opt/bin/iptables-nft"], "nft", "/opt/bin/"),
        (["--firewall-save-bin-path", "iptables-nft-save"], "nft", ""),
        (["--firewall-save-bin-path", "/x/iptables-save"], "plain", "/x/"),
        *((["--iptables-mode", mode], mode, "") for mode in MODES),
        (
            ["--iptables-mode=auto", "--firewall-bin-path=/x/iptables-nft"],
            "auto",
            "/x/",
        ),
        (
            [
                *("--iptables-mode=nft", "--firewall-bin-path=/x/iptables"),
                "--firewall-save-bin-path=/y/iptables-nft-save",
            ],
            "nft",
            "/x/",
        ),
    ],
    ids=str,
)
def test_backend(argv: list[str], mode: str, folder: str) -> None:
    """The mode decides, else the program's name, and a path names the folder."""
    found = chosen(*argv)

    assert (found.mode, found.bin_dir) == (mode, folder)


def test_options() -> None:
    """The rest of the options is what was said."""
    assert chosen(
        *("--ipv6=false", "--simulate", "--lock-wait-secs=9", "--netns=/n"),
        "--timeout-close-wait-secs=60",
    ) == options.Options(
        mode="legacy",
        ipv6=False,
        netns="/n",
        simulate=True,
        lock_wait_s=9,
        close_wait_s=60,
    )
    assert chosen("--pid", "42").netns == "/proc/42/ns/net"
    assert options.options(parse([], CLEANUP_FLAGS)) == options.Options()


def test_both_names_of_inbound_subnets_add_up() -> None:
    """Upstream's name and ours fill the same list."""
    found = config(
        "--inbound-subnets-to-ignore=10.0.0.0/8", "--subnets-to-ignore=fd00::/8"
    )

    assert [str(s) for s in found.inbound_subnets_to_ignore] == [
        *("fd00::/8", "10.0.0.0/8")
    ]


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (
            ["-o", "1"],
            "--incoming-proxy-port is missing: the proxy's port, such as 4143",
        ),
        (
            ["-p", "1"],
            "--outgoing-proxy-port is missing: the proxy's port, such as 4143",
        ),
        (
            ["-p", "4143", "-o", "4143"],
            BOTH,
        ),
        (
            [*PORTS, "--netns", "/n", "--pid", "1"],
            "--netns and --pid both name a namespace: give one of them",
        ),
        (
            [
                *(*PORTS, "--firewall-bin-path=iptables-nft"),
                "--firewall-save-bin-path=iptables-save",
            ],
            NO_PAIR,
        ),
    ],
    ids=str,
)
def test_problem_of_flags_together(argv: list[str], problem: str) -> None:
    """Flags that are right alone and wrong together."""
    assert list(options.problems(read(*argv))) == [problem]


def test_warnings() -> None:
    """Host bits and a proxy without an owner are accepted and said."""
    assert list(options.warnings(read(*PORTS, "--subnets-to-ignore=10.0.0.1/8"))) == [
        "--subnets-to-ignore 10.0.0.1/8 has host bits set: taken as 10.0.0.0/8",
        LOOP,
    ]
    assert not list(
        options.warnings(read(*PORTS, "-g0", "--outbound-subnets-to-ignore=::/0"))
    )
