"""From the command line to a run: the lean path that every pod takes.

What explains failures, help and mistakes is imported when it is needed.
"""

from __future__ import annotations

import os

# What `signal` wraps in enums, for 5 ms; typeshed does not know it.
from _signal import SIGINT, SIGTERM, signal  # type: ignore[import-not-found]

from proxyinit.pflag import parse
from proxyinit.standard_files import open_all
from proxyinit.validator.settings import FLAGS, Settings, problems, settings
from proxyinit.validator.tracing import Log
from proxyinit.validator.validate import NOT_VALIDATED, validate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_SIGNALS = {SIGINT: "SIGINT", SIGTERM: "SIGTERM"}


class Killed(Exception):
    """A signal asks the program to end."""


def main(argv: Sequence[str]) -> int:
    """Run network-validator; the exit code."""
    open_all()
    arguments = parse(argv, FLAGS)
    if arguments.help or arguments.words or any(problems(arguments, os.environ)):
        # 30 ms of imports, for those who read what they are told.
        from proxyinit.validator.cli import run  # noqa: PLC0415

        return run(argv)
    return execute(settings(arguments, os.environ))


def execute(chosen: Settings) -> int:
    """Validate by settings that are in order; the exit code."""
    log = Log(chosen.log_level, chosen.log_format)
    try:
        # Process 1 of a container would sleep through a SIGTERM otherwise.
        for number in _SIGNALS:
            signal(number, _end)
        return validate(chosen, log)
    except Killed as error:
        log.error(f"Killed by {error}")
        return NOT_VALIDATED


def _end(number: int, _: object) -> None:
    raise Killed(_SIGNALS[number])
