"""Everything that can go wrong at run time, as one tree.

Mistakes in the arguments are no exceptions: parsing collects them all (`flags`).

::

    ProxyInitError            a failure to be told in one message: exit code 1
    |-- NamespaceError        the network namespace can't be entered
    |-- NamespaceBusy         another proxy-init is at work in the namespace
    |-- SysctlError           a kernel setting can't be changed
    |-- ProgramMissing        a program that is needed is not on this machine
    |-- CommandFailed         a program ran and refused, or did not end in time
    |-- NoBackend             no iptables can do the job here
    |-- Unreachable           another rule takes connections before ours
    `-- NotInPlace            the rules read back are not those written
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class ProxyInitError(Exception):
    """A failure with one message for people: cause, then what to do next.

    `stderr` is what other programs printed of it, word for word.
    """

    def __init__(self, message: str, stderr: str = "") -> None:
        super().__init__(message)
        self.stderr = stderr

    @property
    def fields(self) -> dict[str, str]:
        """What to add to a log line about it."""
        return {"stderr": self.stderr} if self.stderr else {}


class NamespaceError(ProxyInitError):
    """A path or process that should lead to a network namespace does not."""


class NamespaceBusy(ProxyInitError):
    """Another proxy-init holds the namespace for longer than one may wait."""


class SysctlError(ProxyInitError):
    """A kernel setting can't be written."""


class ProgramMissing(ProxyInitError):
    """Programs that a backend consists of were not found."""


class CommandFailed(ProxyInitError):
    """A program ended with an error, could not start, or was stopped as too slow."""

    def __init__(
        self,
        argv: Sequence[str],
        status: int,
        stderr: str,
        *,
        message: str = "",
        stdin: str = "",
    ) -> None:
        said = stderr.strip() or "it printed no reason"
        default = f"{' '.join(argv)} failed with status {status}: {said}"
        super().__init__(message or default, stderr)
        self.argv = tuple(argv)
        self.status = status
        self.stdin = stdin


class NoBackend(ProxyInitError):
    """Every iptables that might have done the job can't, with the reasons."""


class Unreachable(ProxyInitError):
    """Rules of others stand in front of our jumps and take connections."""


class NotInPlace(ProxyInitError):
    """What the kernel holds after writing is not what was written."""
