"""The flags of ``network-validator``, and the values that a run needs of them."""

from __future__ import annotations

from proxyinit.pflag import Arguments, Flag
from proxyinit.record import Record
from proxyinit.validator.addresses import Address, parse_address
from proxyinit.validator.duration import Duration, parse_duration
from proxyinit.validator.tracing import LEVELS, parse_filter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEFAULT_LISTEN = Address("0.0.0.0", 4140)  # noqa: S104  (where the proxy listens)
DEFAULT_CONNECT = Address("192.0.2.2", 1404)
"""Of a network that exists in documentation alone (RFC 5737)."""


def parse_format(text: str) -> str:
    """``plain`` or ``json``."""
    if text in ("plain", "json"):
        return text
    raise ValueError("expected plain or json")


FLAGS = (
    Flag(
        "timeout",
        "How long to go on trying: a number with ms, s, m, h or d.",
        parse_duration,
        metavar="DURATION",
        default=Duration(10_000),
    ),
    Flag(
        "listen-addr",
        "Where connections are redirected to, the proxy's outbound port; one of each "
        "IP version, or [::], which is both.",
        parse_address,
        metavar="ADDR:PORT,...",
        default=str(DEFAULT_LISTEN),
        many=True,
    ),
    Flag(
        "connect-addr",
        "Where to connect to: any address with a route that nobody needs to have; "
        "one of each IP version to prove both.",
        parse_address,
        metavar="ADDR:PORT,...",
        default=str(DEFAULT_CONNECT),
        many=True,
    ),
    Flag(
        "log-format",
        "Form of log lines; also LINKERD_NETWORK_VALIDATOR_LOG_FORMAT.",
        parse_format,
        metavar="plain|json",
        default="plain",
    ),
    Flag(
        "log-level",
        f"{', '.join(LEVELS)}, or TARGET=LEVEL,...; "
        "also LINKERD_NETWORK_VALIDATOR_LOG_LEVEL.",
        parse_filter,
        metavar="LEVEL",
        default="info",
    ),
)
_IN_ENVIRONMENT = tuple(flag for flag in FLAGS if flag.name.startswith("log-"))


class Settings(Record):
    """What to prove: that connections to each of `connect` come to `listen`.

    `timeout` is for all of it.
    """

    listen: tuple[Address, ...] = (DEFAULT_LISTEN,)
    connect: tuple[Address, ...] = (DEFAULT_CONNECT,)
    timeout: Duration = Duration(10_000)
    log_format: str = "plain"
    log_level: str = "info"


def problems(arguments: Arguments, environment: Mapping[str, str]) -> Iterator[str]:
    """Everything wrong with a command line and what it leaves to the environment."""
    yield from arguments.problems
    for flag in _IN_ENVIRONMENT:
        name, text = _variable(flag, environment)
        if text and flag.name not in arguments.given:
            try:
                flag.parse(text)
            except ValueError as error:
                yield f"{name} {text!r}: {error}"
    if not any("-addr " in problem for problem in arguments.problems):
        yield from _unheard(settings(arguments, {}))


def _variable(flag: Flag, environment: Mapping[str, str]) -> tuple[str, str]:
    name = f"LINKERD_NETWORK_VALIDATOR_{flag.name.upper().replace('-', '_')}"
    return name, environment.get(name, "")


def _unheard(chosen: Settings) -> Iterator[str]:
    """A redirect keeps the IP version: an address needs a listener of its own."""
    for address in chosen.connect:
        if not any(hears(listener, address.version) for listener in chosen.listen):
            there = ", ".join(map(str, chosen.listen))
            wildcard = "0.0.0.0" if address.version == 4 else "[::]"  # noqa: S104
            yield (
                f"--connect-addr '{address}': nothing listens for IPv{address.version}"
                f" on --listen-addr {there}: expected {wildcard}:PORT beside it"
            )


def hears(listener: Address, version: int) -> bool:
    """Whether connections of an IP version can arrive at a listening address."""
    return listener.version == version or listener.host == "::"


def settings(arguments: Arguments, environment: Mapping[str, str]) -> Settings:
    """What arguments without problems ask for."""
    values = dict(arguments.values)
    for flag in _IN_ENVIRONMENT:
        _, text = _variable(flag, environment)
        if text and flag.name not in arguments.given:
            values[flag.name] = flag.parse(text)
    connect = _addresses(values["connect-addr"]) or (DEFAULT_CONNECT,)
    listen = _addresses(values["listen-addr"])
    if not listen:
        listen = (DEFAULT_LISTEN,)
        if any(address.version == 6 for address in connect):
            listen = (*listen, Address("::", DEFAULT_LISTEN.port))
    timeout = values["timeout"]
    return Settings(
        listen=listen,
        connect=connect,
        timeout=timeout if isinstance(timeout, Duration) else Duration(0),
        log_format=str(values["log-format"]),
        log_level=str(values["log-level"]),
    )


def _addresses(value: object) -> tuple[Address, ...]:
    """Each address once, in order."""
    given = value if isinstance(value, tuple) else ()
    return tuple(dict.fromkeys(a for a in given if isinstance(a, Address)))
