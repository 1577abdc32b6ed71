"""What a run works with, and the ways it looks at tables and changes them."""

from __future__ import annotations

from proxyinit.backend import NFTABLES, family, locate
from proxyinit.errors import CommandFailed, ProgramMissing
from proxyinit.record import Record
from proxyinit.rules import INET, Ruleset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxyinit.backend import Backend, Tables
    from proxyinit.host import Host
    from proxyinit.journal import Journal
    from proxyinit.logs import Log
    from proxyinit.options import Options
    from proxyinit.rules import Version
    from proxyinit.runner import Runner


class Session(Record):
    """The doors to the outside, and how the caller wants them used.

    `show` prints a text to standard output.
    """

    options: Options
    log: Log
    host: Host
    runner: Runner
    tables: Tables
    journal: Journal
    show: Callable[[str], object]


def has_nat(session: Session, kind: str, version: Version) -> bool | None:
    """Whether the kernel holds a nat table of that kind; None when it won't say.

    In nftables this is about our own table.
    """
    if kind == "legacy":
        return session.host.legacy_has_nat(version)
    if kind == "nft":
        return session.host.nft_has_nat(version)
    return session.host.nftables_has_ours()


def look(
    session: Session, backend: Backend, versions: Sequence[Version]
) -> dict[Version, Ruleset]:
    """The live tables; in a simulation what is known of them without side effects.

    Only a simulation may assume that a table it can't read is empty; it says so.
    """
    if not session.options.simulate:
        if backend.kind == NFTABLES and has_nat(session, NFTABLES, INET) is False:
            return {INET: Ruleset(INET)}  # known without a program: 3 ms
        return session.tables.read(backend, versions)
    return {v: _look_without_trace(session, backend, v) for v in versions}


def _look_without_trace(
    session: Session, backend: Backend, version: Version
) -> Ruleset:
    known = has_nat(session, backend.kind, version)
    why = "only root may see it"
    if known or (known is None and backend.kind != "legacy"):
        try:
            return session.tables.read(backend, [version])[version]
        except CommandFailed as error:
            why = error.stderr.strip()
    if known is not False:
        assume_empty(session, version, why)
    return Ruleset(version)


def assume_empty(session: Session, version: Version, why: str) -> None:
    """Say that a simulation takes a table for empty."""
    session.log.warning(
        f"{family(version)}: can't read the live nat table, assuming it is empty: {why}"
    )


def peek(
    session: Session, kind: str, version: Version
) -> tuple[Backend, Ruleset] | None:
    """A table that this run does not work on, if it can be read without a trace."""
    known = has_nat(session, kind, version)
    if known is False or (known is None and kind == "legacy"):
        if known is None:
            session.log.debug(
                f"{family(version)}: not looking for rules of ours in {kind}: only "
                "root may see whether its nat table exists, and reading creates it"
            )
        return None
    try:
        backend = locate(session.runner, kind, [version])
        return backend, session.tables.read(backend, [version])[version]
    except (ProgramMissing, CommandFailed) as error:
        say = session.log.warning if known else session.log.debug
        say(f"{family(version)}: can't look for rules of ours in {kind}: {error}")
        return None


def apply(session: Session, backend: Backend, live: Ruleset, script: str) -> None:
    """Feed a script to the kernel as one transaction; in a simulation print it.

    `live` is the table that the script was made for; the journal keeps it.
    """
    if session.options.simulate:
        session.show(session.tables.transaction(backend, live.version, script))
    else:
        try:
            session.tables.feed(backend, live.version, script)
        except KeyboardInterrupt:  # the kernel may have taken it all the same
            session.journal.note(backend, live)
            raise
        session.journal.note(backend, live)
