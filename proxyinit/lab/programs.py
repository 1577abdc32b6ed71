"""Programs that run inside a namespace of the laboratory, as a user of their own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from proxyinit.lab.namespace import Namespace

STOP_LIMIT_S = 10


class Program:
    """A program that was started inside a namespace; it ends when the context does.

    What it prints is appended to the file `log`. A terminal's Ctrl-C does not reach
    it, as whoever started it decides when it ends.
    """

    def __init__(  # noqa: PLR0913  (each option is a part of what a process is)
        self,
        namespace: Namespace,
        argv: Sequence[str],
        *,
        log: Path,
        uid: int = 0,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.log = log

        def start() -> subprocess.Popen[bytes]:
            with log.open("ab") as output:
                return subprocess.Popen(
                    [*as_user(uid), *argv],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **(environment or {})},
                    cwd=folder,
                    process_group=0,
                )

        self._process = namespace.run(start)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process; of the program itself, as it takes the place of its starter."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.poll()

    @property
    def printed(self) -> str:
        """All that it has printed so far, to both outputs."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end; its exit status. It is killed if it takes too long."""
        self._process.send_signal(number)
        try:
            return self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def as_user(uid: int) -> list[str]:
    """What stands before a command line to run it as another user.

    That user may read every file, since the program may be installed where only
    root may look, but change only its own.
    """
    if not uid:
        return []
    user = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    reading = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    return [shutil.which("setpriv") or "setpriv", *user, *reading, "--"]
