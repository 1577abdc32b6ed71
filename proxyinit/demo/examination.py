"""The chapters that see and prove: explained, verified, damaged, native nftables."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from subprocess import CompletedProcess
from typing import Any

from proxyinit.demo.checks import NotAsExpected, require_answers
from proxyinit.demo.expectations import LINKERD_ARGUMENTS, Case
from proxyinit.demo.interception import CASES
from proxyinit.demo.stage import APP_UID, Chapter, Stage
from proxyinit.lab import CLIENT, POD, PROXY_UID
from proxyinit.rules import OUR_CHAINS

INTERCEPTED, DIFFERS = 0, 3
"""Exit codes of `proxy-init verify`."""
_COMMENT = re.compile(r' comment "[^"]*"')
NATIVE_TABLE = ("inet", "proxy_init")


# === programs ===


def _ask(stage: Stage, arguments: Sequence[str]) -> CompletedProcess[str]:
    """Ask the installed proxy-init about the pod, whatever its exit code is."""
    stage.interrupts.check()
    return stage.lab.client.exec([stage.program, *arguments])


def _show(stage: Stage, arguments: Sequence[str]) -> CompletedProcess[str]:
    stage.narrator.command(["proxy-init", *arguments])
    done = _ask(stage, arguments)
    stage.narrator.printed(done.stdout or done.stderr)
    return done


def _run(stage: Stage, words: Sequence[str]) -> None:
    """Run a program of this machine inside the pod; show what it prints."""
    stage.narrator.command(words)
    path = stage.runner.find(words[0])
    if path is None:
        raise NotAsExpected(f"expected {words[0]} on this machine, found none")
    printed = stage.run([path, *words[1:]]).stdout
    if printed:
        stage.narrator.printed(_COMMENT.sub("", printed).expandtabs(2))


def _read(done: CompletedProcess[str]) -> dict[str, Any]:
    """The JSON that a command printed."""
    try:
        found = json.loads(done.stdout)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise NotAsExpected(
            f"expected an answer in JSON, found exit code {done.returncode}",
            done.stderr,
        )
    return found


# === the chapters' acts ===


def foretell(stage: Stage) -> None:
    """Let every connection be foretold, and see that it came as it was said."""
    for case in (CASES[0], CASES[-2]):
        _show(stage, [*_question(case), *_pod(stage)])
    for case in CASES:
        answer = _read(
            _ask(stage, [*_question(case), *_pod(stage), "--format", "json"])
        )
        expected = case.after.port if case.after.who == "proxy" else None
        found = _port(answer)
        if found != expected:
            raise NotAsExpected(
                f"expected explain to send {case.caller}'s connection to {case.to} to "
                f"{expected or 'where it goes'}, found {answer.get('answer')}"
            )
    stage.narrator.proved(
        f"{len(CASES)} of {len(CASES)} connections went the way that is foretold"
    )


def _question(case: Case) -> tuple[str, ...]:
    """The packet that begins the connection of a case, as explain is asked."""
    version = 6 if ":" in case.to.address else 4
    words: tuple[str, ...] = ("explain", "--to", str(case.to))
    if case.caller == "client":
        return (*words, "--from", CLIENT[version])
    uid = PROXY_UID if case.caller == "proxy" else APP_UID
    inside = case.to.address in ("127.0.0.1", "::1")
    source = case.to.address if inside else POD[version]
    return (*words, "--from", source, "--uid", str(uid))


def _port(answer: dict[str, Any]) -> int | None:
    """The port that explain says a connection is redirected to; None for none."""
    match answer.get("outcomes"):
        case [{"kind": "redirected", "ports": [low, high]}] if low == high:
            return int(low)
        case [{"kind": "untouched"}]:
            return None
    raise NotAsExpected(f"expected one outcome, found {answer.get('answer')}")


def prove(stage: Stage) -> None:
    """Verify, with live connections; damage the redirect; verify; repair."""
    _require_verdict(_show(stage, ("verify", *_pod(stage), "--probe")), INTERCEPTED)
    stage.narrator.say("Now somebody empties one chain of the redirect:")
    _run(stage, [f"iptables-{stage.mode}", "-t", "nat", "-F", OUR_CHAINS[0]])
    _require_verdict(_show(stage, ("verify", *_pod(stage))), DIFFERS)
    stage.narrator.proved("the damage is named, with what to do about it")
    stage.proxy_init(LINKERD_ARGUMENTS, show=True)
    _require_verdict(_ask(stage, ("verify", *_pod(stage), "--probe")), INTERCEPTED)
    stage.narrator.proved("running proxy-init again has mended it")


def _pod(stage: Stage) -> tuple[str, str]:
    """The pod, as it is named from outside."""
    return "--netns", stage.lab.pod.path


def _require_verdict(done: CompletedProcess[str], expected: int) -> None:
    if done.returncode != expected:
        raise NotAsExpected(
            f"expected verify to end with {expected}, found {done.returncode}",
            done.stdout + done.stderr,
        )


def go_native(stage: Stage) -> None:
    """Put the same redirect into nftables, and take it out of iptables."""
    words = (*LINKERD_ARGUMENTS, "--iptables-mode", "nftables")
    stage.narrator.command(["proxy-init", *words])
    done = stage.lab.pod.exec([stage.program, *words, "--log-level", "warn"])
    if done.returncode:
        raise NotAsExpected(
            f"{stage.program} ended with status {done.returncode}, expected 0",
            done.stderr,
        )
    stage.narrator.note(done.stderr)
    _run(stage, ["nft", "--stateless", "list", "table", *NATIVE_TABLE])
    found = [(case, stage.connect(case)) for case in CASES]
    require_answers(found, lambda case: case.after)
    stage.narrator.proved(
        f"{len(found)} of {len(found)} connections are answered by the one that should"
    )
    _require_verdict(_ask(stage, ("verify", *_pod(stage))), INTERCEPTED)
    stage.narrator.proved("verify finds one backend in charge: nothing is left behind")
    stage.proxy_init(LINKERD_ARGUMENTS)


CHAPTERS = (
    Chapter(
        title="Where would this connection go?",
        why=(
            "explain follows one packet through the rules as the kernel would, and "
            "says which rule decides. It reads the live rules, planned ones, or a "
            "dump from somewhere else."
        ),
        act=foretell,
    ),
    Chapter(
        title="Is this pod intercepted?",
        why=(
            "verify reads the rules back as flags, judges them, and with --probe "
            "proves it: connections of its own, in both directions, are seen to be "
            "accepted by the proxy. On a node, --all asks it of every pod."
        ),
        act=prove,
    ),
    Chapter(
        title="The same without iptables",
        why=(
            "Some machines have nothing but nf_tables. There one table of native "
            "rules serves both IP versions; what iptables held is removed behind it. "
            "Comments are left out here."
        ),
        act=go_native,
    ),
)
