"""Telling other programs that there is a new certificate: a command, a signal.

What fails is logged and tried again, until it succeeds or the next renewal makes
it pointless; it never stops the renewals.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from identity.clock import Clock
from identity.errors import IdentityError
from identity.schedule import Backoff

COMMAND_TIMEOUT_S = 60.0
_PID_DIGITS = 7
"""Linux counts to 4194304."""
_log = logging.getLogger(__name__)


class HookFailed(IdentityError):
    """A program could not be told."""


class Hook(Protocol):
    """One way to tell."""

    async def tell(self) -> None:
        """Tell once. Raises `HookFailed`."""


@dataclass(frozen=True, slots=True)
class Command:
    """Runs a program, without a shell; what it prints goes to standard error."""

    argv: tuple[str, ...]
    timeout_s: float = COMMAND_TIMEOUT_S

    async def tell(self) -> None:
        """Run it to its end, which has to be good and in time."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=2,
                process_group=0,
            )
        except OSError as error:
            raise HookFailed(f"{self.argv[0]}: {error.strerror}") from error
        try:
            async with asyncio.timeout(self.timeout_s):
                status = await process.wait()
        except TimeoutError as error:
            raise HookFailed(
                f"{self.argv[0]} did not end within {self.timeout_s:g} s"
            ) from error
        finally:
            if process.returncode is None:
                # Too slow, or we are stopping: it and its children. What a command
                # that has ended left in the background is meant to be there.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if status:
            raise HookFailed(f"{self.argv[0]} ended with status {status}")


@dataclass(frozen=True, slots=True)
class Signal:
    """Sends a signal to the process in a file, which is read anew each time."""

    number: signal.Signals
    pid_file: str
    kill: Callable[[int, int], object] = os.kill

    async def tell(self) -> None:
        """Send it once."""
        try:
            self.kill(self._pid(), self.number)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not ASCII"
            raise HookFailed(
                f"{self.number.name} by {self.pid_file}: {reason}"
            ) from error

    def _pid(self) -> int:
        text = Path(self.pid_file).read_text("ascii").strip()
        pid = int(text) if text.isdigit() and len(text) <= _PID_DIGITS else 0
        # 0 and negative numbers would be signals to whole groups.
        if not pid:
            raise HookFailed(
                f"expected a process id in {self.pid_file}, got {text[:20]!r}"
            )
        return pid


async def tell(
    hook: Hook,
    clock: Clock,
    done: Callable[[bool], object],
    backoff: Backoff = Backoff(longest=timedelta(seconds=30)),  # noqa: B008  (a value)
) -> None:
    """Tell until it succeeds; `done` hears how each try went."""
    failures = 0
    while True:
        try:
            await hook.tell()
        except HookFailed as error:
            failures += 1
            wait = backoff.wait(failures, 0.0)
            done(False)  # noqa: FBT003  (how it went)
            _log.warning(
                "Failed to tell of the new certificate: %s; again in %g s",
                error,
                wait.total_seconds(),
            )
            await clock.sleep(wait.total_seconds())
        else:
            done(True)  # noqa: FBT003  (as above)
            return
