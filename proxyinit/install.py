"""Putting the redirect in place: choose a backend, converge, clear leftovers."""

from __future__ import annotations

from proxyinit.backend import (
    ALL_VERSIONS,
    NFTABLES,
    PLACES,
    family,
    locate,
    title,
    unlocated,
)
from proxyinit.converge import converge
from proxyinit.errors import (
    CommandFailed,
    NotInPlace,
    ProgramMissing,
    Unreachable,
)
from proxyinit.host import CLOSE_WAIT
from proxyinit.iptables_rule import render_rule
from proxyinit.plan import plan, plan_inet
from proxyinit.reach import rivals
from proxyinit.reconcile import install_script, ours, removal_script
from proxyinit.rules import INET, IPV4, IPV6, Ruleset
from proxyinit.session import apply, assume_empty, has_nat, peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from proxyinit.backend import Backend
    from proxyinit.config import RedirectConfig
    from proxyinit.failures import Failure
    from proxyinit.rules import Version
    from proxyinit.session import Session


def install(session: Session, config: RedirectConfig) -> None:
    """Redirect as `config` says, in the namespace this process is in."""
    options = session.options
    if options.close_wait_s and not options.simulate:
        session.host.check_sysctl()
    versions = _versions(session)
    _check_native(session)
    try:
        backend = _install_somewhere(session, config, versions)
        _remove_leftovers(session, backend, versions)
        if options.close_wait_s:
            _set_close_wait(session)
    except BaseException:  # an interrupt between the families, too
        session.journal.roll_back(session.tables, session.log)
        raise


def _set_close_wait(session: Session) -> None:
    seconds = session.options.close_wait_s
    if session.options.simulate:
        session.show(f"# sysctl -w {CLOSE_WAIT}={seconds}\n")
    else:
        session.host.set_close_wait(seconds)
        session.log.info(f"{CLOSE_WAIT} = {seconds}")


def _versions(session: Session) -> tuple[Version, ...]:
    if not session.options.ipv6:
        return (IPV4,)
    if not session.host.has_ipv6():
        session.log.warning(
            "IPv6 is not redirected: this kernel has no IPv6, so there is no traffic"
        )
        return (IPV4,)
    return ALL_VERSIONS


# === which backend ===


def _wanted(
    config: RedirectConfig, mode: str, versions: tuple[Version, ...]
) -> dict[Version, Ruleset]:
    """The tables that a backend is to hold: one for each IP version, or one."""
    if mode == NFTABLES:
        return {INET: plan_inet(config, ipv6=IPV6 in versions)}
    return {version: plan(config, version) for version in versions}


def _install_somewhere(
    session: Session, config: RedirectConfig, versions: tuple[Version, ...]
) -> Backend:
    """Install with the first backend that can; all families with the same one."""
    failures: list[Failure] = []
    for mode in _candidates(session):
        if failures:
            message = f"{failures[-1]}; trying {title(mode)}"
            session.log.warning(message, **failures[-1].error.fields)
        wanted = _wanted(config, mode, versions)
        try:
            backend = locate(session.runner, mode, tuple(wanted))
            converge(session, backend, wanted)
        except (ProgramMissing, CommandFailed) as error:
            from proxyinit.failures import unusable  # noqa: PLC0415

            failures.append(unusable(session, mode, error))
            session.journal.roll_back(session.tables, session.log)
        else:
            return backend
    if session.options.simulate:
        mode = "nft" if session.options.mode == "auto" else failures[0].mode
        wanted = _wanted(config, mode, versions)
        return _simulate_without_programs(session, mode, wanted)
    from proxyinit.failures import no_backend  # noqa: PLC0415

    raise no_backend(failures)


def _candidates(session: Session) -> Iterator[str]:
    mode = session.options.mode
    order: tuple[str, ...] = ("nft", "legacy", NFTABLES)
    if mode == "auto":
        order = _kinds_in_use(session)
    else:
        yield mode
    for kind in order:
        if kind != mode:
            yield kind


def _kinds_in_use(session: Session) -> tuple[str, ...]:
    """Kinds by what they hold: rules of ours first, then anybody's, then nft."""

    def rank(kind: str) -> int:
        found = [peek(session, k, version) for k, version in PLACES if k == kind]
        tables = [seen[1] for seen in found if seen]
        if any(ours(table).chains for table in tables):
            return 0
        if kind == NFTABLES:
            return 1 if any(_native_rivals(session)) else 2
        if any(chain.rules for table in tables for chain in table.chains):
            return 1
        return 2

    return tuple(sorted(("nft", NFTABLES, "legacy"), key=rank))


def _package(mode: str) -> str:
    return "nft" if mode == NFTABLES else "iptables"


def _simulate_without_programs(
    session: Session, mode: str, wanted: dict[Version, Ruleset]
) -> Backend:
    backend = unlocated(mode, tuple(wanted))
    for version, table in wanted.items():
        assume_empty(session, version, f"{_package(mode)} is not installed")
        empty = Ruleset(version)
        apply(session, backend, empty, install_script(table, empty))
    return backend


# === what an earlier run left elsewhere ===


def _remove_leftovers(
    session: Session, backend: Backend, versions: tuple[Version, ...]
) -> None:
    """Remove rules of ours where this configuration does not want any."""
    for kind, version in PLACES:
        if kind == backend.kind and version in (*versions, INET):
            continue
        found = peek(session, kind, version)
        if found and remove(session, *found):
            done = "would remove" if session.options.simulate else "removed"
            session.log.warning(
                f"{family(version)}: {done} rules of an earlier run from {found[0]}"
            )
        if found and version in versions:
            other, live = found
            for chain, rule in rivals(live):
                text = f"-A {chain} {render_rule(rule)}"
                _warn_of_rival(session, f"{family(version)}: {other}", text)
    for table, text in _native_rivals(session):
        _warn_of_rival(session, table, text)


def _check_native(session: Session) -> None:
    """Raise `Unreachable` when native rules of others come before any of ours."""
    if session.host.has_native_tables():
        from proxyinit.nft_rivals import native_blockers  # noqa: PLC0415

        if blocked := native_blockers(session):
            raise Unreachable("\n".join(blocked))


def _native_rivals(session: Session) -> Iterable[tuple[str, str]]:
    """(table, rule) of every redirection in others' native tables of nf_tables."""
    if not session.host.has_native_tables():
        return ()
    from proxyinit.nft_rivals import native_rivals  # noqa: PLC0415

    return native_rivals(session)


def _warn_of_rival(session: Session, where: str, text: str) -> None:
    """Say which rule of another table may take connections before ours.

    At equal priority the kernel asks the hook first that was registered last, and
    which that is can't be seen; so it is no error.
    """
    session.log.warning(
        f"{where} holds '{text}', which may take connections before they are "
        "redirected to the proxy"
    )


def remove(session: Session, backend: Backend, live: Ruleset) -> bool:
    """Remove our part of a table, and see that it is gone; whether there was any.

    The native table goes whole, also when it is empty, where the kernel has it.
    """
    script = removal_script(live)
    if live == Ruleset(INET) and has_nat(session, backend.kind, INET):
        from proxyinit.nft_reconcile import REMOVAL  # noqa: PLC0415

        script = REMOVAL
    if not script:
        return False
    try:
        apply(session, backend, live, script)
        if not session.options.simulate:
            left = ours(session.tables.read(backend, [live.version])[live.version])
            if left.chains:
                raise NotInPlace(
                    f"{family(live.version)}: rules of ours came back while being "
                    f"removed from {backend}; another proxy-init may be running"
                )
    except CommandFailed as error:
        from proxyinit.failures import explained  # noqa: PLC0415

        raise explained(session, error) from error
    return True
