"""Removing exactly what was installed, from every backend and family that has it."""

from __future__ import annotations

from proxyinit.backend import NFTABLES, PLACES, family, locate
from proxyinit.diagnose import UNSUPPORTED
from proxyinit.errors import CommandFailed, ProgramMissing, ProxyInitError
from proxyinit.failures import diagnose_failure, explained
from proxyinit.install import remove
from proxyinit.session import has_nat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from proxyinit.rules import Version
    from proxyinit.session import Session


def cleanup(session: Session) -> None:
    """Remove our chains and the jumps to them; nothing there is fine too.

    All places are tried before the first failure is raised.
    """
    failures: list[ProxyInitError] = []
    removed = False
    for kind, version in PLACES:
        try:
            removed |= _clean(session, kind, version)
        except ProxyInitError as error:
            failures.append(error)
    if failures:
        for failure in failures[1:]:
            session.log.error(str(failure), **failure.fields)
        raise failures[0]
    if not removed:
        session.log.info("nothing to remove: no rules of proxy-init are here")


def _clean(session: Session, kind: str, version: Version) -> bool:
    """Clean one table; whether there was anything of ours in it."""
    if has_nat(session, kind, version) is False:
        return False
    try:
        backend = locate(session.runner, kind, [version])
    except ProgramMissing as error:
        raise ProgramMissing(
            f"{family(version)}: a {kind} nat table may hold rules of proxy-init, and "
            f"the programs to look at it are not here: {error}; install the "
            f"{'nftables' if kind == NFTABLES else 'iptables'} package"
        ) from error
    try:
        live = session.tables.read(backend, [version])[version]
    except CommandFailed as error:
        if diagnose_failure(session, error).kind == UNSUPPORTED:
            return False  # what the kernel can't do it does not hold
        raise explained(session, error) from error
    if not remove(session, backend, live):
        return False
    done = "would remove" if session.options.simulate else "removed"
    session.log.info(f"{family(version)}: {done} the redirect from {backend}")
    return True
