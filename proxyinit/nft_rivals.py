"""Redirections in native tables of others, which may take connections before ours."""

from __future__ import annotations

from proxyinit.errors import CommandFailed
from proxyinit.iptables_rule import DumpError
from proxyinit.nft_list import parse_tables
from proxyinit.nft_script import render_rule
from proxyinit.reach import always_first, nat_hooks, rivals
from proxyinit.rules import OUR_TABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyinit.nft_list import Table
    from proxyinit.session import Session

_ELSEWHERE = (("inet", OUR_TABLE), ("ip", "nat"), ("ip6", "nat"))
"""Ours, and iptables-nft's own, which its programs read."""


def native_rivals(session: Session) -> list[tuple[str, str]]:
    """(table, rule) of every redirection that hooks of other tables lead to."""
    return [
        (_title(table), f"{chain}: {render_rule(rule)}")
        for table in _tables(session, session.log.warning)
        if (hooks := nat_hooks(table.ruleset))
        for chain, rule in rivals(table.ruleset, hooks)
    ]


def native_blockers(session: Session) -> list[str]:
    """One sentence for each rule of others that takes every connection before ours."""
    return [
        f"{_title(table)} holds '{chain}: {render_rule(rule)}', which takes every "
        "connection before the proxy gets it, as it is asked first; delete the table "
        f"(nft delete table {table.family} {table.name}) or hook it in at a priority "
        "above -100"
        for table in _tables(session, session.log.debug)  # rivals are told aloud
        for chain, rule in always_first(table.ruleset)
    ]


def _title(table: Table) -> str:
    return f"nftables: table {table.family} {table.name}"


def _tables(session: Session, say: Callable[[str], object]) -> list[Table]:
    """Every table that is neither ours nor iptables-nft's own.

    What can't be listed or read is said and taken for harmless.
    """
    nft = session.runner.find("nft")
    if nft is None:
        session.log.debug("nft is not here: not looking for native nftables rules")
        return []
    try:
        listing = session.runner.run([nft, "-nnn", "list", "ruleset"]).stdout
        tables = parse_tables(listing)
    except (CommandFailed, DumpError) as error:
        say(f"can't look at other native nftables rules: {error}")
        return []
    return [t for t in tables if (t.family, t.name) not in _ELSEWHERE]
