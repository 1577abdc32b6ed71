"""What libiptc reads from the kernel is what we planned.

python-iptables talks to the kernel by itself, so it is a witness independent of
every iptables program and of our own parser. It knows legacy tables only, and
one family per process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from installed import PROGRAM

from proxyinit.config import RedirectConfig, parse_ports, parse_subnet
from proxyinit.lab import Namespace
from proxyinit.plan import plan
from proxyinit.rules import (
    IPV4,
    IPV6,
    Comment,
    Destination,
    OutInterface,
    OwnerGid,
    OwnerUid,
    Protocol,
    Rule,
    Source,
    TcpPort,
    TcpPorts,
)

if TYPE_CHECKING:
    from proxyinit.rules import Version


WITNESS = """
import iptc, json, sys

ipv6 = sys.argv[1] == "6"
table = (iptc.Table6 if ipv6 else iptc.Table)("nat", autocommit=False)
found = {}
for chain in table.chains:
    rules = [iptc.easy.decode_iptc_rule(rule, ipv6=ipv6) for rule in chain.rules]
    policy = chain.get_policy().name if chain.is_builtin() else None
    found[chain.name] = [policy, rules]
json.dump(found, sys.stdout)
"""

PORTS = ("-p", "4143", "-o", "4140")
MANY = tuple(range(6001, 6017))

CASES = [
    pytest.param(
        (*PORTS, "-u", "2102"),
        RedirectConfig(4143, 4140, (2102,)),
        id="a user",
    ),
    pytest.param(
        (
            *(*PORTS, "-u", "2102"),
            *("--inbound-ports-to-ignore", "4190,4191,4567,4568"),
            *("--outbound-ports-to-ignore", "4567,4568"),
        ),
        RedirectConfig(
            4143,
            4140,
            (2102,),
            inbound_ports_to_ignore=tuple(
                map(parse_ports, ("4190", "4191", "4567", "4568"))
            ),
            outbound_ports_to_ignore=tuple(map(parse_ports, ("4567", "4568"))),
        ),
        id="Linkerd's chart",
    ),
    pytest.param(
        (
            *("-p", "65535", "-o", "1", "-u", "0,4294967294", "-g", "0,7"),
            *("-r", "80,65535"),
            *("--inbound-ports-to-ignore", f"25-26,{','.join(map(str, MANY))}"),
            *("--subnets-to-ignore", "10.0.0.0/9,192.0.2.1/32,fd00::/8,::/0"),
            *("--outbound-subnets-to-ignore", "198.51.100.0/25,0.0.0.0/0"),
            *("--outbound-subnets-to-ignore", "2001:db8::/33,::ffff:1.2.3.0/120"),
        ),
        RedirectConfig(
            65535,
            1,
            (0, 4294967294),
            (0, 7),
            (80, 65535),
            inbound_ports_to_ignore=tuple(map(parse_ports, ("25-26", *map(str, MANY)))),
            inbound_subnets_to_ignore=tuple(
                map(parse_subnet, ("10.0.0.0/9", "192.0.2.1/32", "fd00::/8", "::/0"))
            ),
            outbound_subnets_to_ignore=tuple(
                map(
                    parse_subnet,
                    (
                        *("198.51.100.0/25", "0.0.0.0/0"),
                        *("2001:db8::/33", "::ffff:1.2.3.0/120"),
                    ),
                )
            ),
        ),
        id="everything at its limits",
    ),
]


def read(namespace: Namespace, version: Version) -> dict[str, Any]:
    """Policy and rules of every chain of the nat table, as libiptc has them."""
    done = namespace.exec([sys.executable, "-c", WITNESS, str(version)])
    assert (done.returncode, done.stderr.strip()) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


MATCH_WORDS: dict[type, Callable[[Any], dict[str, Any]]] = {
    Protocol: lambda match: {"protocol": match.name},
    Source: lambda match: {"src": str(match.subnet)},
    Destination: lambda match: {"dst": str(match.subnet)},
    OutInterface: lambda match: {"out-interface": match.name},
    TcpPort: lambda match: {"tcp": {"dport": str(match.ports)}},
    TcpPorts: lambda match: {"multiport": {"dports": ",".join(map(str, match.ranges))}},
    OwnerUid: lambda match: {"owner": {"uid-owner": str(match.uid)}},
    OwnerGid: lambda match: {"owner": {"gid-owner": str(match.gid)}},
    Comment: lambda match: {"comment": {"comment": match.text}},
}


def in_its_words(rule: Rule) -> dict[str, Any]:
    """A rule of ours as python-iptables describes one that it read."""
    words: dict[str, Any] = {}
    for match in rule.matches:
        words |= MATCH_WORDS[type(match)](match)
    assert rule.verdict
    options = rule.verdict.args
    target: Any = rule.verdict.target
    if options:
        names = (option.removeprefix("--") for option in options[::2])
        target = {target: dict(zip(names, options[1::2], strict=True))}
    return words | {"target": target, "counters": [0, 0]}


@pytest.mark.parametrize("version", [IPV4, IPV6], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize(("arguments", "config"), CASES)
def test_libiptc_reads_what_was_planned(
    namespace: Namespace,
    arguments: tuple[str, ...],
    config: RedirectConfig,
    version: Version,
) -> None:
    """Chains, policies, and every rule in its order; and nothing else is there."""
    done = namespace.exec([PROGRAM, *arguments])
    assert done.returncode == 0, done.stderr

    found = read(namespace, version)

    builtin = ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING")
    expected: dict[str, Any] = {name: ["ACCEPT", []] for name in builtin}
    for chain in plan(config, version).chains:
        policy = "ACCEPT" if chain.name in builtin else None
        expected[chain.name] = [policy, [in_its_words(rule) for rule in chain.rules]]
    assert found == expected


def test_libiptc_finds_nothing_after_cleanup(namespace: Namespace) -> None:
    """The table is empty again."""
    for arguments in ((*PORTS, "-u", "2102"), ("cleanup",)):
        assert namespace.exec([PROGRAM, *arguments]).returncode == 0
    for version in (IPV4, IPV6):
        assert all(rules == [] for _, rules in read(namespace, version).values())
        assert len(read(namespace, version)) == 4
