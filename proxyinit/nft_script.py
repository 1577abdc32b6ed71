"""One table as nft spells it: text from values, as ``nft list table`` prints it.

Every word that comes from outside the model is checked or was read from nft itself;
nft's strings have no escapes, so nothing in quotes can end them. Pure.
"""

from __future__ import annotations

from proxyinit.rules import (
    OUR_TABLE,
    Comment,
    Destination,
    Destinations,
    Extension,
    Family,
    InInterface,
    OutInterface,
    OwnerGid,
    OwnerUid,
    Protocol,
    Source,
    Sources,
    TcpPort,
    TcpPorts,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from proxyinit.rules import Chain, Match, PortRange, Rule, Ruleset, Subnet, Verdict

WORDS = "nft"
"""Name of an `Extension` that keeps nft's own words, and in capitals of a verdict."""

_NAME = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./")


def render(table: Ruleset) -> str:
    """The whole table in the form of ``nft list table``; it can be loaded again."""
    parts = [f"\t{other}\n" for other in table.others]
    parts += [_chain(chain) for chain in table.chains]
    return f"table inet {OUR_TABLE} {{\n" + "\n".join(parts) + "}\n"


def _chain(chain: Chain) -> str:
    lines = [f"\tchain {_bare(chain.name)} {{", *declared(chain)]
    lines += [f"\t\t{render_rule(rule)}" for rule in chain.rules]
    return "\n".join([*lines, "\t}", ""])


def declared(chain: Chain) -> Iterator[str]:
    """The line that hooks a base chain in; none for others."""
    if chain.hook:
        yield f"\t\t{chain.hook}; policy {(chain.policy or 'ACCEPT').lower()};"


def render_rule(rule: Rule) -> str:
    """The rule's statements: matches, a counter, the verdict and the comment."""
    parts = [*_matches(rule.matches), "counter"]
    if rule.verdict:
        parts.append(_verdict(rule.verdict))
    if any(isinstance(match, Comment) for match in rule.matches):
        parts.append(f"comment {_quoted(rule.reason)}")
    return " ".join(parts)


def _matches(matches: tuple[Match, ...]) -> Iterator[str]:
    """In nft's own shorter words where it has some: it would list them so anyway."""
    before: Match | None = None
    for match, following in zip(matches, (*matches[1:], None), strict=False):
        if before == Family(4) and isinstance(match, Protocol):
            yield _match(match).replace("meta l4proto", "ip protocol", 1)
        elif match == Family(4) and isinstance(following, Protocol):
            pass  # said with the protocol
        elif match == Protocol("tcp") and isinstance(following, TcpPort | TcpPorts):
            pass  # said with the port
        elif not isinstance(match, Comment):
            yield _match(match)
        before = match


def _match(match: Match) -> str:
    if isinstance(match, Extension):
        if match.name != WORDS:
            raise ValueError(f"nft has no words for the iptables match {match.name!r}")
        return " ".join(match.args)
    not_equal = "!= " if getattr(match, "negated", False) else ""
    key, value = _KEYS[type(match)](match)
    return f"{key} {not_equal}{value}"


def _ports(match: TcpPort | TcpPorts) -> tuple[str, str]:
    ranges = match.ranges if isinstance(match, TcpPorts) else (match.ports,)
    return "tcp dport", _set(map(_port_range, ranges))


def _port_range(ports: PortRange) -> str:
    return f"{ports.low}" if ports.low == ports.high else f"{ports.low}-{ports.high}"


def _addresses(
    match: Source | Sources | Destination | Destinations,
) -> tuple[str, str]:
    if isinstance(match, Sources | Destinations):
        subnets = match.subnets
    else:
        subnets = (match.subnet,)
    family = "ip" if subnets[0].version == 4 else "ip6"
    which = "saddr" if isinstance(match, Source | Sources) else "daddr"
    return f"{family} {which}", _set(map(_subnet, subnets))


def _subnet(subnet: Subnet) -> str:
    whole = subnet.prefix == (32 if subnet.version == 4 else 128)
    return subnet.address if whole else str(subnet)


def _set(items: Iterable[str]) -> str:
    members = list(items)
    return members[0] if len(members) == 1 else f"{{ {', '.join(members)} }}"


def _interface(name: str) -> str:
    return _quoted(f"{name[:-1]}*" if name.endswith("+") else name)


_KEYS: dict[type[Any], Callable[[Any], tuple[str, str]]] = {
    Protocol: lambda m: ("meta l4proto", _bare(m.name)),
    Family: lambda m: ("meta nfproto", f"ipv{m.version}"),
    Source: _addresses,
    Sources: _addresses,
    Destination: _addresses,
    Destinations: _addresses,
    TcpPort: _ports,
    TcpPorts: _ports,
    InInterface: lambda m: ("iifname", _interface(m.name)),
    OutInterface: lambda m: ("oifname", _interface(m.name)),
    OwnerUid: lambda m: ("meta skuid", f"{m.uid}"),
    OwnerGid: lambda m: ("meta skgid", f"{m.gid}"),
}


_PLAIN = ("ACCEPT", "DROP", "RETURN", "REDIRECT", "MASQUERADE")


def _verdict(verdict: Verdict) -> str:
    target, args = verdict.target, verdict.args
    if args[:1] == ("--to-ports",):
        return f"redirect to :{int(args[1])}"
    if args[:1] == ("--to-destination",):
        family = "ip6" if args[1].startswith("[") or args[1].count(":") > 1 else "ip"
        return f"dnat {family} to {_bare(args[1], extra=':[]')}"
    if args:
        return " ".join(args)  # as read from nft
    if target in _PLAIN:
        return target.lower()
    return f"{'goto' if verdict.goto else 'jump'} {_bare(target)}"


# === words ===


def _bare(word: str, extra: str = "") -> str:
    """A word without quotes, or ValueError when nft could take it for more."""
    if word and _NAME.issuperset(word.translate({ord(c): None for c in extra})):
        return word
    raise ValueError(f"expected letters, digits and -_./ only: {word!r}")


def _quoted(text: str) -> str:
    """A string; nft has no way to write a quote in it, so that one is changed."""
    return '"' + text.replace('"', "'") + '"'
