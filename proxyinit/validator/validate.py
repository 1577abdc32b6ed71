"""Trying until connections to every address come back to us, or the time is over."""

from __future__ import annotations

import errno
import os
import time

from proxyinit.validator import wire
from proxyinit.validator.addresses import Address
from proxyinit.validator.settings import Settings, hears
from proxyinit.validator.tracing import debug_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket

    from proxyinit.validator.findings import Finding
    from proxyinit.validator.outcome import Outcome
    from proxyinit.validator.tracing import Log

NOT_VALIDATED = 95
"""Upstream's exit code, by which its repair controller knows pods to replace."""

ATTEMPT_S = 1.5
"""One connection may take so long: the kernel has sent a second SYN by then. Rules
that come later take none of its SYNs, since conntrack asks nat for the first alone."""
FIRST_PAUSE_S = 0.05
LAST_PAUSE_S = 1.0


def validate(settings: Settings, log: Log) -> int:
    """Prove that connections are redirected to us; the exit code."""
    listeners: list[socket] = []
    try:
        if not _listen(settings, listeners, log):
            return NOT_VALIDATED
        return _Validation(settings, listeners, log).run()
    finally:
        for listener in listeners:
            listener.close()


# === listening ===


def _listen(settings: Settings, listeners: list[socket], log: Log) -> bool:
    """Open every listener; False when one that is needed can't be had."""
    for address in settings.listen:
        code = _open(address, settings, listeners)
        if code == errno.EAFNOSUPPORT and _replace(address, settings):
            log.warn(
                "This kernel has no IPv6, so there is none to redirect",
                error=wire.describe(code),
            )
            substitute = Address("0.0.0.0", address.port)  # noqa: S104  (as asked: all)
            if any(hears(a, 4) for a in settings.listen if a != address):
                continue
            address = substitute  # noqa: PLW2901  (what is listened at instead)
            code = _open(address, settings, listeners)
        if code:
            _refuse(address, code, log)
            return False
        log.info(f"Listening for connections on {address}")
    return True


def _open(address: Address, settings: Settings, listeners: list[socket]) -> int:
    """Listen at one address; errno, 0 for none."""
    same_port = (a for a in settings.listen if a.port == address.port)
    only_v6 = address.host == "::" and any(a.version == 4 for a in same_port)
    try:
        listeners.append(wire.listen(address, only_v6=only_v6))
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _replace(address: Address, settings: Settings) -> bool:
    """Whether IPv4 is meant too, so that a kernel without IPv6 can do it alone."""
    return address.host == "::" and any(a.version == 4 for a in settings.connect)


def _refuse(address: Address, code: int, log: Log) -> None:
    from proxyinit.validator import findings, sight  # noqa: PLC0415  (only now)

    holder = sight.holder(address.port) if code == errno.EADDRINUSE else ""
    reason = wire.describe(code)
    _tell(findings.explain_listen(address, code, reason, holder), log)


def _tell(finding: Finding, log: Log, **fields: str) -> None:
    reason = {"error": finding.reason} if finding.reason else {}
    log.error(str(finding), cause=debug_text(finding.cause), **fields, **reason)


# === connecting ===


class _Validation:
    """What is proven of the addresses to connect to, and what is still open."""

    def __init__(self, settings: Settings, listeners: list[socket], log: Log) -> None:
        self._settings = settings
        self._listeners = listeners
        self._log = log
        self._token = wire.new_token()
        self._deadline = time.monotonic() + settings.timeout.seconds
        self._open = list(settings.connect)
        self._proven = 0
        self._found: dict[Address, Finding] = {}

    def run(self) -> int:
        """Try, again and again; the exit code."""
        log = self._log
        log.debug("", token=debug_text(self._token.decode("ascii")))
        for target in self._open:
            log.info(f"Connecting to {target}")
        pause_s = FIRST_PAUSE_S
        while True:
            for target in tuple(self._open):
                self._try(target)
            if not self._open and self._proven:
                log.info("Validated")
                return 0
            left_s = self._left_s()
            if left_s <= 0 or not self._open:
                return self._fail()
            time.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    def _left_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _try(self, target: Address) -> None:
        limit_s = min(ATTEMPT_S, self._left_s())
        attempt = wire.Attempt(target, self._listeners, self._token, self._log)
        try:
            outcome = attempt.run(limit_s)
            if outcome.received == self._token and not outcome.direct:
                self._open.remove(target)
                self._proven += 1
            elif limit_s == ATTEMPT_S or target not in self._found:
                # One that was cut short would tell less than those before it.
                self._note(target, self._explain(outcome))
        finally:
            attempt.close()

    def _explain(self, outcome: Outcome) -> Finding:
        from proxyinit.validator import findings, sight  # noqa: PLC0415  (only now)

        seen = sight.look(outcome.local)
        return findings.explain(outcome, seen, self._settings.listen, os.getuid())

    def _note(self, target: Address, finding: Finding) -> None:
        versions = {address.version for address in self._settings.connect}
        if finding.lacks_address and len(versions) > 1:
            self._open.remove(target)
            self._log.warn(f"Skipped {target}: {finding.text}", error=finding.reason)
        elif self._found.get(target) != finding:
            self._log.warn(
                "Not redirected yet, trying again",
                **{"cause": debug_text(finding.cause), "connect.addr": str(target)},
            )
        self._found[target] = finding

    def _fail(self) -> int:
        for target in self._open or self._settings.connect:
            fields = {"connect.addr": str(target)}
            _tell(self._found[target], self._log, **fields)
        self._log.error(
            "Failed to validate networking configuration. "
            "Please ensure iptables rules are rewriting traffic as expected.",
            timeout=str(self._settings.timeout),
        )
        return NOT_VALIDATED
