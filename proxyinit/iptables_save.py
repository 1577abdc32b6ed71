"""Dumps of iptables-save, legacy or nft, 1.6 to 1.8: one table read, one written."""

from __future__ import annotations

from proxyinit.iptables_rule import (
    DumpError,
    parse_rule,
    read_back,
    render_rule,
    split_words,
)
from proxyinit.rules import Chain, Ruleset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxyinit.rules import Rule, Version


def parse(dump: str, version: Version, table: str = "nat") -> Ruleset:
    """One table of an iptables-save dump; empty when the dump does not have it.

    Counters are dropped. Raises `DumpError` with the line at fault.
    """
    policies: dict[str, str | None] = {}
    rules: dict[str, list[Rule]] = {}
    here = False
    for line in _logical_lines(dump):
        if line.startswith("*"):
            here = line[1:].strip() == table
        elif not here or line.startswith("#") or not line.strip():
            continue
        elif line.startswith(":"):
            name, policy = _parse_chain(line)
            policies[name] = policy
        elif line.strip() == "COMMIT":
            here = False
        else:
            chain, rule = _parse_append(line)
            rules.setdefault(chain, []).append(rule)
    if here:
        raise DumpError(f"the dump ends within table {table}, before COMMIT")
    names = dict.fromkeys((*policies, *rules))
    return Ruleset(
        version,
        tuple(
            Chain(name, tuple(rules.get(name, ())), policies.get(name))
            for name in names
        ),
    )


def _logical_lines(dump: str) -> Iterable[str]:
    """Lines, with those joined that a newline inside a quoted comment cut apart."""
    pending = ""
    for line in dump.split("\n"):
        whole = f"{pending}\n{line}" if pending else line
        quotes = whole.replace("\\\\", "").replace('\\"', "").count('"')
        if whole.startswith("-A") and quotes % 2:
            pending = whole
            continue
        pending = ""
        yield whole
    if pending:
        raise DumpError(f"a quote is not closed in {pending[:200]!r}")


def _parse_chain(line: str) -> tuple[str, str | None]:
    words = line[1:].split()
    if len(words) < 2:
        raise DumpError(f"expected ':CHAIN POLICY [packets:bytes]', found {line!r}")
    return words[0], None if words[1] == "-" else words[1]


def _parse_append(line: str) -> tuple[str, Rule]:
    if line.startswith("-A "):
        chain, _, text = line[3:].partition(" ")
        rule = read_back(text) if text else None
        if rule:
            return chain, rule
    words = split_words(line)
    if words and words[0].startswith("["):  # counters, of iptables-save -c
        words = words[1:]
    if len(words) < 2 or words[0] != "-A":
        raise DumpError(f"expected a rule, '-A CHAIN ...', found {line!r}")
    try:
        return words[1], parse_rule(words[2:])
    except DumpError as error:
        raise DumpError(f"{error} in {line!r}") from error


def render(table: Ruleset) -> str:
    """The table as iptables-save prints it, without counters; `parse`'s inverse."""
    lines = ["*nat"]
    lines += [f":{chain.name} {chain.policy or '-'} [0:0]" for chain in table.chains]
    for chain in table.chains:
        for rule in chain.rules:
            lines.append(f"-A {chain.name} {render_rule(rule)}".rstrip(" "))
    return "\n".join([*lines, "COMMIT", ""])
