"""One backend: read, write what differs, and read again until nothing does.

Nothing is written when all is in place, and nothing before every family was read
and our jumps were found to be reachable.
"""

from __future__ import annotations

from proxyinit.backend import family
from proxyinit.errors import (
    CommandFailed,
    NotInPlace,
    Unreachable,
)
from proxyinit.reach import closed_doors, shadows
from proxyinit.reconcile import (
    differences,
    install_script,
    result,
)
from proxyinit.rules import INET, IPV4
from proxyinit.session import apply, look

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyinit.backend import Backend
    from proxyinit.rules import Ruleset, Version
    from proxyinit.session import Session

MAX_WRITES = 3
"""Tries when another program changes the tables at the same time."""


def converge(
    session: Session, backend: Backend, wanted: dict[Version, Ruleset]
) -> None:
    """Read, write what differs, and read again until nothing does."""
    for attempt in range(MAX_WRITES + 1):
        live = look(session, backend, tuple(wanted))
        _check_reach(session, backend, wanted, live, warn=attempt == 0)
        scripts = {v: install_script(wanted[v], live[v]) for v in wanted}
        if not any(scripts.values()):
            _report(session, backend, tuple(wanted))
            return
        if attempt == MAX_WRITES:
            raise _not_in_place(wanted, live)
        _write(session, backend, scripts, live)
        if session.options.simulate:
            return


def _write(
    session: Session,
    backend: Backend,
    scripts: dict[Version, str],
    live: dict[Version, Ruleset],
) -> None:
    """Feed each family's script; stop early when its table changed underneath."""
    for version, script in scripts.items():
        if not script:
            continue
        try:
            apply(session, backend, live[version], script)
        except CommandFailed:
            if look(session, backend, [version])[version] == live[version]:
                raise
            session.log.info(f"{family(version)}: another program changed the table")
            return


def _check_reach(
    session: Session,
    backend: Backend,
    wanted: dict[Version, Ruleset],
    live: dict[Version, Ruleset],
    *,
    warn: bool,
) -> None:
    blocked: list[str] = []
    for version, table in wanted.items():
        if version != INET:  # our own table is mended whatever is wrong with it
            blocked += _closed(session, backend, live[version])
        for shadow in shadows(result(table, live[version])):
            if shadow.certain:
                name = _program(backend, version)
                blocked.append(
                    f"{family(version)}: {shadow}, and connections would pass by the "
                    f"proxy; delete it ({name} -t nat -D {shadow.chain} "
                    f"{shadow.number}) or add it again behind the jump"
                )
            elif warn:
                session.log.warning(
                    f"{family(version)}: {shadow}; connections that it takes are not "
                    "redirected"
                )
    if blocked:
        raise Unreachable("\n".join(blocked))


def _closed(session: Session, backend: Backend, live: Ruleset) -> Iterator[str]:
    """What keeps a whole table of iptables from doing what its rules say."""
    version = live.version
    if backend.kind == "nft" and session.host.nft_nat_is_dormant(version):
        table = "ip nat" if version == IPV4 else "ip6 nat"
        yield (
            f"{family(version)}: table {table} is dormant, so no connection asks it; "
            f"wake it: nft add table {table}"
        )
    for chain, policy in closed_doors(live):
        yield (
            f"{family(version)}: the policy of {chain} is {policy}, so connections "
            "that are not redirected, the proxy's own among them, are not accepted; "
            f"set it back: {_program(backend, version)} -t nat -P {chain} ACCEPT"
        )


def _program(backend: Backend, version: Version) -> str:
    """The frontend's own name, such as ``ip6tables-nft``."""
    return backend.programs[version].save.removesuffix("-save").rpartition("/")[2]


def _report(session: Session, backend: Backend, versions: tuple[Version, ...]) -> None:
    for version in versions:
        if session.journal.knows(backend, version):
            session.log.info(session.tables.dumps[version])
            session.log.info(f"{family(version)}: redirect in place ({backend})")
        else:
            session.log.info(
                f"{family(version)}: already in place ({backend}), nothing written"
            )


def _not_in_place(
    wanted: dict[Version, Ruleset], live: dict[Version, Ruleset]
) -> NotInPlace:
    found = [
        f"{family(version)}: {difference}"
        for version in wanted
        for difference in differences(wanted[version], live[version])
    ]
    return NotInPlace(
        "what the kernel holds after writing is not what was written; another program "
        "may be changing the same rules:\n" + "\n".join(found)
    )
