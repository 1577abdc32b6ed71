"""The only door to other programs.

Programs get their input from, and give their output to, memory files: nothing
can block on a full pipe, and no thread or select loop is needed. The standard
`subprocess` would add 9 ms to the start of every pod.
"""

from __future__ import annotations

import os
from select import POLLIN, poll

from proxyinit.errors import CommandFailed
from proxyinit.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    class Runner(Protocol):
        """Finds programs and runs them to completion."""

        def find(self, name: str) -> str | None:
            """The path of a program, or None when this machine lacks it."""

        def run(self, argv: Sequence[str], stdin: str = "") -> Output:
            """Run a program; raises `CommandFailed` unless it exits with 0."""

        def run_all(self, commands: Sequence[Sequence[str]]) -> list[Output]:
            """Run programs side by side; raises for the first that failed."""


SYSTEM_DIRS = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
"""Searched after PATH: a non-root user's PATH often lacks the sbin folders."""


_SIGKILL = 9  # importing `signal` brings `enum`: 3 ms for one number


class Output(Record):
    """What a program printed."""

    stdout: str
    stderr: str


class SystemRunner:
    """Runs programs of this machine in the caller's namespaces.

    With `bin_dir` only that folder is searched: who names a program's path means it,
    and programs of two installations don't mix. A program that takes longer than
    `timeout_s` is killed; the lock wait of iptables must fit into it.
    """

    def __init__(self, bin_dir: str = "", timeout_s: float = 60) -> None:
        # Messages are matched by their text, so they must not be translated.
        self._environment = {**os.environ, "LC_ALL": "C"}
        path = os.environ.get("PATH", "")
        everywhere = (*path.split(":"), *SYSTEM_DIRS.split(":"))
        folders = (bin_dir,) if bin_dir else everywhere
        self._folders = [folder for folder in folders if folder]
        self._timeout_s = timeout_s

    def find(self, name: str) -> str | None:
        """The first executable file of that name on the search path."""
        for folder in self._folders:
            path = os.path.join(folder, name)  # noqa: PTH118  (pathlib costs 8 ms)
            if os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113
                return path
        return None

    def run(self, argv: Sequence[str], stdin: str = "") -> Output:
        """Run one program with `stdin` as its input."""
        return self._finish(self._start(argv, stdin))

    def run_all(self, commands: Sequence[Sequence[str]]) -> list[Output]:
        """Run programs without input side by side; all end before one is blamed."""
        running: list[_Running] = []
        outputs: list[Output] = []
        failures: list[CommandFailed] = []
        for argv in commands:
            try:
                running.append(self._start(argv, ""))
            except CommandFailed as error:
                failures.append(error)
        for program in running:
            try:
                outputs.append(self._finish(program))
            except CommandFailed as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return outputs

    def _start(self, argv: Sequence[str], stdin: str) -> _Running:
        files: list[int] = []
        try:
            for name in ("stdin", "stdout", "stderr"):
                files.append(os.memfd_create(name))  # noqa: PERF401  (closed below)
        except OSError as error:
            for file in files:  # the next step needs files of its own
                os.close(file)
            raise CommandFailed(argv, 127, f"can't start: {error.strerror}") from error
        os.write(files[0], stdin.encode("utf-8", "surrogateescape"))
        os.lseek(files[0], 0, os.SEEK_SET)
        actions = [(os.POSIX_SPAWN_DUP2, file, n) for n, file in enumerate(files)]
        try:
            pid = os.posix_spawn(
                argv[0], list(argv), self._environment, file_actions=actions
            )
        except OSError as error:
            message = f"can't start: {error.strerror}"
            os.write(files[2], message.encode())
            return _Running(argv, stdin, 0, files, 127)
        return _Running(argv, stdin, pid, files, None)

    def _wait(self, program: _Running) -> None:
        """Wait until the program has ended; past the time limit, end it.

        An interrupt ends it as well: nothing writes behind the back of its caller.
        """
        if program.status is not None:
            return
        try:
            in_time = self._ends_in_time(program.pid)
        except KeyboardInterrupt:
            os.kill(program.pid, _SIGKILL)
            os.waitpid(program.pid, 0)
            raise
        if not in_time:
            os.kill(program.pid, _SIGKILL)
            late = f"stopped: it gave no answer within {self._timeout_s:g} s"
            os.write(program.files[2], late.encode())
        program.status = os.waitstatus_to_exitcode(os.waitpid(program.pid, 0)[1])

    def _finish(self, program: _Running) -> Output:
        """Wait for the program and take what it printed; its files are closed."""
        self._wait(program)
        stdout, stderr = (_contents(file) for file in program.files[1:])
        for file in program.files:
            os.close(file)
        if program.status != 0:
            status = program.status or 0
            raise CommandFailed(program.argv, status, stderr, stdin=program.stdin)
        return Output(stdout, stderr)

    def _ends_in_time(self, pid: int) -> bool:
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:  # a kernel or a seccomp profile without it: wait unbounded
            return True
        try:
            waiting = poll()
            waiting.register(pidfd, POLLIN)
            return bool(waiting.poll(self._timeout_s * 1000))
        finally:
            os.close(pidfd)


class _Running:
    """A program that was started: its three memory files, its status once known."""

    __slots__ = ("argv", "files", "pid", "status", "stdin")

    def __init__(
        self,
        argv: Sequence[str],
        stdin: str,
        pid: int,
        files: list[int],
        status: int | None,
    ) -> None:
        self.argv = argv
        self.stdin = stdin
        self.pid = pid
        self.files = files
        self.status = status


def _contents(file: int) -> str:
    """All that was written to a memory file; bytes that are no UTF-8 survive."""
    size = os.fstat(file).st_size
    return os.pread(file, size, 0).decode("utf-8", "surrogateescape") if size else ""
