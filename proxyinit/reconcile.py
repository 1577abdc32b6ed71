"""From a live nat table to the one wanted: what differs, and the script that mends it.

A script is one transaction of iptables-restore --noflush: the kernel swaps a
table as a whole (legacy) or commits one batch (nft), so between the old rules
and the new there is no moment without a redirect. Ours are our two chains and
every rule anywhere that leads to them; everything else is left as it is.

The native table of nftables is all ours; for it the same functions ask
`nft_reconcile`, which is loaded only where there is one.
"""

from __future__ import annotations

from proxyinit.iptables_rule import render_rule
from proxyinit.rules import INET, OUR_CHAINS, Chain, Extension, Ruleset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from proxyinit.rules import Rule


def is_jump(rule: Rule) -> bool:
    """Whether the rule leads to one of our chains."""
    return rule.verdict is not None and rule.verdict.target in OUR_CHAINS


def jumps(table: Ruleset) -> Iterator[tuple[str, Rule]]:
    """Every rule outside our chains that leads to them, with its chain's name."""
    for chain, _, rule in _numbered_jumps(table):
        yield chain, rule


def _numbered_jumps(table: Ruleset) -> Iterator[tuple[str, int, Rule]]:
    """(chain, number from 1, rule) of every jump to our chains, in order."""
    for chain in table.chains:
        if chain.name not in OUR_CHAINS:
            for number, rule in enumerate(chain.rules, start=1):
                if is_jump(rule):
                    yield chain.name, number, rule


def ours(table: Ruleset) -> Ruleset:
    """Our part of a table: our chains, and of other chains only the jumps to them."""
    if table.version == INET:
        return table
    kept: dict[str, list[Rule]] = {}
    for name, rule in jumps(table):
        kept.setdefault(name, []).append(rule)
    chains = [Chain(name, tuple(rules)) for name, rules in kept.items()]
    for name in OUR_CHAINS:
        chain = table.chain(name)
        if chain:
            chains.append(Chain(name, chain.rules))
    return Ruleset(table.version, tuple(chains))


def differences(wanted: Ruleset, live: Ruleset) -> list[str]:
    """Every difference between what is wanted and our part of what is live.

    Order counts, comments too. One sentence each, empty when all is in place.
    """
    if wanted.version == INET:
        from proxyinit import nft_reconcile  # noqa: PLC0415

        return nft_reconcile.differences(wanted, live)
    found = []
    for name in OUR_CHAINS:
        if live.chain(name) is None:
            found.append(f"chain {name} is missing")
        else:
            found += _rule_differences(name, wanted.rules(name), live.rules(name))
    live_jumps = list(jumps(live))
    for name, rule in jumps(wanted):
        count = live_jumps.count((name, rule))
        if count != 1:
            state = "is missing" if not count else f"stands there {count} times"
            found.append(f"the jump of {name}, '{render_rule(rule)}', {state}")
    wanted_jumps = list(jumps(wanted))
    found += [
        f"{name} has the jump '{render_rule(rule)}', which is not wanted"
        for name, rule in live_jumps
        if (name, rule) not in wanted_jumps
    ]
    return found


def _rule_differences(
    chain: str, wanted: tuple[Rule, ...], live: tuple[Rule, ...]
) -> Iterator[str]:
    for number in range(max(len(wanted), len(live))):
        expected = wanted[number] if number < len(wanted) else None
        found = live[number] if number < len(live) else None
        if expected == found:
            continue
        yield (
            f"rule {number + 1} of {chain}: expected {_shown(expected)}, "
            f"found {_shown(found)}"
        )


def _shown(rule: Rule | None) -> str:
    return f"'{render_rule(rule)}'" if rule else "none"


def install_script(wanted: Ruleset, live: Ruleset) -> str:
    """The transaction that makes our part of `live` equal `wanted`.

    Empty when it is already. A jump that is right stays where it stands, so
    rules that others put behind it stay behind it; wrong and double ones go.
    """
    if wanted.version == INET:
        from proxyinit import nft_reconcile  # noqa: PLC0415

        return nft_reconcile.install_script(wanted, live)
    if not differences(wanted, live):
        return ""
    missing = list(jumps(wanted))
    deleted = []
    for chain, number, rule in reversed(list(_numbered_jumps(live))):
        # -D takes the first of equal rules, so of doubles the last one stays.
        if (chain, rule) in missing:
            missing.remove((chain, rule))
        else:
            deleted.append((chain, number, rule))
    lines = _deletions(deleted)
    lines += [f":{name} - [0:0]" for name in OUR_CHAINS]
    for name in OUR_CHAINS:
        lines += [f"-A {name} {render_rule(rule)}" for rule in wanted.rules(name)]
    lines += [f"-A {name} {render_rule(rule)}" for name, rule in missing]
    return _script(lines)


def removal_script(live: Ruleset) -> str:
    """The transaction that removes our part of `live`; empty when there is none."""
    if live.version == INET:
        from proxyinit import nft_reconcile  # noqa: PLC0415

        return nft_reconcile.removal_script(live)
    return restore_script(Ruleset(live.version), live) if ours(live).chains else ""


def restore_script(before: Ruleset, live: Ruleset) -> str:
    """The transaction that makes our part of `live` what it was in `before`.

    Jumps return to their places, as far as others left theirs alone, and chains
    that were not there go.
    """
    if before.version == INET:
        from proxyinit import nft_reconcile  # noqa: PLC0415

        return nft_reconcile.restore_script(before, live)
    lines = _deletions(reversed(list(_numbered_jumps(live))))
    kept = [name for name in OUR_CHAINS if before.chain(name)]
    gone = [name for name in OUR_CHAINS if live.chain(name) and name not in kept]
    lines += [f":{name} - [0:0]" for name in kept]
    lines += [f"-F {name}" for name in gone]
    lines += [f"-X {name}" for name in gone]
    for name in kept:
        lines += [f"-A {name} {render_rule(rule)}" for rule in before.rules(name)]
    lines += _insertions(before, live)
    return _script(lines)


def _insertions(before: Ruleset, live: Ruleset) -> Iterator[str]:
    """Lines that put jumps back to their numbers, or as near as others left them."""
    lengths = {
        chain.name: sum(not is_jump(rule) for rule in chain.rules)
        for chain in live.chains
    }
    for chain, number, rule in _numbered_jumps(before):
        length = lengths.get(chain, 0)
        if chain in lengths or chain in ("PREROUTING", "OUTPUT"):
            yield f"-I {chain} {min(number, length + 1)} {_on_one_line(rule)}"
            lengths[chain] = length + 1


_NEVER_EQUAL = ("recent", "connlimit")
"""Matches whose kernel part compares unequal to its own text: -D can't find them."""


def _deletions(jumps: Iterable[tuple[str, int, Rule]]) -> list[str]:
    """Lines that delete rules, given last ones first.

    By text, which no other writer can turn into the deletion of something else;
    by number what has no text to be found by.
    """
    by_number, by_text = [], []
    for chain, number, rule in jumps:
        text = render_rule(rule)
        odd = any(
            isinstance(m, Extension) and m.name in _NEVER_EQUAL for m in rule.matches
        )
        if odd or "\n" in text:
            by_number.append(f"-D {chain} {number}")
        else:
            by_text.append(f"-D {chain} {text}")
    return by_number + by_text[::-1]


def _on_one_line(rule: Rule) -> str:
    """The rule for a script, where a line break in a comment would end the line."""
    return render_rule(rule).replace("\n", " ")


def _script(lines: list[str]) -> str:
    return "\n".join(["*nat", *lines, "COMMIT", ""])


def result(wanted: Ruleset, live: Ruleset) -> Ruleset:
    """The table as `install_script` leaves it: kept jumps in place, stray ones gone.

    What reachability is judged on before anything is written.
    """
    if wanted.version == INET:
        return wanted
    chains = []
    for chain in wanted.chains:
        if chain.name in OUR_CHAINS:
            chains.append(chain)
            continue
        (jump,) = chain.rules
        rules = list(live.rules(chain.name))
        keep = len(rules) - 1 - rules[::-1].index(jump) if jump in rules else -1
        kept = [r for n, r in enumerate(rules) if not is_jump(r) or n == keep]
        chains.append(Chain(chain.name, tuple(kept if keep >= 0 else [*kept, jump])))
    named = {chain.name for chain in chains}
    for chain in live.chains:
        if chain.name not in named:
            foreign = tuple(rule for rule in chain.rules if not is_jump(rule))
            chains.append(Chain(chain.name, foreign, chain.policy))
    return Ruleset(live.version, tuple(chains))
