"""All nat tables of a namespace, whichever backend holds them, read without a trace.

A table is only read where the kernel says that it is there: reading a legacy nat
table that nobody made would create it, and a program that is started in vain costs
more than all the asking.
"""

from __future__ import annotations

from proxyinit.backend import NFTABLES, PLACES, locate
from proxyinit.errors import CommandFailed, ProgramMissing
from proxyinit.rules import OUR_TABLE
from proxyinit.session import has_nat
from proxyinit.verify.facts import UNSEEN, Survey

__all__ = ["Survey", "survey"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from proxyinit.rules import Ruleset, Version
    from proxyinit.session import Session
    from proxyinit.verify.facts import Place


def survey(session: Session) -> Survey:
    """Read every nat table of the namespace this process is in; changes nothing."""
    tables: dict[Place, Ruleset] = {}
    problems: dict[Place, str] = {}
    present: dict[str, list[Version]] = {}
    for kind, version in PLACES:
        there = has_nat(session, kind, version)
        if there:
            present.setdefault(kind, []).append(version)
        elif there is None:
            problems[kind, version] = UNSEEN
    for kind, versions in present.items():
        _read(session, kind, versions, tables, problems)
    return Survey(tables, problems)


def _read(
    session: Session,
    kind: str,
    versions: list[Version],
    tables: dict[Place, Ruleset],
    problems: dict[Place, str],
) -> None:
    """Read families side by side; where one fails, each alone, to know which."""
    try:
        backend = locate(session.runner, kind, versions)
        read = session.tables.read(backend, versions)
    except (ProgramMissing, CommandFailed) as error:
        if len(versions) == 1:
            problems[kind, versions[0]] = str(error)
            return
        for version in versions:
            _read(session, kind, [version], tables, problems)
        return
    for version, table in read.items():
        if _title(kind) in session.tables.dumps[version]:
            tables[kind, version] = table
        else:
            program = backend.programs[version].save
            problems[kind, version] = (
                f"the kernel has a nat table, and {program} did not print it"
            )


def _title(kind: str) -> str:
    """What stands at the head of a table, be it as empty as can be."""
    return f"table inet {OUR_TABLE}" if kind == NFTABLES else "*nat"
