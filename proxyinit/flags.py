"""The flags of proxy-init, declared once.

The install reads its arguments by them with `pflag.parse` alone, without importing
click (33 ms); click takes the same declarations for its help pages.
"""

from __future__ import annotations

from proxyinit.config import (
    parse_id,
    parse_number,
    parse_port,
    parse_ports,
    parse_subnet,
)
from proxyinit.pflag import Flag, parse_bool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LOG_FORMATS = ("plain", "json")
LOG_LEVELS = (
    "panic",
    "fatal",
    "error",
    "warn",
    "warning",
    "info",
    "debug",
    "trace",
)
MODES = ("legacy", "nft", "nftables", "plain", "auto")
MAX_CLOSE_WAIT_S = 2147483
"""INT_MAX milliseconds: the kernel keeps the timeout in jiffies in an int."""
MAX_LOCK_WAIT_S = 3600


def _one_of(words: tuple[str, ...]) -> Callable[[str], str]:
    def parse_word(text: str) -> str:
        if text.lower() in words:
            return text.lower()
        raise ValueError(f"expected one of {', '.join(words)}")

    return parse_word


def _seconds(low: int, high: int) -> Callable[[str], int]:
    return lambda text: parse_number(text, low, high, "seconds")


def _parse_path(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError("expected a path, without line breaks or control characters")
    return text


def _iptables_path(suffix: str) -> Callable[[str], str]:
    names = tuple(f"iptables{variant}{suffix}" for variant in ("-legacy", "-nft", ""))

    def parse_path(text: str) -> str:
        if _parse_path(text).rpartition("/")[2] in names:
            return text
        raise ValueError(f"expected {', '.join(names)}, or a path to one of them")

    return parse_path


_PORTS = "PORT[-PORT],..."
_CIDRS = "CIDR,..."

REDIRECT_FLAGS = (
    Flag(
        "incoming-proxy-port",
        "Port of the proxy that inbound connections are redirected to (required).",
        parse_port,
        short="p",
        metavar="PORT",
    ),
    Flag(
        "outgoing-proxy-port",
        "Port of the proxy that outbound connections are redirected to (required).",
        parse_port,
        short="o",
        metavar="PORT",
    ),
    Flag(
        "proxy-uid",
        "User id, or ids, whose own connections are not redirected: the proxy's.",
        parse_id,
        short="u",
        metavar="UID,...",
        many=True,
    ),
    Flag(
        "proxy-gid",
        "Group id, or ids, whose own connections are not redirected.",
        parse_id,
        short="g",
        metavar="GID,...",
        many=True,
    ),
    Flag(
        "ports-to-redirect",
        "Inbound ports to redirect; all when none is given.",
        parse_port,
        short="r",
        metavar="PORT,...",
        many=True,
    ),
    Flag(
        "inbound-ports-to-ignore",
        "Inbound ports and ranges that reach the application directly.",
        parse_ports,
        metavar=_PORTS,
        many=True,
    ),
    Flag(
        "outbound-ports-to-ignore",
        "Outbound ports and ranges that leave without passing the proxy.",
        parse_ports,
        metavar=_PORTS,
        many=True,
    ),
    Flag(
        "subnets-to-ignore",
        "Upstream's name for --inbound-subnets-to-ignore.",
        parse_subnet,
        metavar=_CIDRS,
        many=True,
    ),
    Flag(
        "inbound-subnets-to-ignore",
        "Sources, of either family, whose connections reach the application directly.",
        parse_subnet,
        metavar=_CIDRS,
        many=True,
    ),
    Flag(
        "outbound-subnets-to-ignore",
        "Destinations, of either family, that are reached without the proxy.",
        parse_subnet,
        metavar=_CIDRS,
        many=True,
    ),
    Flag("ipv6", "Redirect IPv6 as well.", parse_bool, default=True),
)

BACKEND_FLAGS = (
    Flag(
        "iptables-mode",
        "Which iptables to use, or nftables without iptables; overrides the two "
        "flags below. auto: what is in use, else nft.",
        _one_of(MODES),
        metavar="|".join(MODES),
    ),
    Flag(
        "firewall-bin-path",
        "iptables, iptables-legacy or iptables-nft, or a path to one of them.",
        _iptables_path(""),
        metavar="PATH",
        default="iptables-legacy",
    ),
    Flag(
        "firewall-save-bin-path",
        "The matching iptables-save program.",
        _iptables_path("-save"),
        metavar="PATH",
        default="iptables-legacy-save",
    ),
    Flag(
        "lock-wait-secs",
        "How long to wait for the xtables lock.",
        _seconds(1, MAX_LOCK_WAIT_S),
        metavar="SECONDS",
        default=5,
    ),
    Flag(
        "use-wait-flag",
        "Accepted as upstream's; the lock is always waited for.",
        parse_bool,
        short="w",
        default=False,
    ),
)

TARGET_FLAGS = (
    Flag(
        "netns",
        "Network namespace to work in, by path (default: the caller's own).",
        _parse_path,
        metavar="PATH",
    ),
    Flag(
        "pid",
        "Network namespace to work in, by a process that lives in it.",
        lambda text: parse_number(text, 1, 2**22, "a process id"),
        metavar="PID",
    ),
    Flag(
        "host",
        "Allow --netns or --pid to lead to the node's own network namespace.",
        parse_bool,
        default=False,
    ),
    Flag(
        "simulate",
        "Change nothing; print what a run would feed to iptables-restore or nft.",
        parse_bool,
        default=False,
    ),
    Flag(
        "timeout-close-wait-secs",
        "Set nf_conntrack_tcp_timeout_close_wait; 0 leaves it alone.",
        _seconds(0, MAX_CLOSE_WAIT_S),
        metavar="SECONDS",
        default=0,
    ),
)

LOG_FLAGS = (
    Flag(
        "log-format",
        "Form of the log lines on stderr.",
        _one_of(LOG_FORMATS),
        metavar="|".join(LOG_FORMATS),
        default="plain",
    ),
    Flag(
        "log-level",
        "Least severe log lines to print.",
        _one_of(LOG_LEVELS),
        metavar="LEVEL",
        default="info",
    ),
)


def optional(flag: Flag) -> Flag:
    """A flag of an install for a command that can do without it."""
    text = flag.help.replace(" (required)", "")
    return Flag(**{**flag.__dict__, "help": text})


INSTALL_FLAGS = REDIRECT_FLAGS + BACKEND_FLAGS + TARGET_FLAGS + LOG_FLAGS
CLEANUP_FLAGS = tuple(
    flag
    for flag in INSTALL_FLAGS
    if flag.name == "lock-wait-secs" or flag in (*TARGET_FLAGS[:4], *LOG_FLAGS)
)
