"""Why a program failed, put together for people; imported only when one did."""

from __future__ import annotations

import os
import re

from proxyinit.backend import NFTABLES, title
from proxyinit.diagnose import (
    LOCK_FILE,
    LOCKED,
    NOT_PERMITTED,
    REFUSED,
    TOO_SLOW,
    UNSUPPORTED,
    Diagnosis,
    describe_lock,
    diagnose,
    missing_link,
)
from proxyinit.errors import CommandFailed, NoBackend, ProxyInitError
from proxyinit.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyinit.session import Session

_SIGKILL = 9
_OTHER_USERS = Diagnosis(
    UNSUPPORTED,
    "the pod has a user namespace of its own (hostUsers: false), and iptables takes "
    "rules for users from within it alone",
    "run proxy-init in the pod, or use --iptables-mode nftables",
)
"""owner_check in net/netfilter/xt_owner.c answers EINVAL."""


class Failure(Record):
    """A backend that can't be used here, and why."""

    mode: str
    error: ProxyInitError
    diagnosis: Diagnosis

    def __str__(self) -> str:
        return f"{title(self.mode)} can't be used here: {self.diagnosis.cause}"


def unusable(session: Session, mode: str, error: ProxyInitError) -> Failure:
    """The failure, if it is one that another backend may not have.

    Raises the error, explained, when it is not: a lock that is held, rules that
    are refused. Then the machine can do what was asked for, and must not be given
    something else in silence.
    """
    if not isinstance(error, CommandFailed):
        cause = str(error)
        package = "nftables" if mode == NFTABLES else "iptables"
        advice = f"install the {package} package"
        if folder := session.options.bin_dir:
            cause += f", in {folder}"
            advice = (
                "put the programs there, or give --firewall-bin-path without a folder"
            )
        return Failure(mode, error, Diagnosis(UNSUPPORTED, cause, advice))
    diagnosis = diagnose_failure(session, error)
    if diagnosis.kind not in (UNSUPPORTED, NOT_PERMITTED):
        raise explained(session, error) from error
    return Failure(mode, error, diagnosis)


def diagnose_failure(session: Session, error: CommandFailed) -> Diagnosis:
    """The diagnosis of a failed program, with what /proc adds to it."""
    diagnosis = diagnose(error.stderr)
    if error.status < 0 and diagnosis.cause != TOO_SLOW:
        return _ended_by(-error.status)
    host = session.host
    if diagnosis.kind in (LOCKED, LOCK_FILE):
        cause = describe_lock(diagnosis, host.lock_file(), host.lock_holders())
        return Diagnosis(diagnosis.kind, cause, diagnosis.advice)
    if diagnosis.kind == NOT_PERMITTED and diagnosis.cause == "not permitted":
        program = error.argv[0]
        return missing_link(
            host.privileges(),
            os.path.realpath(program),  # setcap takes no symlinks
            carried=host.file_capabilities(program),
            legacy="legacy" in error.stderr or "legacy" in program,
        )
    unexplained = diagnosis == diagnose("")
    if unexplained and "-owner " in error.stdin and host.has_other_users():
        return _OTHER_USERS
    return diagnosis


def _ended_by(signal: int) -> Diagnosis:
    if signal == _SIGKILL:
        return Diagnosis(
            REFUSED,
            "signal 9 ended it, mostly for want of memory",
            "look for it in the kernel's log (dmesg), and raise the container's "
            "memory limit",
        )
    return Diagnosis(
        REFUSED,
        f"signal {signal} ended it",
        "reinstall the iptables package, or use another --iptables-mode",
    )


def explained(session: Session, error: CommandFailed) -> CommandFailed:
    """The same failure, its message saying the cause and the next step."""
    diagnosis = diagnose_failure(session, error)
    program = error.argv[0].rpartition("/")[2]
    line = line_at_fault(error.stderr, error.stdin)
    if diagnosis.kind == REFUSED and line.startswith("-D "):
        diagnosis = _undeletable(line.split()[1])
    where = f" at '{line}'" if line else ""
    message = (
        f"{program} failed with status {error.status}{where}: {diagnosis.cause}; "
        f"{diagnosis.advice}"
    )
    return CommandFailed(error.argv, error.status, error.stderr, message=message)


def _undeletable(chain: str) -> Diagnosis:
    """Some matches, recent and connlimit among them, never equal their own text."""
    return Diagnosis(
        REFUSED,
        "iptables can't delete this rule by its text",
        f"delete it by its number: iptables -t nat -L {chain} --line-numbers, then "
        f"iptables -t nat -D {chain} NUMBER, with the iptables of that backend",
    )


def line_at_fault(stderr: str, script: str) -> str:
    """The line of a script that its reader complains of, if it names one.

    iptables-restore says ``line 4 failed``, ``Error occurred at line: 4`` or
    ``line 4: ...``, nft ``/dev/stdin:4:2-9: Error``. Where iptables only learned of
    the failure on COMMIT, there is nothing to show.
    """
    found = re.search(r"\bline:? (\d+)", stderr)
    native = re.search(r"^/dev/stdin:(\d+):\S+ Error", stderr, re.MULTILINE)
    lines = script.splitlines()
    place = found or native
    number = int(place[1]) if place else 0
    line = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return line if native or line.startswith("-") else ""


def no_backend(failures: Sequence[Failure]) -> NoBackend:
    """The error for a machine where nothing is left to try."""
    advice = dict.fromkeys(failure.diagnosis.advice for failure in failures)
    return NoBackend(
        "nothing can redirect traffic here: "
        f"{'; '.join(map(str, failures))}. Next: {'; or '.join(advice)}",
        "".join(failure.error.stderr for failure in failures),
    )
