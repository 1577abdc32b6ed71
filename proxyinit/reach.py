"""Whether connections get as far as our jumps, or another rule takes them first.

A redirect that is in place but behind somebody's ACCEPT intercepts nothing
(contract, interception 3.11), so presence is not enough. Pure.
"""

from __future__ import annotations

from proxyinit.iptables_rule import render_rule
from proxyinit.reconcile import is_jump
from proxyinit.record import Record
from proxyinit.rules import (
    Comment,
    Destination,
    Destinations,
    InInterface,
    OutInterface,
    Protocol,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxyinit.rules import Match, Rule, Ruleset, Subnet

PASSING_TARGETS = frozenset(
    (
        *("LOG", "NFLOG", "ULOG", "TRACE", "AUDIT", "LED", "RATEEST", "IDLETIMER"),
        *("MARK", "CONNMARK", "SECMARK", "CONNSECMARK", "CLASSIFY", "CHECKSUM"),
        *("DSCP", "TOS", "TTL", "HL", "TCPMSS", "SET", "TEE", "NOTRACK", "CT"),
    )
)
"""Targets after which the packet goes on to the next rule."""


class Shadow(Record):
    """A rule in front of our jump that ends a connection's way through the chain.

    `certain` when it stands in the builtin chain itself, or when every TCP
    connection gets to it; otherwise another program's chain takes some.
    """

    chain: str
    number: int
    rule: Rule
    within: str
    certain: bool

    def __str__(self) -> str:
        where = f"rule {self.number} of {self.chain}, '{render_rule(self.rule)}',"
        inside = f" (through chain {self.within})" if self.within else ""
        return f"{where} stands in front of the jump to proxy-init's chain{inside}"


def shadows(table: Ruleset) -> Iterator[Shadow]:
    """Every rule that can take TCP connections before they reach our jumps.

    Rules for loopback alone don't count: loopback is not redirected.
    """
    for chain in ("PREROUTING", "OUTPUT"):
        rules = table.rules(chain)
        before = next((n for n, r in enumerate(rules) if is_jump(r)), len(rules))
        for number, rule in enumerate(rules[:before], start=1):
            if not _can_match(rule):
                continue
            target, goto = _target(rule)
            if goto:  # from a builtin chain it leads to the policy in the end
                yield Shadow(chain, number, rule, target, certain=True)
            elif table.chain(target) is None:
                if target and target not in PASSING_TARGETS:
                    yield Shadow(chain, number, rule, "", certain=True)
            elif ends := _ends(table, target, frozenset()):
                always = _always(rule) and ends == "always"
                yield Shadow(chain, number, rule, target, certain=always)


_HOOKS = ("type nat hook prerouting ", "type nat hook output ")
_REDIRECTING = ("REDIRECT", "DNAT", "NETMAP", "NFT")
"""Targets that may change a connection's destination; NFT is what only nft can say."""


def closed_doors(table: Ruleset) -> Iterator[tuple[str, str]]:
    """(builtin chain, policy) where what our chains leave alone is not accepted."""
    for name in ("PREROUTING", "OUTPUT"):
        chain = table.chain(name)
        if chain and chain.policy not in (None, "ACCEPT"):
            yield name, chain.policy


def always_first(table: Ruleset) -> Iterator[tuple[str, Rule]]:
    """(chain, rule) that redirects every connection before our hooks are asked.

    For native tables: at a lower priority number, for all of TCP, in the base chain
    itself.
    """
    for chain in table.chains:
        if not chain.hook.startswith(_HOOKS):
            continue
        priority = chain.hook.rpartition(" ")[2]
        early = priority.removeprefix("-").isdecimal() and int(priority) < -100
        for rule in chain.rules if early else ():
            if _target(rule)[0] in ("REDIRECT", "DNAT") and _always(rule):
                yield chain.name, rule


def nat_hooks(table: Ruleset) -> list[str]:
    """The chains of a native table that new connections come in by."""
    return [chain.name for chain in table.chains if chain.hook.startswith(_HOOKS)]


def rivals(table: Ruleset, hooks: Sequence[str] = ()) -> Iterator[tuple[str, Rule]]:
    """(chain, rule) of every other redirection of TCP that hooks lead to.

    An accept is none: the kernel asks the nat chains of other tables as well, until
    one redirects (nf_nat_inet_fn). With `hooks` the table is a native one of others,
    where nothing is ours by its name.
    """
    chains = [*hooks] or ["PREROUTING", "OUTPUT"]
    for chain in chains:  # grows while it is walked
        for rule in table.rules(chain):
            target, _ = _target(rule)
            if (not hooks and is_jump(rule)) or not _can_match(rule):
                continue
            if target in _REDIRECTING:
                yield chain, rule
            elif table.chain(target) and target not in chains:
                chains.append(target)


def _target(rule: Rule) -> tuple[str, bool]:
    """The target's name, empty for none, and whether there is no way back from it."""
    return (rule.verdict.target, rule.verdict.goto) if rule.verdict else ("", False)


def _ends(table: Ruleset, chain: str, seen: frozenset[str]) -> str:
    """Whether connections may end in a chain: "" never, "sometimes" or "always"."""
    answer, escapes = "", False
    for rule in table.rules(chain) if chain not in seen else ():
        target, goto = _target(rule)
        if not target or target in PASSING_TARGETS or not _can_match(rule):
            continue
        if target == "RETURN":
            if _always(rule):
                return answer
            escapes = True
            continue
        inner = "always"
        if table.chain(target) is not None:
            inner = _ends(table, target, seen | {chain})
        if inner == "always" and _always(rule) and not escapes:
            return "always"
        answer = "sometimes" if inner else answer
        if goto and _always(rule):
            return answer
        escapes = escapes or goto
    return answer


def _always(rule: Rule) -> bool:
    """Whether every TCP packet matches."""
    return all(
        isinstance(match, Comment) or match == Protocol("tcp") for match in rule.matches
    )


def _can_match(rule: Rule) -> bool:
    """Whether a TCP packet from or to another host can match."""
    return not any(map(_excludes, rule.matches))


def _excludes(match: Match) -> bool:
    if isinstance(match, Protocol):
        return (match.name in ("tcp", "6", "all", "0")) == match.negated
    if isinstance(match, InInterface | OutInterface):
        return match.name == "lo" and not match.negated
    if isinstance(match, Destination) and not match.negated:
        return _is_loopback(match.subnet)
    if isinstance(match, Destinations) and not match.negated:
        return all(map(_is_loopback, match.subnets))
    return False


def _is_loopback(subnet: Subnet) -> bool:
    address = subnet.address
    return address == "::1" or (address.startswith("127.") and subnet.prefix >= 8)
