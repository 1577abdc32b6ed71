"""Redirections in native tables of others, which may take connections before ours."""

from __future__ import annotations

from proxyinit.errors import CommandFailed
from proxyinit.iptables_rule import DumpError
from proxyinit.nft_list import parse_tables
from proxyinit.nft_script import render_rule
from proxyinit.reach import nat_hooks, rivals
from proxyinit.rules import OUR_TABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from proxyinit.session import Session

_ELSEWHERE = (("inet", OUR_TABLE), ("ip", "nat"), ("ip6", "nat"))
"""Ours, and iptables-nft's own, which its programs read."""


def native_rivals(session: Session) -> list[tuple[str, str]]:
    """(table, rule) of every redirection that hooks of other tables lead to.

    What can't be listed or read is told in the log and taken for harmless.
    """
    nft = session.runner.find("nft")
    if nft is None:
        session.log.debug("nft is not here: not looking for native nftables rules")
        return []
    try:
        listing = session.runner.run([nft, "-nnn", "list", "ruleset"]).stdout
        tables = parse_tables(listing)
    except (CommandFailed, DumpError) as error:
        session.log.warning(f"can't look at other native nftables rules: {error}")
        return []
    return [
        (
            f"nftables: table {table.family} {table.name}",
            f"{chain}: {render_rule(rule)}",
        )
        for table in tables
        if (table.family, table.name) not in _ELSEWHERE
        for chain, rule in rivals(table.ruleset, nat_hooks(table.ruleset))
    ]
