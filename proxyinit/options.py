"""From a parsed command line to the values a run needs, checked as a whole."""

from __future__ import annotations

from proxyinit.config import RedirectConfig, host_bits
from proxyinit.pflag import split_items
from proxyinit.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from proxyinit.pflag import Arguments

SUBNET_FLAGS = (
    "subnets-to-ignore",
    "inbound-subnets-to-ignore",
    "outbound-subnets-to-ignore",
)


class Options(Record):
    """How to go about it: where, with which programs, how patiently.

    `mode` is one of flags.MODES. `netns` is a path, of ``--pid`` too; empty means
    the caller's own namespace. `bin_dir` is searched instead of PATH;
    `close_wait_s` 0 leaves the sysctl alone; `host` allows the node's own namespace.
    """

    mode: str = "legacy"
    bin_dir: str = ""
    ipv6: bool = True
    netns: str = ""
    simulate: bool = False
    lock_wait_s: int = 5
    close_wait_s: int = 0
    host: bool = False


def redirect_config(arguments: Arguments) -> RedirectConfig:
    """The configuration that arguments without problems ask for."""
    values: dict[str, Any] = arguments.values
    return RedirectConfig(
        inbound_port=values["incoming-proxy-port"],
        outbound_port=values["outgoing-proxy-port"],
        proxy_uids=values["proxy-uid"],
        proxy_gids=values["proxy-gid"],
        ports_to_redirect=values["ports-to-redirect"],
        inbound_ports_to_ignore=values["inbound-ports-to-ignore"],
        outbound_ports_to_ignore=values["outbound-ports-to-ignore"],
        inbound_subnets_to_ignore=(
            *values["subnets-to-ignore"],
            *values["inbound-subnets-to-ignore"],
        ),
        outbound_subnets_to_ignore=values["outbound-subnets-to-ignore"],
    )


def options(arguments: Arguments) -> Options:
    """How to run, from arguments of any command; absent flags mean the defaults."""
    values: dict[str, Any] = arguments.values
    mode, bin_dir = _backend(arguments)
    pid = values.get("pid")
    return Options(
        mode=mode,
        bin_dir=bin_dir,
        ipv6=values.get("ipv6", True),
        netns=f"/proc/{pid}/ns/net" if pid else values.get("netns") or "",
        simulate=values["simulate"],
        lock_wait_s=values["lock-wait-secs"],
        close_wait_s=values.get("timeout-close-wait-secs", 0),
        host=values.get("host", False),
    )


def _backend(arguments: Arguments) -> tuple[str, str]:
    """The mode, and the folder that a path in --firewall-bin-path names."""
    values: dict[str, Any] = arguments.values
    given = arguments.given
    path = values.get("firewall-bin-path") or "iptables-legacy"
    if "firewall-bin-path" not in given and "firewall-save-bin-path" in given:
        path = values["firewall-save-bin-path"].removesuffix("-save")
    folder, slash, name = path.rpartition("/")
    variant = name.removeprefix("iptables").removeprefix("-") or "plain"
    return values.get("iptables-mode") or variant, folder + slash


def problems(arguments: Arguments) -> Iterator[str]:
    """Mistakes that show only when flags are seen together."""
    given, values = arguments.given, arguments.values
    for name in ("incoming-proxy-port", "outgoing-proxy-port"):
        if name in values and name not in given:
            yield f"--{name} is missing: the proxy's port, such as 4143"
    ports = values.get("incoming-proxy-port"), values.get("outgoing-proxy-port")
    if ports[0] is not None and ports[0] == ports[1]:
        yield (
            f"--incoming-proxy-port and --outgoing-proxy-port are both {ports[0]}: "
            "expected two different ports"
        )
    if "netns" in given and "pid" in given:
        yield "--netns and --pid both name a namespace: give one of them"
    if "iptables-mode" not in given:
        yield from _disagreement(given)


def _disagreement(given: dict[str, list[str]]) -> Iterator[str]:
    binary = given.get("firewall-bin-path")
    save = given.get("firewall-save-bin-path")
    if binary and save and f"{binary[-1]}-save" != save[-1]:
        yield (
            f"--firewall-bin-path {binary[-1]!r} and --firewall-save-bin-path "
            f"{save[-1]!r} are not one pair: expected {binary[-1] + '-save'!r}"
        )


def warnings(arguments: Arguments) -> Iterator[str]:
    """What is accepted but may not be what was meant."""
    values: dict[str, Any] = arguments.values
    for name in SUBNET_FLAGS:
        items = split_items(arguments.given.get(name, ()))
        for item, subnet in zip(items, values[name], strict=True):
            if host_bits(item, subnet):
                yield f"--{name} {item} has host bits set: taken as {subnet}"
    if not values["proxy-uid"] and not values["proxy-gid"]:
        yield (
            "neither --proxy-uid nor --proxy-gid is given: the proxy's own "
            "connections will be redirected to itself"
        )
