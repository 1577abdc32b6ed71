"""Examining one namespace, or all of the node's by several workers."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial

from proxyinit.errors import ProxyInitError
from proxyinit.host import Host
from proxyinit.runner import SystemRunner
from proxyinit.verify import discover
from proxyinit.verify import verdict as verify
from proxyinit.verify.checks import (
    COULD_NOT_TELL,
    DIFFERS,
    FAIL,
    INTERCEPTED,
    UNKNOWN,
    WARN,
    Check,
)
from proxyinit.verify.discover import Identity, NamespaceGone, Target
from proxyinit.verify.readback import Wanted
from proxyinit.verify.verdict import Judgement

MAX_WORKERS = 8
PROXY_PORTS = (4143, 4140)
"""Where Linkerd's proxy listens, inbound and outbound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of each namespace.

    `given` is what flags want; without, rules are held against themselves. With
    `ports` only namespaces are told of that hold rules of ours or listen there.
    """

    given: Wanted | None = None
    probe: bool = False
    ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """A namespace, whose it is, and what was found there."""

    target: Target
    identity: Identity
    judgement: Judgement

    @property
    def verdict(self) -> str:
        """In one word: intercepted, differs, unknown or gone."""
        if any(check.name == "gone" for check in self.judgement.checks):
            return "gone"
        words = {INTERCEPTED: "intercepted", DIFFERS: "differs"}
        return words.get(self.judgement.exit_code, "unknown")

    @property
    def faults(self) -> list[Check]:
        """All that is not well: failures first, then what could not be told."""
        order = [FAIL, UNKNOWN, WARN]
        found = [check for check in self.judgement.checks if check.state in order]
        return sorted(found, key=lambda check: order.index(check.state))


def examine(question: Question, target: Target) -> Report | None:
    """Look at one namespace, from inside; None when it is none of those asked for."""
    try:
        discover.enter(target)
        facts = verify.gather(SystemRunner(), Host(), question.ports)
        if facts is None:
            return None
        judgement = verify.judge(facts, question.given)
        if question.probe:
            from proxyinit.verify import probe  # noqa: PLC0415  (half of all imports)

            judgement = probe.add(judgement, facts)
    except NamespaceGone as error:
        judgement = _only(
            Check("gone", WARN, str(error), "look again if it should live")
        )
    except (ProxyInitError, OSError) as error:
        judgement = _only(Check("readable", UNKNOWN, str(error), "run as root"))
    return Report(target, discover.identify(target), judgement)


def _only(check: Check) -> Judgement:
    return Judgement("", None, None, (check,))


def examine_all(question: Question, targets: list[Target]) -> Iterator[Report | None]:
    """The reports of many namespaces, in their order, as they become known.

    Workers start at once, not when the first report is asked for.
    """
    # Several for each processor: most of the time one waits for programs.
    workers = min(MAX_WORKERS, 4 * len(os.sched_getaffinity(0)), len(targets))
    if workers < 2:
        return (examine(question, target) for target in targets)
    # Forked: what a worker needs is loaded already, and each is a thread's worth of
    # namespaces of its own, so that /proc/net is its namespace's.
    context = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(workers, context, _end_on_interrupt)
    reports = pool.map(partial(examine, question), targets, chunksize=4)
    return _reported(pool, reports)


def _reported(
    pool: ProcessPoolExecutor, reports: Iterator[Report | None]
) -> Iterator[Report | None]:
    with pool:
        try:
            yield from reports
        except BrokenProcessPool as error:
            raise ProxyInitError(
                "a worker was ended from outside, perhaps for want of memory: try again"
            ) from error


def _end_on_interrupt() -> None:
    """Let Ctrl-C, which reaches workers as well, end them without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def exit_code(reports: list[Report]) -> int:
    """Of many namespaces: one that differs is certain whatever the others are."""
    verdicts = {report.verdict for report in reports}
    if "differs" in verdicts:
        return DIFFERS
    return COULD_NOT_TELL if "unknown" in verdicts else INTERCEPTED
