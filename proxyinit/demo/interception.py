"""The chapters on interception: a pod's traffic before, with and after the redirect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from proxyinit.backend import ALL_VERSIONS, program_name
from proxyinit.demo import tables
from proxyinit.demo.checks import (
    Found,
    NotAsExpected,
    require_answers,
    require_no_slip,
    require_nothing,
    require_rules,
)
from proxyinit.demo.expectations import (
    APP_PORT,
    CHAINS,
    IGNORED_PORT,
    LINKERD_ARGUMENTS,
    OTHER_ARGUMENTS,
    PROXY_IN,
    PROXY_OUT,
    WEB_PORT,
    cases,
)
from proxyinit.demo.stage import Chapter, Stage
from proxyinit.iptables_rule import render_rule
from proxyinit.lab import POD, WORLD, Load, load
from proxyinit.rules import OUR_CHAINS

RERUNS = 20
LOAD_THREADS = 4
LOOPBACK = {4: "127.0.0.1", 6: "::1"}

CASES = tuple(
    chain.from_iterable(
        zip(*(cases(POD[v], WORLD[v], LOOPBACK[v]) for v in ALL_VERSIONS), strict=True)
    )
)
"""Every connection, both families side by side."""


def build(stage: Stage) -> None:
    """Start the stand-ins, draw the scene, and connect while nothing is redirected."""
    stage.lab.app(APP_PORT, IGNORED_PORT)
    stage.lab.proxy(inbound=PROXY_IN, outbound=PROXY_OUT)
    stage.lab.world(WEB_PORT, IGNORED_PORT)
    stage.narrator.table(tables.scene())
    require_answers(_connect(stage), lambda case: case.before)
    stage.narrator.proved(
        f"{len(CASES)} connections tried: none of them passes through the proxy"
    )


def _connect(stage: Stage) -> Found:
    return [(case, stage.connect(case)) for case in CASES]


def redirect(stage: Stage) -> None:
    """Run proxy-init as Linkerd does, and connect again."""
    took = stage.proxy_init(LINKERD_ARGUMENTS, show=True)
    stage.narrator.say(
        f"That took {1000 * took:.0f} ms. Now the same connections again; the last "
        "column is what the kernel tells the proxy about where each was going."
    )
    found = _connect(stage)
    stage.narrator.table(tables.answers(found))
    require_answers(found, lambda case: case.after)
    stage.narrator.proved(
        f"{len(found)} of {len(found)} connections are answered by the one that should"
    )


def show_rules(stage: Stage) -> None:
    """Read the rules back from the kernel and show them."""
    kind = _holder(stage)
    for wanted in CHAINS:
        stage.narrator.table(tables.chain(wanted))
    save = " and ".join(program_name(kind, v, "-save") for v in ALL_VERSIONS)
    stage.narrator.proved(f"{save} print these and no others")


def _holder(stage: Stage) -> str:
    """The kernel interface that holds the right rules, of both families."""
    kinds = {require_rules(stage.nat_tables(v), v) for v in ALL_VERSIONS}
    if len(kinds) != 1:
        raise NotAsExpected("expected both families in the same of legacy and nft")
    return kinds.pop()


def rerun(stage: Stage) -> None:
    """Run proxy-init again and again while clients connect, then the usual way."""
    with stage.narrator.working(f"{RERUNS} runs of proxy-init under load"):
        mine = _under_load(stage, lambda n: stage.proxy_init(_arguments(n)))
    script = "".join(_one_by_one(stage, _holder(stage)))
    with stage.narrator.working(f"{RERUNS} runs of single commands under load"):
        peer = _under_load(stage, lambda _: stage.run(["/bin/sh", "-ec", script]))
    _holder(stage)
    stage.narrator.table(tables.counts(mine, peer))
    require_no_slip(mine, at_least=RERUNS)
    stage.narrator.proved(
        f"{mine.total:,} connections during {RERUNS} runs: 0 past the proxy, 0 errors"
    )


def _arguments(number: int) -> tuple[str, ...]:
    """Same, other, the same other, back: rules stay twice and change twice."""
    return OTHER_ARGUMENTS if number % 4 in (1, 2) else LINKERD_ARGUMENTS


def _under_load(stage: Stage, run: Callable[[int], object]) -> Load:
    targets = [(POD[version], APP_PORT) for version in ALL_VERSIONS]
    with load(stage.lab.client, targets, threads=LOAD_THREADS) as seen:
        for number in range(RERUNS):
            run(number)
    return seen


def _one_by_one(stage: Stage, kind: str) -> Iterator[str]:
    """The commands that put the live rules in place again, one rule a command.

    As upstream's proxy-init does it: chains that exist are emptied and filled
    again, the jumps stay.
    """
    for version in ALL_VERSIONS:
        program = stage.runner.find(program_name(kind, version))
        table = stage.nat_tables(version)[kind]
        for name in OUR_CHAINS:
            yield f"{program} -w -t nat -F {name}\n"
            for rule in table.rules(name):
                yield f"{program} -w -t nat -A {name} {render_rule(rule)}\n"


def clean_up(stage: Stage) -> None:
    """Remove the redirect, connect once more, and look for what is left."""
    stage.proxy_init(("cleanup",), show=True)
    found = _connect(stage)
    require_answers(found, lambda case: case.before)
    stage.narrator.proved(
        f"{len(found)} of {len(found)} connections are direct again, as at first"
    )
    for version in ALL_VERSIONS:
        require_nothing(stage.nat_tables(version), version)
    stage.narrator.proved("no rule and no chain is left in the pod")


CHAPTERS = (
    Chapter(
        title="A pod, a client, and no redirect yet",
        why=(
            "The app does the pod's work and knows nothing of a mesh. The proxy beside "
            "it is to take all of the app's traffic, to encrypt it and to check who "
            "calls. The client is the pod's only neighbour and answers for the world."
        ),
        act=build,
    ),
    Chapter(
        title="proxy-init redirects the traffic",
        why=(
            "A pod runs this once, before anything else starts. Linkerd passes where "
            "the proxy listens, which user it runs as, and the ports to leave alone."
        ),
        act=redirect,
    ),
    Chapter(
        title="The rules that do it",
        why=(
            "They are in the pod's own namespace, in the kernel's nat table. Rules "
            "are tried from the top, the first that fits decides: RETURN leaves a "
            "connection alone, REDIRECT hands it to another port of the pod. Each also "
            "carries a comment that says why it is there, left out here."
        ),
        act=show_rules,
    ),
    Chapter(
        title="Changing rules while connections come in",
        why=(
            "If rules were missing for a millisecond, connections would slip past "
            "the proxy, unencrypted and unchecked. proxy-init replaces them in one "
            f"transaction. While it runs {RERUNS} times, half of them with other "
            f"arguments, {LOAD_THREADS} threads connect without pause; then, for "
            "comparison, the same with one iptables command for each rule."
        ),
        act=rerun,
    ),
    Chapter(
        title="Gone without a trace",
        why="What was installed can be removed, and nothing else is touched.",
        act=clean_up,
    ),
)
