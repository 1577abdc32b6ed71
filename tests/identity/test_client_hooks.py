"""Telling others of a renewal: commands, signals, and what happens when they fail."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import signal
import sys
from pathlib import Path

import pytest

from identity.client_cli import read_hooks
from identity.clock import SystemClock
from identity.errors import Misconfigured
from identity.hooks import Command, Hook, HookFailed, Signal, tell
from identity.schedule import Backoff

QUICK = Backoff(
    shortest=dt.timedelta(milliseconds=1), longest=dt.timedelta(milliseconds=4)
)


def told(hook: Hook) -> None:
    """Tell once."""
    asyncio.run(hook.tell())


def test_a_command_runs_without_a_shell(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Words are words; what it prints is no result of ours."""
    told(Command(("/bin/echo", "$HOME", ";", "*")))
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "$HOME ; *\n")
    told(Command(("touch", str(tmp_path / "done"))))
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        pytest.param(Command(("/nowhere",)), "No such file", id="no such program"),
        pytest.param(Command(("/etc",)), "Permission denied", id="no program at all"),
        pytest.param(Command(("false",)), "false ended with status 1", id="status"),
        pytest.param(
            Command(("sleep", "600"), timeout_s=0.05),
            "sleep did not end within 0.05 s",
            id="endless",
        ),
        pytest.param(
            Command(("sh", "-c", "kill -9 $$")), "sh ended with status -9", id="killed"
        ),
    ],
)
def test_commands_that_fail(hook: Hook, said: str) -> None:
    """Each way to fail is told, and nothing is left running."""
    with pytest.raises(HookFailed, match=said):
        told(hook)


def test_a_command_that_is_stopped_takes_its_children_along(tmp_path: Path) -> None:
    """After the time it may take, nobody holds what it had opened."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    script = f"exec 3>{fifo}; echo started >&3; sleep 600 & wait"
    with pytest.raises(HookFailed, match=r"did not end"):
        told(Command(("sh", "-c", script), timeout_s=0.2))
    os.set_blocking(reading, True)
    with os.fdopen(reading, "rb") as stream:
        assert stream.read() == b"started\n", "ends when the last of them has closed it"


def test_what_a_command_starts_may_stay(tmp_path: Path) -> None:
    """A command that ends well may leave a program running, as reloads do."""
    fifo, go = tmp_path / "fifo", tmp_path / "go"
    os.mkfifo(fifo)
    os.mkfifo(go)
    told(Command(("sh", "-c", f"(read x <{go}; echo alive >{fifo}) &")))
    go.write_text("\n")
    assert fifo.read_text() == "alive\n"


def pid_file(folder: Path, text: str) -> str:
    """A file with this text."""
    path = folder / "pid"
    path.write_text(text)
    return str(path)


def test_a_signal_goes_to_whom_the_file_names_now(tmp_path: Path) -> None:
    """The file is read anew each time."""
    sent: list[tuple[int, int]] = []
    hook = Signal(
        signal.SIGHUP,
        pid_file(tmp_path, " 123\n"),
        kill=lambda pid, number: sent.append((pid, number)),
    )
    told(hook)
    pid_file(tmp_path, "456")
    told(hook)
    assert sent == [(123, signal.SIGHUP), (456, signal.SIGHUP)]


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "x", "1 2", "99999999", "\u0663"], ids=range(7)
)
def test_pid_files_that_are_none(tmp_path: Path, text: str) -> None:
    """Nothing but one positive number is a process; groups are never signalled."""
    sent: list[int] = []
    path = pid_file(tmp_path, text)
    with pytest.raises(HookFailed):
        told(Signal(signal.SIGHUP, path, kill=lambda pid, _: sent.append(pid)))
    assert not sent


def test_processes_that_are_gone(tmp_path: Path) -> None:
    """A missing file and a missing process are told with the signal's name."""
    with pytest.raises(HookFailed, match=r"SIGHUP by .*: No such file"):
        told(Signal(signal.SIGHUP, str(tmp_path / "nowhere")))

    def gone(*_: object) -> None:
        raise ProcessLookupError(3, "No such process")

    with pytest.raises(HookFailed, match=r"SIGUSR1 by .*: No such process"):
        told(Signal(signal.SIGUSR1, pid_file(tmp_path, "77"), kill=gone))


def test_a_real_process_hears_it(tmp_path: Path) -> None:
    """A signal reaches another program."""
    code = (
        "import signal, sys; signal.signal(signal.SIGHUP, lambda *_: sys.exit(7));"
        "print(flush=True); signal.pause()"
    )

    async def hear() -> int:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdout=-1
        )
        assert process.stdout is not None
        await process.stdout.readline()
        path = pid_file(tmp_path, str(process.pid))
        await Signal(signal.SIGHUP, path, kill=os.kill).tell()
        return await process.wait()

    assert asyncio.run(hear()) == 7


class Flaky:
    """Fails a number of times, then succeeds."""

    def __init__(self, failures: int) -> None:
        self.left = failures

    async def tell(self) -> None:
        self.left -= 1
        if self.left >= 0:
            raise HookFailed("not yet")


def test_failures_are_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """Until it succeeds; each failure is a warning, none an exception."""
    heard: list[bool] = []
    asyncio.run(tell(Flaky(3), SystemClock(), heard.append, QUICK))
    assert heard == [False, False, False, True]
    said = [r for r in caplog.records if r.name == "identity.hooks"]
    assert said[0].getMessage() == (
        "Failed to tell of the new certificate: not yet; again in 0.001 s"
    )
    assert [record.levelname for record in said] == ["WARNING"] * 3


# === options ===


@pytest.mark.parametrize(
    ("options", "hooks"),
    [
        pytest.param((None, None, None), (), id="none"),
        pytest.param(
            ("nginx -s 're load'", None, None),
            (Command(("nginx", "-s", "re load")),),
            id="command",
        ),
        pytest.param(
            (None, None, "/pid"), (Signal(signal.SIGHUP, "/pid"),), id="HUP by default"
        ),
        pytest.param(
            (None, "sigusr1", "/pid"), (Signal(signal.SIGUSR1, "/pid"),), id="by name"
        ),
        pytest.param(
            ("a", "USR2", "/pid"),
            (Command(("a",)), Signal(signal.SIGUSR2, "/pid")),
            id="both",
        ),
    ],
)
def test_hooks_from_options(
    options: tuple[str | None, str | None, str | None], hooks: tuple[Hook, ...]
) -> None:
    """A command is split into words as a shell does; a signal is called by name."""
    assert read_hooks(*options) == hooks


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        pytest.param(
            ("", "NOPE", "/pid"),
            (
                "--exec '': expected a program and its arguments",
                "--signal 'NOPE': expected HUP, USR1 or the like",
            ),
            id="both at once",
        ),
        pytest.param(
            ("a 'b", None, None),
            ('--exec "a \'b": expected a program and its arguments',),
            id="quote not closed",
        ),
        pytest.param(
            (None, "HUP", None),
            ("--signal needs --pid-file: whom to send it to",),
            id="to whom",
        ),
        pytest.param(
            (None, "_IGN", "/pid"),
            ("--signal '_IGN': expected HUP, USR1 or the like",),
            id="no signal, though the module has it",
        ),
    ],
)
def test_hooks_that_can_not_be(
    options: tuple[str | None, str | None, str | None], problems: tuple[str, ...]
) -> None:
    """Mistakes are told before anything starts."""
    with pytest.raises(Misconfigured) as caught:
        read_hooks(*options)
    assert caught.value.problems == problems
