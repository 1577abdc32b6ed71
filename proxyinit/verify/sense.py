"""Whether the rules of a namespace make sense, and do what is wanted. Pure.

With the flags of an install the rules are held against their plan; without, against
the plan of the configuration that is read back from them, so that what contradicts
itself shows all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxyinit.config import RedirectConfig
from proxyinit.diagnose import diagnose
from proxyinit.reach import shadows
from proxyinit.reconcile import jumps, ours
from proxyinit.rules import (
    INET,
    IPV4,
    IPV6,
    OUR_CHAINS,
    OUTPUT_CHAIN,
    RETURN,
    Comment,
    OwnerGid,
    OwnerUid,
    Rule,
    Ruleset,
)
from proxyinit.verify.checks import FAIL, OK, UNKNOWN, WARN, Check
from proxyinit.verify.deviation import (
    foreign_chains,
    foreign_rules,
    jump_deviations,
    rule_deviations,
    spelled,
)
from proxyinit.verify.facts import UNSEEN, Facts, Survey
from proxyinit.verify.readback import Wanted, readback_one, redirect_port, redirected_to

if TYPE_CHECKING:
    from proxyinit.rules import Version

REPAIR = "run proxy-init again with the pod's flags: it mends its own rules, no gap"
_HOOKS = ("PREROUTING", "OUTPUT")
_PREFIX = {IPV4: "IPv4: ", IPV6: "IPv6: ", INET: ""}


@dataclass(frozen=True, slots=True)
class Holder:
    """A backend that holds rules of ours, and its tables that do.

    Nothing is known of the tables of `unread` versions.
    """

    kind: str
    tables: Mapping[Version, Ruleset]
    unread: tuple[Version, ...] = ()

    def __str__(self) -> str:
        return backend_name(self.kind)

    @property
    def hooked(self) -> int:
        """How many jumps of the kernel's hooks lead to our chains."""
        return sum(
            chain in _HOOKS for t in self.tables.values() for chain, _ in jumps(t)
        )


def backend_name(kind: str) -> str:
    """A kind of backend as people call it."""
    return kind if kind == "nftables" else f"iptables-{kind}"


def holders(survey: Survey) -> list[Holder]:
    """Backends with rules of ours, the one in charge first."""
    tables: dict[str, dict[Version, Ruleset]] = {}
    for (kind, version), table in survey.tables.items():
        if ours(table).chains:
            tables.setdefault(kind, {})[version] = table
    found = [
        Holder(kind, of_kind, tuple(v for k, v in survey.problems if k == kind))
        for kind, of_kind in tables.items()
    ]
    return sorted(found, key=lambda holder: -holder.hooked)


def row(name: str, good: str, problems: Iterable[Check]) -> list[Check]:
    """The problems found, or one row that says it is well."""
    return list(problems) or [Check(name, OK, good)]


# === what can be said before it is known what is wanted ===


def unreadable(survey: Survey) -> Iterator[Check]:
    """Tables that may hold rules and could not be read."""
    for (kind, version), text in survey.problems.items():
        where = f"{backend_name(kind)}, {_PREFIX[version] or 'IPv4 and IPv6: '}"
        yield Check("readable", UNKNOWN, f"{where}{text}", _remedy(kind, text))


def _remedy(kind: str, text: str) -> str:
    if text == UNSEEN:
        return "run as root"
    if text.startswith("not found: "):
        package = "nftables" if kind == "nftables" else "iptables"
        return f"install the {package} package"
    return diagnose(text).advice


def backend(facts: Facts, found: list[Holder]) -> list[Check]:
    """One backend is in charge, and no other holds rules of ours."""
    name = "backend"
    if not found:
        if facts.survey.problems:
            text = "no rules of proxy-init where one can look"
            return [Check(name, UNKNOWN, text, "make the rest readable, as above")]
        text = "no rules of proxy-init in any backend: nothing is redirected"
        return [Check(name, FAIL, text, "run proxy-init with the pod's flags")]
    first, *others = found
    return row(name, f"{first}", (_besides(first, other) for other in others))


def _besides(first: Holder, other: Holder) -> Check:
    where = " and ".join(_PREFIX[v].rstrip(": ") for v in other.tables if v != INET)
    place = f"{other}{f' ({where})' if where else ''}"
    if other.hooked:
        text = f"{place} redirects besides {first}: two backends are in charge"
        return Check("backend", FAIL, text, REPAIR)
    text = f"{place} holds chains of an earlier run, to which nothing leads"
    return Check("backend", WARN, text, REPAIR)


# === rules against what is wanted ===


@dataclass(frozen=True, slots=True)
class Pair:
    """A table as it is wanted, and as it is."""

    wanted: Ruleset
    live: Ruleset

    @property
    def prefix(self) -> str:
        """What tells which table a sentence is about; nothing where there is one."""
        return _PREFIX[self.live.version]


def pairs(holder: Holder, wanted: Wanted) -> list[Pair]:
    """Every table that should be there, beside what is there, where that is known."""
    versions = (INET,) if INET in holder.tables else wanted.versions
    return [
        Pair(wanted.table(version), holder.tables.get(version, Ruleset(version)))
        for version in versions
        if version not in holder.unread
    ]


def rule_checks(tables: list[Pair]) -> Iterator[Check]:
    """Chains, jumps, reachability, rules and the proxy's own way out."""
    yield from row("chains", "both are there", _each(tables, "chains", _chains))
    yield from row("jumps", "each stands there once", _each(tables, "jumps", _jumps))
    yield from row("reachable", "nothing in front of the jumps", _reach(tables))
    yield from row("rules", "complete and in order", _each(tables, "rules", _rules))
    bypass = _each(tables, "owner bypass", _bypass)
    yield from row("owner bypass", "before the redirect", bypass)


def redirectless(holder: Holder) -> Iterator[Check]:
    """The same, of rules that don't redirect both directions in any family."""
    ipv6 = IPV6 in holder.tables or INET in holder.tables
    # Jumps are the same for every configuration.
    tables = pairs(holder, Wanted(RedirectConfig(1, 2), ipv6=ipv6))
    yield from row("chains", "both are there", _each(tables, "chains", _chains))
    yield from row("jumps", "each stands there once", _each(tables, "jumps", _jumps))
    yield from row("reachable", "nothing in front of the jumps", _reach(tables))
    yield from _each(tables, "rules", _without_redirect)


def _without_redirect(pair: Pair) -> Iterator[str]:
    for name in OUR_CHAINS:
        rules = pair.live.rules(name)
        if pair.live.chain(name) and redirected_to(rules) is None:
            state = "none of its rules redirects" if rules else "it is empty"
            partly = next((rule for rule in rules if redirect_port(rule)), None)
            if partly:
                text = spelled(partly, pair.live)
                state = f"'{text}' is for some connections only"
            yield f"{name}: {state}"


def _each(
    tables: list[Pair], name: str, faults: Callable[[Pair], Iterator[str]]
) -> Iterator[Check]:
    for pair in tables:
        for text in faults(pair):
            yield Check(name, FAIL, f"{pair.prefix}{text}", REPAIR)


def _chains(pair: Pair) -> Iterator[str]:
    for name in OUR_CHAINS:
        if pair.live.chain(name) is None:
            yield f"chain {name} is missing"


def _jumps(pair: Pair) -> Iterator[str]:
    yield from jump_deviations(pair.wanted, pair.live)


def _rules(pair: Pair) -> Iterator[str]:
    for name in OUR_CHAINS:
        if pair.live.chain(name):
            yield from rule_deviations(name, pair.wanted, pair.live)
    for chain in foreign_chains(pair.wanted, pair.live):
        yield f"chain {chain.name} does not belong in our table"
    for name, rule in foreign_rules(pair.wanted, pair.live):
        yield f"{name}: '{spelled(rule, pair.live)}' does not belong in our table"


def _reach(tables: list[Pair]) -> Iterator[Check]:
    for pair in tables:
        hooked = {chain for chain, _ in jumps(pair.live)}
        for shadow in shadows(pair.live):
            if shadow.chain not in hooked:
                continue
            state = FAIL if shadow.certain else WARN
            inside = f" (through chain {shadow.within})" if shadow.within else ""
            text = (
                f"{pair.prefix}rule {shadow.number} of {shadow.chain}, "
                f"'{spelled(shadow.rule, pair.live)}', stands in front of the "
                f"jump{inside}: what it takes passes by the proxy"
            )
            yield Check("reachable", state, text, _delete(pair, shadow.chain))
        for name in _HOOKS:
            chain = pair.live.chain(name)
            if chain and chain.policy not in (None, "ACCEPT"):
                text = f"{pair.prefix}the policy of {name} is {chain.policy}"
                advice = f"give {name} of the nat table the policy ACCEPT"
                yield Check("reachable", FAIL, text, advice)


def _delete(pair: Pair, chain: str) -> str:
    if pair.live.version == INET:
        return REPAIR
    return f"delete it, or add it to {chain} again behind the jump"


def _bypass(pair: Pair) -> Iterator[str]:
    rules = pair.live.rules(OUTPUT_CHAIN)
    redirect = next((n for n, r in enumerate(rules) if redirect_port(r)), len(rules))
    owners = [n for n, rule in enumerate(rules) if _passes_owner(rule)]
    if redirect == len(rules):
        return  # what redirects nothing leads into no loop
    if not owners:
        yield (
            "no rule lets the proxy's own connections pass: they come back to it, "
            "a loop (--proxy-uid)"
        )
    elif owners[0] > redirect:
        yield (
            f"rule {owners[0] + 1} of {OUTPUT_CHAIN}, which lets the proxy's own "
            f"connections pass, stands behind the redirect: a loop"
        )


def _passes_owner(rule: Rule) -> bool:
    matches = [match for match in rule.matches if not isinstance(match, Comment)]
    return (
        rule.verdict == RETURN
        and len(matches) == 1
        and isinstance(matches[0], OwnerUid | OwnerGid)
        and not matches[0].negated
    )


def families(holder: Holder) -> list[Check]:
    """IPv4 and IPv6 are redirected alike, by what their own rules say."""
    if not {IPV4, IPV6} <= set(holder.tables):
        return []
    one = readback_one(holder.tables[IPV4], ipv6=True)
    other = readback_one(holder.tables[IPV6], ipv6=True)
    if one is None or other is None:
        return []  # told already: there is a redirect missing
    problems = [
        Check(
            "families",
            FAIL,
            f"{field.replace('_', ' ')}: IPv4 has {_shown(value)}, IPv6 {_shown(six)}",
            REPAIR,
        )
        for (field, value), six in zip(
            one.config.__dict__.items(), other.config.__dict__.values(), strict=True
        )
        if "subnets" not in field and value != six
    ]
    return row("families", "IPv4 and IPv6 alike", problems)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    return str(value)
