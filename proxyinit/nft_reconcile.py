"""Our native table: what differs, and the script that mends it as one transaction.

Base chains stay where they are hooked in, and every chain is emptied and filled
again: a packet walks all chains of a table in one generation of the rules, the old
or the new (nft_do_chain reads the generation once), so none slips through between
them. A table with a base chain in the wrong place is deleted and made again, since
nothing in it is anybody else's. Pure.
"""

from __future__ import annotations

from proxyinit.nft_script import declared, render, render_rule
from proxyinit.rules import OUR_TABLE, Ruleset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyinit.rules import Chain, Rule

_TABLE = f"inet {OUR_TABLE}"
REMOVAL = f"add table {_TABLE}\ndelete table {_TABLE}\n"
"""Deletes the table, and is no error where there is none."""


def differences(wanted: Ruleset, live: Ruleset) -> list[str]:
    """Every difference between the table wanted and the live one; order counts."""
    found = []
    for chain in wanted.chains:
        there = live.chain(chain.name)
        if there is None:
            found.append(f"chain {chain.name} is missing")
            continue
        if _place(there) != _place(chain):
            found.append(
                f"chain {chain.name}: expected '{_place(chain)}', "
                f"found '{_place(there)}'"
            )
        found += _rule_differences(chain, there)
    found += [
        f"chain {chain.name} is not wanted in our table"
        for chain in live.chains
        if wanted.chain(chain.name) is None
    ]
    found += [
        f"'{' '.join(other.split())[:100]}' is not wanted in our table"
        for other in live.others
        if other not in wanted.others
    ]
    return found


def _place(chain: Chain) -> str:
    return " ".join(declared(chain)).strip() or "no hook"


def _rule_differences(wanted: Chain, live: Chain) -> Iterator[str]:
    for number in range(max(len(wanted.rules), len(live.rules))):
        expected = wanted.rules[number] if number < len(wanted.rules) else None
        found = live.rules[number] if number < len(live.rules) else None
        if expected != found:
            yield (
                f"rule {number + 1} of {wanted.name}: expected {_shown(expected)}, "
                f"found {_shown(found)}"
            )


def _shown(rule: Rule | None) -> str:
    return f"'{render_rule(rule)}'" if rule else "none"


def install_script(wanted: Ruleset, live: Ruleset) -> str:
    """The transaction that makes the live table equal `wanted`; empty when it is."""
    return _replace(wanted, live) if differences(wanted, live) else ""


def removal_script(live: Ruleset) -> str:
    """The transaction that deletes the table; empty when there is nothing in it."""
    return REMOVAL if live.chains or live.others else ""


def restore_script(before: Ruleset, live: Ruleset) -> str:
    """The transaction that makes the live table what it was."""
    return _replace(before, live) if before.chains or before.others else REMOVAL


def _replace(wanted: Ruleset, live: Ruleset) -> str:
    """Whatever is live, `wanted` afterwards."""
    if not _compatible(wanted, live):
        return REMOVAL + render(wanted)
    # Emptied even where no rule was seen: who made the table in the meantime has
    # none left in it, so none can stand there twice.
    return f"add table {_TABLE}\nflush table {_TABLE}\n{render(wanted)}"


def _compatible(wanted: Ruleset, live: Ruleset) -> bool:
    """Whether the live chains can stay and only their rules have to change."""
    if live.others or wanted.others:
        return False
    return all(
        (there := wanted.chain(chain.name)) is not None and there.hook == chain.hook
        for chain in live.chains
    )
