"""Watching the issuer's files: their contents decide, not what a watcher reports.

A poll reads three small files. That can't miss a change as file system events do,
and takes part of no swap: contents are judged once two polls in a row agree.
"""

from __future__ import annotations

import datetime as dt
import logging

from identity.issuer import events
from identity.issuer.credentials import Credentials, Files, Locations, load, read
from identity.issuer.errors import CredentialsError

_log = logging.getLogger(__name__)


class Reloader:
    """Holds the credentials in use, and replaces them when the files change.

    Whoever signs takes `current` once per request, so requests under way finish
    with the issuer that they began with.
    """

    def __init__(
        self,
        locations: Locations,
        control_namespace: str,
        name: str,
        sink: events.Events,
    ) -> None:
        self.current: Credentials | None = None
        self._locations = locations
        self._control_namespace = control_namespace
        self._name = name
        self._sink = sink
        self._in_use = b""
        self._seen = b""
        self._reported = ""

    def start(self, now: dt.datetime) -> Credentials:
        """Load for the first time; raises `CredentialsError`."""
        files = read(self._locations)
        self.current = load(files, now, self._name)
        self._in_use = files.digest
        self._say_loaded(self.current, now)
        return self.current

    def poll(self, now: dt.datetime) -> bool:
        """Look at the files; True when new credentials are in use from now on.

        Contents that can't be used are reported once, and tried again at each poll:
        a certificate may become valid without a change of the file.
        """
        found = self._read()
        digest = found.digest if isinstance(found, Files) else str(found).encode()
        if digest == self._in_use:
            self._reported = ""
        settled = digest == self._seen
        self._seen = digest
        if not settled or digest == self._in_use:
            return False
        try:
            if not isinstance(found, Files):
                raise found
            self._replace(found, now)
        except CredentialsError as error:
            self._report(str(error))
            return False
        return True

    def _read(self) -> Files | CredentialsError:
        try:
            return read(self._locations)
        except CredentialsError as error:
            return error

    def _replace(self, files: Files, now: dt.datetime) -> None:
        self.current = load(files, now, self._name)
        self._in_use, self._reported = files.digest, ""
        self._say_loaded(self.current, now)
        event = events.updated(self._control_namespace)
        _log.info(event.message)
        self._sink.send(event)

    def _report(self, why: str) -> None:
        # Times differ from poll to poll; what is wrong does not.
        kind = why.partition(" - Current Time")[0]
        if kind == self._reported:
            return
        self._reported = kind
        event = events.skipped(self._control_namespace, why)
        _log.warning(event.message)
        self._sink.send(event)

    def _say_loaded(self, credentials: Credentials, now: dt.datetime) -> None:
        end = credentials.authority.certificate.not_valid_after_utc
        left = int((end - now).total_seconds())
        _log.info(
            "Issuer cert loaded: invalid_after=%s process_clock_time=%s ttl_seconds=%d",
            end.isoformat(),
            now.isoformat(),
            left,
        )
