"""The flags of proxy-init, declared once, and a parser with pflag's rules.

The install reads its arguments with `parse` alone, without importing click
(33 ms); click takes the same declarations for help and for other commands. The
rules are those of Go's pflag, which upstream uses: ``--flag value``,
``--flag=value``, ``-f value``, ``-fvalue``, ``-f=value``, ``--bool``,
``--bool=false``, lists by comma or by repetition, flags and words in any order.
"""

from __future__ import annotations

from proxyinit.config import (
    parse_id,
    parse_number,
    parse_port,
    parse_ports,
    parse_subnet,
)
from proxyinit.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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
MODES = ("legacy", "nft", "plain", "auto")
MAX_CLOSE_WAIT_S = 2147483
"""INT_MAX milliseconds: the kernel keeps the timeout in jiffies in an int."""
MAX_LOCK_WAIT_S = 3600


def _parse_bool(text: str) -> bool:
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise ValueError("expected true or false")


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


class Flag(Record):
    """One flag: how it is spelled, what its text must be, what it is for.

    A `many` flag collects items from commas and repetitions into a tuple.
    """

    name: str
    help: str
    parse: Callable[[str], object] = str
    short: str = ""
    metavar: str = ""
    default: object = None
    many: bool = False

    @property
    def is_bool(self) -> bool:
        """Whether the flag may stand alone, meaning true."""
        return self.parse is _parse_bool


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
    Flag("ipv6", "Redirect IPv6 as well.", _parse_bool, default=True),
)

BACKEND_FLAGS = (
    Flag(
        "iptables-mode",
        "Which iptables to use; overrides the two flags below. "
        "auto: the one that is in use, else nft.",
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
        _parse_bool,
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
        "simulate",
        "Change nothing; print what a run would feed to the restore programs.",
        _parse_bool,
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

INSTALL_FLAGS = REDIRECT_FLAGS + BACKEND_FLAGS + TARGET_FLAGS + LOG_FLAGS
CLEANUP_FLAGS = tuple(
    flag
    for flag in INSTALL_FLAGS
    if flag.name
    in ("lock-wait-secs", "netns", "pid", "simulate", "log-format", "log-level")
)


class Arguments(Record):
    """What a command line says: values by flag name, and everything wrong with it.

    `given` holds the texts as typed, for messages and notes. `words` are the
    arguments that are no flags. `help` is set by -h and --help.
    """

    values: dict[str, object]
    given: dict[str, list[str]]
    words: tuple[str, ...]
    problems: tuple[str, ...]
    help: bool


def parse(argv: Sequence[str], flags: tuple[Flag, ...]) -> Arguments:
    """Read a command line; never raises, mistakes are in `problems`."""
    given: dict[str, list[str]] = {}
    words: list[str] = []
    problems: list[str] = []
    for name, text in _scan(argv, flags, words, problems):
        given.setdefault(name, []).append(text)
    wants_help = given.pop("help", None) is not None
    values: dict[str, object] = {}
    for flag in flags:
        texts = given.get(flag.name)
        if texts is None:
            values[flag.name] = () if flag.many else flag.default
            continue
        items = split_items(texts) if flag.many else texts
        parsed = list(_parse_items(flag, items, problems))
        if flag.many:
            values[flag.name] = tuple(parsed)
        else:  # the last one counts, as with pflag
            values[flag.name] = parsed[-1] if parsed else flag.default
    return Arguments(values, given, tuple(words), tuple(problems), wants_help)


def split_items(texts: Sequence[str]) -> list[str]:
    """The items of a list flag, from all its occurrences; blanks around them go."""
    return [item.strip(" ") for text in texts for item in text.split(",")]


def _parse_items(flag: Flag, items: list[str], problems: list[str]) -> Iterator[object]:
    for item in items:
        try:
            yield flag.parse(item)
        except ValueError as error:
            problems.append(f"--{flag.name} {item!r}: {error}")


def _scan(
    argv: Sequence[str],
    flags: tuple[Flag, ...],
    words: list[str],
    problems: list[str],
) -> Iterator[tuple[str, str]]:
    """(flag name, text) for every flag on the line; other words into `words`."""
    by_name = {flag.name: flag for flag in flags}
    by_short = {flag.short: flag for flag in flags if flag.short}
    rest = list(argv)
    while rest:
        arg = rest.pop(0)
        if arg == "--":
            words += rest
            return
        if arg.startswith("--"):
            name, equals, text = arg[2:].partition("=")
            if name == "help":
                yield "help", ""
                continue
            flag = by_name.get(name)
            if flag is None:
                problems.append(f"unknown flag --{name}")
                continue
            yield from _value(flag, equals, text, rest, problems)
        elif arg.startswith("-") and len(arg) > 1:
            yield from _scan_short(arg[1:], by_short, rest, problems)
        else:
            words.append(arg)


def _scan_short(
    letters: str, by_short: dict[str, Flag], rest: list[str], problems: list[str]
) -> Iterator[tuple[str, str]]:
    """One-letter flags: those that may stand alone can be followed by others."""
    while letters:
        letter, letters = letters[0], letters[1:]
        if letter == "h":
            yield "help", ""
            continue
        flag = by_short.get(letter)
        if flag is None:
            problems.append(f"unknown flag -{letter} in '-{letter}{letters}'")
            return
        if flag.is_bool and not letters.startswith("="):
            yield flag.name, "true"
            continue
        equals = "=" if letters else ""
        yield from _value(flag, equals, letters.removeprefix("="), rest, problems)
        return


def _value(
    flag: Flag, equals: str, text: str, rest: list[str], problems: list[str]
) -> Iterator[tuple[str, str]]:
    if equals:
        yield flag.name, text
    elif flag.is_bool:
        yield flag.name, "true"
    elif rest:
        yield flag.name, rest.pop(0)
    else:
        problems.append(f"--{flag.name} needs a value: {flag.metavar}")
