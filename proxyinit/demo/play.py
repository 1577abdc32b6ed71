"""The whole demo: the stage set, every chapter played, the machine left as it was."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyroute2 import NetlinkError

from proxyinit.demo import examination, identity, injection, interception, machine
from proxyinit.demo.checks import NotAsExpected
from proxyinit.demo.interrupts import Interrupted, Interrupts
from proxyinit.demo.narrator import Narrator, console
from proxyinit.demo.stage import Chapter, Stage
from proxyinit.errors import ProxyInitError
from proxyinit.lab import Lab

_FIRST, _LAST = interception.CHAPTERS[:2], interception.CHAPTERS[-1:]
"""A pod that is redirected is what every part begins with, and removes at the end."""

PARTS: dict[str, tuple[Chapter, ...]] = {
    "all": (
        *interception.CHAPTERS[:-1],
        *examination.CHAPTERS,
        *injection.CHAPTERS,
        *identity.CHAPTERS,
        *_LAST,
    ),
    "interception": interception.CHAPTERS,
    "examination": (*_FIRST, *examination.CHAPTERS, *_LAST),
    "injection": (*_FIRST, *injection.CHAPTERS, *_LAST),
    "identity": (*_FIRST, *identity.CHAPTERS, *_LAST),
}
"""What can be played, by name."""


def play(
    mode: str,
    program: str,
    identity_program: str,
    part: str = "all",
) -> int:
    """Play a part; the exit code: 0 only when everything was as expected."""
    try:
        machine.require(mode, program, identity_program)
        _play(Narrator(console()), mode, (program, identity_program), PARTS[part])
    except Interrupted as interrupt:
        _complain(f"ended by {interrupt}", _leftovers())
        return 128 + interrupt.number
    except machine.Unsuitable as error:
        _complain(str(error))
        return 1
    except ProxyInitError as error:
        _complain(str(error), error.stderr, _leftovers())
        return 1
    return 0


def _play(
    narrator: Narrator,
    mode: str,
    programs: tuple[str, str],
    chapters: Sequence[Chapter],
) -> None:
    rules = machine.firewall()
    with Interrupts() as interrupts, _folder() as folder, _lab() as lab:
        stage = Stage(
            lab=lab,
            narrator=narrator,
            interrupts=interrupts,
            mode=mode,
            program=programs[0],
            identity_program=programs[1],
            folder=folder,
        )
        narrator.opening(
            "A pod's first seconds in a service mesh",
            "All of this happens for real, in network namespaces: small networks of "
            "their own inside this kernel, as every pod has one. This machine's own "
            "network and rules are not touched, and nothing stays behind.",
        )
        for chapter in chapters:
            narrator.chapter(chapter.title, chapter.why)
            chapter.act(stage)
    _require_untouched(rules)
    narrator.proved(
        "this machine is as it was: no namespace, rule, process or file is left"
    )
    narrator.closing("Everything happened as it should.")


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for keys and certificates, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=f"proxyinit-{os.getpid()}-") as folder:
        yield Path(folder)


def _lab() -> Lab:
    try:
        return Lab()
    except (OSError, NetlinkError) as error:
        reason = error.args[-1] if error.args else error
        raise machine.Unsuitable(
            f"can't make network namespaces here: {reason}; in a container it takes "
            "--privileged"
        ) from error


def _require_untouched(rules: dict[str, str]) -> None:
    left = machine.residue()
    if left:
        raise NotAsExpected(f"expected nothing to be left, found {', '.join(left)}")
    now = machine.firewall()
    changed = [where for where in rules | now if rules.get(where) != now.get(where)]
    if changed:
        raise NotAsExpected(
            "the rules of this machine itself changed during the demo, by it or by "
            f"somebody else: compare {', '.join(changed)}"
        )


def _leftovers() -> str:
    left = machine.residue()
    return f"left behind: {', '.join(left)}" if left else "nothing is left behind"


def _complain(message: str, *details: str) -> None:
    Narrator(console(stderr=True)).failed(message, *details)
