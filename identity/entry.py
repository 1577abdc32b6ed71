"""From the command line to a run: the lean path that every pod takes.

Without a command it is the bootstrap, which imports no more than a key and a CSR
need; help, mistakes and the commands go on to `identity.cli`.
"""

from __future__ import annotations

import gc
import os

from identity import bootstrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Run proxy-identity; the exit code."""
    command = bootstrap_command(argv)
    if command is None:
        gc.enable()  # the launcher has no use for it until here
        from identity.cli import run  # noqa: PLC0415  (33 ms for click)

        return run(argv)
    return bootstrap.run(os.environ, command, say)


def say(level: str, message: str) -> None:
    """Write a log line. A bootstrap mostly has nothing to say."""
    from identity import logs  # noqa: PLC0415  (not needed then)

    logs.say(level, message)


def bootstrap_command(argv: Sequence[str]) -> bootstrap.Command | None:
    """What a bootstrap is to become; None when the line asks for something else."""
    rest = list(argv)
    path = bootstrap.PROXY
    while rest:
        word = rest.pop(0)
        if word == "--":
            return bootstrap.Command(path, tuple(rest))
        if word.startswith("--proxy="):
            path = word.removeprefix("--proxy=")
        elif word == "--proxy" and rest and rest[0] != "--":
            path = rest.pop(0)
        else:
            return None
    return bootstrap.Command(path)
