"""All nat tables of a namespace, whichever backend holds them, read without a trace.

A table is only read where the kernel says that it is there: reading a legacy nat
table that nobody made would create it, and a program that is started in vain costs
more than all the asking.
"""

from __future__ import annotations

from proxyinit.backend import ALL_VERSIONS, KINDS, locate
from proxyinit.errors import CommandFailed, ProgramMissing
from proxyinit.facts import Survey
from proxyinit.session import has_nat

__all__ = ["Survey", "survey"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from proxyinit.facts import Place
    from proxyinit.rules import Ruleset, Version
    from proxyinit.session import Session


def survey(session: Session) -> Survey:
    """Read every nat table of the namespace this process is in; changes nothing."""
    tables: dict[Place, Ruleset] = {}
    problems: dict[Place, str] = {}
    for kind in KINDS:
        known = {version: has_nat(session, kind, version) for version in ALL_VERSIONS}
        for version, there in known.items():
            if there is None:
                problems[kind, version] = _UNTOLD
        present = [version for version, there in known.items() if there]
        _read(session, kind, present, tables, problems)
    return Survey(tables, problems)


_UNTOLD = "only root may see whether it exists"


def _read(
    session: Session,
    kind: str,
    versions: list[Version],
    tables: dict[Place, Ruleset],
    problems: dict[Place, str],
) -> None:
    """Read families side by side; where one fails, each alone, to know which."""
    if not versions:
        return
    try:
        backend = locate(session.runner, kind, versions)
        read = session.tables.read(backend, versions)
    except (ProgramMissing, CommandFailed) as error:
        if len(versions) == 1:
            problems[kind, versions[0]] = str(error)
            return
        for version in versions:
            _read(session, kind, [version], tables, problems)
    else:
        tables.update({(kind, version): table for version, table in read.items()})
