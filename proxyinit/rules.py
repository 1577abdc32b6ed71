"""The rule model: packet matches, verdicts, rules, chains and a family's nat table.

One model for every purpose: planning makes these values, renderers write them
for iptables-restore, parsers read them back from iptables-save, and
reconciling, explaining and verifying are functions over them. Two values are
equal exactly when the kernel would keep them as the same thing, order and
comment included.
"""

from __future__ import annotations

from proxyinit.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, TypeAlias

    Version: TypeAlias = Literal[1, 4, 6]
    """What a table is for: IP version 4 or 6 as in a packet's header, or both."""

IPV4: Version = 4
IPV6: Version = 6
INET: Version = 1
"""Both versions in one table of nf_tables (its number there: NFPROTO_INET)."""

REDIRECT_CHAIN = "PROXY_INIT_REDIRECT"
OUTPUT_CHAIN = "PROXY_INIT_OUTPUT"
OUR_CHAINS = (REDIRECT_CHAIN, OUTPUT_CHAIN)
"""The chains of upstream's proxy-init; everything in them is ours."""

OUR_TABLE = "proxy_init"
"""The table of family inet that is ours in nftables; everything in it is."""
NAT_PREROUTING = "type nat hook prerouting priority -100"
NAT_OUTPUT = "type nat hook output priority -100"
"""Where our table is hooked in: as iptables' nat. nft takes the name ``dstnat`` for
-100 on the first of these hooks only."""


class PortRange(Record):
    """TCP ports `low` to `high`, both included, 1-65535."""

    low: int
    high: int

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}:{self.high}"


class Subnet(Record):
    """A network in the kernel's form: no host bits, address as inet_ntop prints."""

    version: Version
    address: str
    prefix: int

    def __str__(self) -> str:
        return f"{self.address}/{self.prefix}"


class Protocol(Record):
    """The transport protocol, by name or number: ``-p tcp``."""

    name: str
    negated: bool = False


class Family(Record):
    """The packet's IP version, for tables of both: ``meta nfproto``."""

    version: Version
    negated: bool = False


class Source(Record):
    """The packet's source address lies in the subnet: ``-s``."""

    subnet: Subnet
    negated: bool = False


class Destination(Record):
    """The packet's destination address lies in the subnet: ``-d``."""

    subnet: Subnet
    negated: bool = False


class Sources(Record):
    """The source address lies in one of the subnets, all of one version: a set."""

    subnets: tuple[Subnet, ...]
    negated: bool = False


class Destinations(Record):
    """The destination address lies in one of the subnets of one version: a set."""

    subnets: tuple[Subnet, ...]
    negated: bool = False


class InInterface(Record):
    """The interface a packet came in by; a final ``+`` is a wildcard: ``-i``."""

    name: str
    negated: bool = False


class OutInterface(Record):
    """The interface a packet leaves by; a final ``+`` is a wildcard: ``-o``."""

    name: str
    negated: bool = False


class TcpPort(Record):
    """The TCP destination port lies in the range: ``-m tcp --dport``."""

    ports: PortRange
    negated: bool = False


class TcpPorts(Record):
    """The TCP destination port lies in one of the ranges: ``-m multiport --dports``.

    In iptables at most 15 slots, a range fills two of them; in nftables, where it is
    a set, any number.
    """

    ranges: tuple[PortRange, ...]
    negated: bool = False


class OwnerUid(Record):
    """The socket was opened by this user; only locally made packets have one."""

    uid: int
    negated: bool = False


class OwnerGid(Record):
    """The socket was opened by this group; only locally made packets have one."""

    gid: int
    negated: bool = False


class Comment(Record):
    """Matches every packet and says why the rule is there (at most 255 bytes)."""

    text: str


class Extension(Record):
    """Any other match, kept word for word: ``-m name args``.

    With an empty name the words are options of iptables itself, such as ``-f``.
    """

    name: str
    args: tuple[str, ...]


if TYPE_CHECKING:
    Match: TypeAlias = (
        Protocol
        | Family
        | Source
        | Destination
        | Sources
        | Destinations
        | InInterface
        | OutInterface
        | TcpPort
        | TcpPorts
        | OwnerUid
        | OwnerGid
        | Comment
        | Extension
    )


class Verdict(Record):
    """What happens to a packet: a builtin or extension target, or another chain.

    With `goto` the packet does not come back to the chain it left.
    """

    target: str
    args: tuple[str, ...] = ()
    goto: bool = False


RETURN = Verdict("RETURN")


def redirect_to(port: int) -> Verdict:
    """The packet's destination becomes the incoming interface's address and `port`."""
    return Verdict("REDIRECT", ("--to-ports", str(port)))


class Rule(Record):
    """A packet that meets every match gets the verdict; None only counts it."""

    matches: tuple[Match, ...]
    verdict: Verdict | None

    @property
    def reason(self) -> str:
        """The comment: why the rule is there; empty when nobody said."""
        for match in self.matches:
            if isinstance(match, Comment):
                return match.text
        return ""


class Chain(Record):
    """Rules in the order they are tried; builtin chains have a policy.

    `hook` is how nftables declares where packets come in, its priority as a number:
    ``type nat hook prerouting priority -100``. In iptables the name says it.
    """

    name: str
    rules: tuple[Rule, ...] = ()
    policy: str | None = None
    hook: str = ""


class Ruleset(Record):
    """The nat table of one IP version, or of both (`INET`, nftables' own table).

    `others` is what else a table of nftables holds, word for word: named sets and
    maps, objects, flags.
    """

    version: Version
    chains: tuple[Chain, ...] = ()
    others: tuple[str, ...] = ()

    def chain(self, name: str) -> Chain | None:
        """The chain of that name, or None."""
        for chain in self.chains:
            if chain.name == name:
                return chain
        return None

    def rules(self, name: str) -> tuple[Rule, ...]:
        """The rules of the chain; none when there is no such chain."""
        chain = self.chain(name)
        return chain.rules if chain else ()
