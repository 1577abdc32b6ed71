"""The chapters on interception: a pod's traffic before, with and after the redirect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from proxyinit.backend import ALL_VERSIONS, family, program_name
from proxyinit.demo.expectations import (
    APP_PORT,
    CHAINS,
    IGNORED_PORT,
    LINKERD_ARGUMENTS,
    OTHER_ARGUMENTS,
    PROXY_IN,
    PROXY_OUT,
    WEB_PORT,
    Case,
    ChainLines,
    Seen,
    cases,
)
from proxyinit.demo.narrator import grid
from proxyinit.demo.stage import APP_UID, Chapter, NotAsExpected, Stage
from proxyinit.iptables_save import render_rule
from proxyinit.lab import CLIENT, POD, PROXY_UID, WORLD, Load, load
from proxyinit.rules import OUR_CHAINS, Comment, Rule, Ruleset

if TYPE_CHECKING:
    from proxyinit.rules import Version

RERUNS = 20
LOAD_THREADS = 4
LOOPBACK = {4: "127.0.0.1", 6: "::1"}

CASES = tuple(
    chain.from_iterable(
        zip(*(cases(POD[v], WORLD[v], LOOPBACK[v]) for v in ALL_VERSIONS), strict=True)
    )
)
"""Every connection, both families side by side."""


# === before ===


def build(stage: Stage) -> None:
    """Start the stand-ins, draw the scene, and connect while nothing is redirected."""
    lab = stage.lab
    lab.app(APP_PORT, IGNORED_PORT)
    lab.proxy(inbound=PROXY_IN, outbound=PROXY_OUT)
    lab.world(WEB_PORT, IGNORED_PORT)
    stage.narrator.table(_scene())
    require_answers(_connect(stage), lambda case: case.before)
    stage.narrator.proved(
        f"{len(CASES)} connections tried: none of them passes through the proxy"
    )


def _scene() -> Table:
    """Who is where."""
    heading = ("who", "namespace", *map(family, ALL_VERSIONS), "user", "listens on")
    people = (
        ("client", "client", CLIENT, "", ()),
        ("world", "client", WORLD, "", (WEB_PORT, IGNORED_PORT)),
        ("app", "pod", POD, str(APP_UID), (APP_PORT, IGNORED_PORT)),
        ("proxy", "pod", POD, str(PROXY_UID), (PROXY_IN, PROXY_OUT)),
    )
    return grid(
        [
            (
                who,
                where,
                *(addresses[version] for version in ALL_VERSIONS),
                user,
                ", ".join(map(str, ports)),
            )
            for who, where, addresses, user, ports in people
        ],
        heading=heading,
    )


def _connect(stage: Stage) -> list[tuple[Case, Seen]]:
    return [(case, stage.connect(case)) for case in CASES]


def require_answers(
    found: list[tuple[Case, Seen]], expected: Callable[[Case], Seen]
) -> None:
    """Raises `NotAsExpected` that names the first connection with a wrong answer."""
    wrong = [(case, seen) for case, seen in found if seen != expected(case)]
    if not wrong:
        return
    case, seen = wrong[0]
    raise NotAsExpected(
        f"{len(wrong)} of {len(found)} connections went wrong; the first, from the "
        f"{case.caller} to {case.to}: expected {_in_words(expected(case))}, "
        f"found {_in_words(seen)}"
    )


def _in_words(seen: Seen) -> str:
    at = f" at port {seen.port}" if seen.port else ""
    told = f", told of {seen.original}" if seen.original else ""
    return f"{seen.who}{at}{told}"


# === with the redirect ===


def redirect(stage: Stage) -> None:
    """Run proxy-init as Linkerd does, and connect again."""
    took = stage.proxy_init(LINKERD_ARGUMENTS, show=True)
    stage.narrator.say(
        f"That took {1000 * took:.0f} ms. Now the same connections again; the last "
        "column is what the kernel tells the proxy about where each was going."
    )
    found = _connect(stage)
    stage.narrator.table(_answers(found))
    require_answers(found, lambda case: case.after)
    stage.narrator.proved(
        f"{len(found)} of {len(found)} connections are answered by the one that should"
    )


def _answers(found: list[tuple[Case, Seen]]) -> Table:
    heading = ("from", "to", "before", "after", "original destination")
    rows: list[tuple[str | Text, ...]] = []
    callers = ""
    for case, seen in found:
        if callers and case.caller != callers:
            rows.append(("",) * len(heading))
        callers = case.caller
        ends = case.caller, str(case.to), str(case.before)
        rows.append((*ends, *_outcome(case, seen)))
    return grid(rows, heading=heading)


def _outcome(case: Case, seen: Seen) -> tuple[Text, Text]:
    """Who answered, and what it was told or why it was told nothing."""
    if seen != case.after:
        return Text(str(seen), "bold red"), Text(f"expected {case.after}", "red")
    if case.exempt:
        return Text(str(seen)), Text(f"({case.exempt})", "dim")
    return Text(str(seen), "green"), Text(str(seen.original))


# === the rules ===


def show_rules(stage: Stage) -> None:
    """Read the rules back from the kernel and show them."""
    kind = require_rules(stage)
    for wanted in CHAINS:
        stage.narrator.table(_chain(wanted))
    save = " and ".join(program_name(kind, v, "-save") for v in ALL_VERSIONS)
    stage.narrator.proved(f"{save} print exactly these")


_MEANING_WIDTH = max(len(line.meaning) for wanted in CHAINS for line in wanted.lines)


def _chain(wanted: ChainLines) -> Table:
    title = Text.assemble(
        (wanted.title, "bold"), f": {wanted.builtin} jumps to {wanted.name}"
    )
    table = grid((Text(line.meaning, "dim"), line.text) for line in wanted.lines)
    table.columns[0].min_width = _MEANING_WIDTH
    table.title, table.title_justify, table.title_style = title, "left", ""
    return table


def require_rules(stage: Stage) -> str:
    """The kernel interface that holds exactly `CHAINS`, for both families.

    Raises `NotAsExpected` with the rules found when none or two do.
    """
    holders = set()
    for version in ALL_VERSIONS:
        tables = stage.nat_tables(version)
        kinds = [kind for kind, table in tables.items() if any(_our_lines(table))]
        if len(kinds) != 1:
            raise NotAsExpected(
                f"{family(version)}: expected our rules in one of {', '.join(tables)}, "
                f"found them in {' and '.join(kinds) or 'none'}"
            )
        found, wanted = _our_lines(tables[kinds[0]]), _wanted_lines()
        if found != wanted:
            raise NotAsExpected(
                f"{family(version)}: expected these rules:\n" + "\n".join(wanted),
                "found:\n" + "\n".join(found),
            )
        holders.add(kinds[0])
    if len(holders) != 1:
        raise NotAsExpected("expected both families in one of legacy and nft")
    return holders.pop()


def _wanted_lines() -> list[str]:
    jumps = [f"{wanted.builtin} -j {wanted.name}" for wanted in CHAINS]
    rules = [f"{wanted.name} {line.text}" for wanted in CHAINS for line in wanted.lines]
    return [*jumps, *rules]


def _our_lines(table: Ruleset) -> list[str]:
    """Everything in the table but empty chains, without comments, jumps first."""
    names = [chain.name for chain in table.chains if chain.name not in OUR_CHAINS]
    return [
        f"{name} {_without_comment(rule)}"
        for name in (*names, *OUR_CHAINS)
        for rule in table.rules(name)
    ]


def _without_comment(rule: Rule) -> str:
    matches = tuple(m for m in rule.matches if not isinstance(m, Comment))
    return render_rule(Rule(matches, rule.verdict))


# === again, under load ===


def rerun(stage: Stage) -> None:
    """Run proxy-init again and again while clients connect, then the usual way."""
    kind = require_rules(stage)
    with stage.narrator.working(f"{RERUNS} runs of proxy-init under load"):
        mine = _under_load(stage, lambda n: stage.proxy_init(_arguments(n)))
    require_rules(stage)
    script = "".join(_one_by_one(stage, kind))
    with stage.narrator.working(f"{RERUNS} runs of single commands under load"):
        peer = _under_load(stage, lambda _: stage.run(["/bin/sh", "-ec", script]))
    require_rules(stage)
    stage.narrator.table(_counts(mine, peer))
    require_no_slip(mine)
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

    As proxy-init did before it was this one: chains that exist are emptied and
    filled again, the jumps stay.
    """
    for version in ALL_VERSIONS:
        program = stage.runner.find(program_name(kind, version))
        table = stage.nat_tables(version)[kind]
        for name in OUR_CHAINS:
            yield f"{program} -w -t nat -F {name}\n"
            for rule in table.rules(name):
                yield f"{program} -w -t nat -A {name} {render_rule(rule)}\n"


def _past(seen: Load) -> int:
    return sum(count for who, count in seen.answers.items() if who != "proxy")


def _counts(mine: Load, peer: Load) -> Table:
    heading = ("", "connections", "by the proxy", "past it", "errors")
    rows = []
    for title, seen in (("proxy-init", mine), ("one command a rule", peer)):
        past, errors = _past(seen), len(seen.errors)
        rows.append(
            (
                title,
                f"{seen.total:,}",
                f"{seen.answers.get('proxy', 0):,}",
                Text(f"{past:,}", "bold red" if past else "bold green"),
                Text(f"{errors:,}", "bold red" if errors else "bold green"),
            )
        )
    table = grid(rows, heading=heading)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def require_no_slip(seen: Load) -> None:
    """Raises `NotAsExpected` unless the proxy answered every one of many."""
    past, errors = _past(seen), len(seen.errors)
    if past or errors:
        raise NotAsExpected(
            f"of {seen.total:,} connections {past:,} went past the proxy and "
            f"{errors:,} failed while proxy-init ran again, expected 0 and 0",
            "\n".join(seen.errors[:1]),
        )
    if seen.total < RERUNS:
        raise NotAsExpected(
            f"only {seen.total} connections were made during {RERUNS} runs: too few "
            "to prove anything"
        )


# === after ===


def clean_up(stage: Stage) -> None:
    """Remove the redirect, connect once more, and look for what is left."""
    stage.proxy_init(("cleanup",), show=True)
    found = _connect(stage)
    require_answers(found, lambda case: case.before)
    stage.narrator.proved(
        f"{len(found)} of {len(found)} connections are direct again, as at first"
    )
    for version in ALL_VERSIONS:
        for kind, table in stage.nat_tables(version).items():
            _require_empty(kind, version, table)
    stage.narrator.proved("no rule and no chain is left in the pod")


def _require_empty(kind: str, version: Version, table: Ruleset) -> None:
    left = [f"chain {name}" for name in OUR_CHAINS if table.chain(name)]
    left += _our_lines(table)
    if left:
        raise NotAsExpected(
            f"{family(version)}: expected nothing of ours in {kind} after the cleanup, "
            f"found {', '.join(left)}"
        )


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
            "connection alone, REDIRECT hands it to another port of the pod."
        ),
        act=show_rules,
    ),
    Chapter(
        title="Changing rules while connections come in",
        why=(
            "If rules were missing for a millisecond, connections would slip past "
            "the proxy, unencrypted and unchecked. proxy-init replaces them in one "
            f"transaction. {LOAD_THREADS} threads connect without pause while it runs "
            f"{RERUNS} times, half of them with other arguments; then, for comparison, "
            "the same with one iptables command for each rule."
        ),
        act=rerun,
    ),
    Chapter(
        title="Gone without a trace",
        why="What was installed can be removed, and nothing else is touched.",
        act=clean_up,
    ),
)
