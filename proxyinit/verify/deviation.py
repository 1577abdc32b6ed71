"""How the rules of a chain deviate from those wanted: moved, missing, added, changed.

`reconcile.differences` compares place by place, which is what decides; after a rule
that is missing it names all that follow. Here each deviation is named once. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from proxyinit import iptables_rule, nft_script
from proxyinit.reconcile import is_jump, jumps
from proxyinit.rules import INET, Chain, Comment, Rule, Ruleset

MAX_TOLD = 8
"""Deviations of one chain that are told one by one."""


def spelled(rule: Rule, table: Ruleset) -> str:
    """A rule in the language of the table's own tool."""
    if table.version == INET:
        return nft_script.render_rule(rule)
    return iptables_rule.render_rule(rule)


def rule_deviations(chain: str, wanted: Ruleset, live: Ruleset) -> Iterator[str]:
    """What is wrong with the rules of a chain, one sentence each; order counts."""
    if wanted.rules(chain) == live.rules(chain):
        return
    found = list(_deviations(wanted.rules(chain), live.rules(chain), live))
    for text in found[:MAX_TOLD]:
        yield f"{chain}: {text}"
    if len(found) > MAX_TOLD:
        yield f"{chain}: and {len(found) - MAX_TOLD} more"


def _deviations(
    wanted: Sequence[Rule], live: Sequence[Rule], table: Ruleset
) -> Iterator[str]:
    missing: list[tuple[int, Rule]] = []
    added: list[tuple[int, Rule]] = []
    alignment = SequenceMatcher(None, wanted, live, autojunk=False)
    for kind, low, high, live_low, live_high in alignment.get_opcodes():
        if kind == "equal":
            continue
        missing += [(n + 1, wanted[n]) for n in range(low, high)]
        added += [(n + 1, live[n]) for n in range(live_low, live_high)]
    for number, rule in list(missing):
        moved = next((at for at, other in added if other == rule), None)
        if moved:
            missing.remove((number, rule))
            added.remove((moved, rule))
            yield (
                f"rule {moved}, '{spelled(rule, table)}', stands there "
                f"instead of at {number}"
            )
    for number, rule in list(missing):
        other = next((found for at, found in added if at == number), None)
        if other:
            missing.remove((number, rule))
            added.remove((number, other))
            what = "has another comment than" if _alike(rule, other) else "is not"
            yield (
                f"rule {number}, '{spelled(other, table)}', {what} "
                f"'{spelled(rule, table)}'"
            )
    for number, rule in missing:
        yield f"rule {number}, '{spelled(rule, table)}', is missing"
    for number, rule in added:
        yield f"rule {number}, '{spelled(rule, table)}', does not belong there"


def _alike(one: Rule, other: Rule) -> bool:
    """Whether two rules do the same, whatever their comments say."""
    return _bare(one) == _bare(other)


def _bare(rule: Rule) -> Rule:
    matches = (match for match in rule.matches if not isinstance(match, Comment))
    return Rule(tuple(matches), rule.verdict)


def jump_deviations(wanted: Ruleset, live: Ruleset) -> Iterator[str]:
    """What is wrong with the jumps to our chains, one sentence each."""
    stray = list(jumps(live))
    for chain, jump in jumps(wanted):
        count = stray.count((chain, jump))
        stray = [found for found in stray if found != (chain, jump)]
        near = [rule for name, rule in stray if name == chain and _leads(rule, jump)]
        if count > 1:
            yield f"the jump of {chain} stands there {count} times"
        elif not count and near:
            stray.remove((chain, near[0]))
            yield _near(chain, jump, near[0], live)
        elif not count:
            yield f"the jump of {chain}, '{spelled(jump, live)}', is missing"
    for chain, rule in stray:
        yield f"{chain} has the jump '{spelled(rule, live)}', which does not belong"


def _leads(rule: Rule, jump: Rule) -> bool:
    """Whether two jumps lead to the same chain."""
    return (
        rule.verdict is not None
        and jump.verdict is not None
        and rule.verdict.target == jump.verdict.target
    )


def _near(chain: str, jump: Rule, found: Rule, table: Ruleset) -> str:
    text = f"the jump of {chain}, '{spelled(found, table)}',"
    if _alike(found, jump):
        return f"{text} has another comment"
    if found.verdict and found.verdict.goto:
        return f"{text} is a goto, from which nothing comes back to {chain}"
    extra = [m for m in found.matches if m not in jump.matches]
    if any(not isinstance(match, Comment) for match in extra):
        return f"{text} is for some connections only"
    return f"{text} is not '{spelled(jump, table)}'"


def foreign_chains(wanted: Ruleset, live: Ruleset) -> Iterator[Chain]:
    """Chains of others in a table of nftables that is ours alone."""
    known = {chain.name for chain in wanted.chains}
    for chain in live.chains if live.version == INET else ():
        if chain.name not in known:
            yield chain


def foreign_rules(wanted: Ruleset, live: Ruleset) -> Iterator[tuple[str, Rule]]:
    """Rules of others in the base chains of a table that is ours alone."""
    for chain in wanted.chains if live.version == INET else ():
        if chain.hook:
            for rule in live.rules(chain.name):
                if not is_jump(rule):
                    yield chain.name, rule
