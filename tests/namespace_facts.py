"""Facts of a namespace in which all is well, but for what a test changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from proxyinit.config import RedirectConfig
from proxyinit.plan import plan, plan_inet
from proxyinit.rules import INET, IPV4, IPV6, PortRange
from proxyinit.verify.checks import OK
from proxyinit.verify.facts import Facts, Listener, Survey
from proxyinit.verify.readback import Wanted
from proxyinit.verify.verdict import judge

CONFIG = RedirectConfig(
    4143,
    4140,
    (2102,),
    inbound_ports_to_ignore=(PortRange(4190, 4191),),
    outbound_ports_to_ignore=(PortRange(25, 25), PortRange(4567, 4568)),
)
WANTED = Wanted(CONFIG, ipv6=True)
POD = ("10.1.0.2", "fd00:1::2")
PROXY = tuple(
    Listener(version, address, port, 2102)
    for version, address in ((4, "0.0.0.0"), (6, "::"))  # noqa: S104  (a value)
    for port in (4143, 4140)
)


def facts(kind: str = "nft", **changes: Any) -> Facts:
    """A namespace in which all is well, but for the changes."""
    tables = {(kind, v): plan(CONFIG, v) for v in (IPV4, IPV6)}
    if kind == "nftables":
        tables = {(kind, INET): plan_inet(CONFIG, ipv6=True)}
    well = Facts(
        survey=Survey(tables, {}),
        addresses=POD,
        listeners=PROXY,
        conntrack=(10, 1000),
    )
    return replace(well, **changes)


def told(found: Facts, given: Wanted | None = None) -> list[tuple[str, str, str]]:
    """(state, name, sentence) of every check that is not well."""
    checks = judge(found, given).checks
    return [(c.state, c.name, c.found) for c in checks if c.state != OK]
