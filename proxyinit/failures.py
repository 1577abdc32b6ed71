"""Why a program failed, put together for people; imported only when one did."""

from __future__ import annotations

from proxyinit.diagnose import (
    LOCK_FILE,
    LOCKED,
    NOT_PERMITTED,
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


class Failure(Record):
    """A backend that can't be used here, and why."""

    mode: str
    error: ProxyInitError
    diagnosis: Diagnosis

    def __str__(self) -> str:
        return f"iptables-{self.mode} can't be used here: {self.diagnosis.cause}"


def unusable(session: Session, mode: str, error: ProxyInitError) -> Failure:
    """The failure, if it is one that another backend may not have.

    Raises the error, explained, when it is not: a lock that is held, rules that
    are refused. Then the machine can do what was asked for, and must not be given
    something else in silence.
    """
    if not isinstance(error, CommandFailed):
        advice = "install the iptables package"
        return Failure(mode, error, Diagnosis(UNSUPPORTED, str(error), advice))
    diagnosis = diagnose_failure(session, error)
    if diagnosis.kind not in (UNSUPPORTED, NOT_PERMITTED):
        raise explained(session, error) from error
    return Failure(mode, error, diagnosis)


def diagnose_failure(session: Session, error: CommandFailed) -> Diagnosis:
    """The diagnosis of a failed program, with what /proc adds to it."""
    diagnosis = diagnose(error.stderr)
    host = session.host
    if diagnosis.kind in (LOCKED, LOCK_FILE):
        cause = describe_lock(diagnosis, host.lock_file(), host.lock_holders())
        return Diagnosis(diagnosis.kind, cause, diagnosis.advice)
    if diagnosis.kind == NOT_PERMITTED and diagnosis.cause == "not permitted":
        program = error.argv[0]
        return missing_link(
            host.privileges(),
            program,
            program_capable=host.has_file_capabilities(program),
            legacy="legacy" in error.stderr or "legacy" in program,
        )
    return diagnosis


def explained(session: Session, error: CommandFailed) -> CommandFailed:
    """The same failure, its message saying the cause and the next step."""
    diagnosis = diagnose_failure(session, error)
    program = error.argv[0].rpartition("/")[2]
    return CommandFailed(
        error.argv,
        error.status,
        error.stderr,
        f"{program} failed with status {error.status}: {diagnosis.cause}; "
        f"{diagnosis.advice}",
    )


def no_backend(failures: Sequence[Failure]) -> NoBackend:
    """The error for a machine where nothing is left to try."""
    advice = dict.fromkeys(failure.diagnosis.advice for failure in failures)
    return NoBackend(
        "no iptables can redirect traffic here: "
        f"{'; '.join(map(str, failures))}. Next: {'; or '.join(advice)}",
        "".join(failure.error.stderr for failure in failures),
    )
