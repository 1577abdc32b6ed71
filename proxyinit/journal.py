"""What stood in the tables before this run changed them, to be put back on failure."""

from __future__ import annotations

from proxyinit.backend import family
from proxyinit.errors import ProxyInitError
from proxyinit.reconcile import restore_script

TYPE_CHECKING = False
if TYPE_CHECKING:
    from proxyinit.backend import Backend, Tables
    from proxyinit.logs import Log
    from proxyinit.rules import Ruleset, Version


class Journal:
    """The first known state of every table that was written, in order of writing."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, Version], tuple[Backend, Ruleset]] = {}

    def note(self, backend: Backend, before: Ruleset) -> None:
        """Remember how a table was, unless an earlier state of it is known."""
        key = (backend.kind, before.version)
        self._entries.setdefault(key, (backend, before))

    def knows(self, backend: Backend, version: Version) -> bool:
        """Whether the table was written since the journal was empty."""
        return (backend.kind, version) in self._entries

    def roll_back(self, tables: Tables, log: Log) -> None:
        """Put back our part of every table that was written, the last one first.

        What can't be put back is told as an error; the journal is empty afterwards.
        """
        while self._entries:
            (_, version), (backend, before) = self._entries.popitem()
            try:
                live = tables.read(backend, [version])[version]
                script = restore_script(before, live)
                tables.feed(backend, version, script)
                log.warning(f"{family(version)}: put back what was there before")
            except ProxyInitError as error:
                log.error(
                    f"{family(version)}: can't put back what was there before: {error}"
                )
