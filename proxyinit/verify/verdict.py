"""Is this namespace intercepted? Gathering what is known, and judging it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from proxyinit.backend import Tables
from proxyinit.host import Host
from proxyinit.journal import Journal
from proxyinit.logs import Log
from proxyinit.nft_rivals import native_rivals
from proxyinit.options import Options
from proxyinit.session import Session
from proxyinit.survey import survey
from proxyinit.verify import owner, sense, sockets, surroundings
from proxyinit.verify.checks import Check, exit_code
from proxyinit.verify.facts import Facts
from proxyinit.verify.readback import Wanted, readback

if TYPE_CHECKING:
    from proxyinit.runner import Runner


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was found out: the backend in charge, and every check.

    `wanted` is what the rules were held against: the flags given, or what was read
    back from the rules, which is `live`. `backend` is empty where nothing of ours is.
    """

    backend: str
    wanted: Wanted | None
    live: Wanted | None
    checks: tuple[Check, ...]

    @property
    def exit_code(self) -> int:
        """0 intercepted, 3 differs, 1 could not tell."""
        return exit_code(self.checks)


def gather(runner: Runner, host: Host, ports: Collection[int] = ()) -> Facts | None:
    """Everything that verify asks of the namespace that this thread is in.

    With `ports`, None as soon as it is clear that nothing of ours is here and nobody
    listens on them: most namespaces of a node need no more than a look.
    """
    troubles: list[str] = []
    log = Log("warning", write=troubles.append)
    tables = Tables(runner, log, lock_wait_s=0)
    session = Session(Options(), log, host, runner, tables, Journal(), print)
    read = survey(session)
    uids, gids = owner.ids()
    listeners = tuple(
        replace(listener, uid=uids.inside(listener.uid))
        for listener in sockets.listeners()
    )
    listening = any(listener.port in ports for listener in listeners)
    if ports and not listening and not sense.holders(read) and not read.problems:
        return None
    hooks = sockets.nat_hooks()
    rivals: tuple[tuple[str, str], ...] | None = ()
    if any(hook.of_others for hook in hooks or ()):
        troubles.clear()
        found = tuple(native_rivals(session))
        rivals = None if troubles else found
    return Facts(
        survey=read,
        ipv6=host.has_ipv6(),
        addresses=sockets.addresses(),
        listeners=listeners,
        nat_hooks=hooks,
        rivals=rivals,
        conntrack=sockets.conntrack(),
        uids=uids,
        gids=gids,
    )


def judge(facts: Facts, given: Wanted | None = None) -> Judgement:
    """Hold a namespace against the flags given; without, against its own rules."""
    found = sense.holders(facts.survey)
    checks = [*sense.unreadable(facts.survey), *sense.backend(facts, found)]
    if given and not facts.ipv6:
        given = Wanted(given.config, ipv6=False)
    if not found:
        return Judgement("", given, None, tuple(checks))
    holder = found[0]
    live = readback(holder.tables)
    wanted = given or live
    if holder.unread:
        live = None  # subnets, and IPv6 as such, may be missing in it
    if wanted is None:
        checks += sense.redirectless(holder)
    else:
        tables = sense.pairs(holder, wanted)
        checks += sense.rule_checks(tables) if tables else []
        checks += [] if given else sense.families(holder)
        checks += surroundings.configuration(wanted.config)
        checks.append(surroundings.ipv6(facts, holder, wanted, asked=bool(given)))
        checks += surroundings.hooks(facts, holder)
        checks += surroundings.proxies(facts, wanted)
    checks += surroundings.conntrack(facts)
    return Judgement(holder.kind, wanted, live, tuple(checks))
