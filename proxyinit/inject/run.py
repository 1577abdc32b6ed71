"""One run over all sources: what was made of them waits until all went well."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, Self

import click

from proxyinit.inject import report, sources
from proxyinit.inject.errors import InjectError
from proxyinit.inject.manifest import as_json, transformed
from proxyinit.inject.report import Checks
from proxyinit.inject.stream import SEPARATOR, Document
from proxyinit.inject.syntax import BadYaml
from proxyinit.inject.transform import Transform

HELD_IN_MEMORY = 4 << 20
"""Bytes of output that wait in memory for the end of a run; more wait in a file."""


_UNRENDERED = "; templates have to be rendered first, as by helm template"


class Unwritable(InjectError):
    """The manifests are done, and have nowhere to go."""


class Run:
    """One stream from all sources: its output waits until all went well.

    A context: output and report wait in temporary files that go with it.
    """

    def __init__(self, transform: Transform, form: str) -> None:
        self._transform = transform
        self._form = form
        self.checks = Checks()
        self.errors: dict[str, None] = {}
        self._output: IO[bytes] = tempfile.SpooledTemporaryFile(HELD_IN_MEMORY)  # noqa: SIM115  (closed by __exit__)
        self._lines: IO[bytes] = tempfile.SpooledTemporaryFile(HELD_IN_MEMORY)  # noqa: SIM115  (the same)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._output.close()
        self._lines.close()

    def take(self, paths: Iterable[str]) -> None:
        """Transform all that is in files and folders."""
        for path in paths:
            for file in sources.files(path, self._fail):
                self._take_file(file, only_files=file != path)

    def _fail(self, error: object) -> None:
        """Remember what keeps the output from being written, once."""
        self.errors[str(error)] = None

    def _take_file(self, path: str, *, only_files: bool) -> None:
        shown = "standard input" if path == sources.STDIN else path
        try:
            for document in sources.read(path, only_files=only_files):
                try:
                    self._take_document(document, shown)
                except BadYaml as error:
                    line = document.line + error.line
                    told = f"{error}{_UNRENDERED if '{{' in document.text else ''}"
                    self._fail(f"{shown}:{line}: {told}")
        except BadYaml as error:
            self._fail(f"{shown}:{error.line + 1}: {error}")
        except InjectError as error:
            self._fail(error)

    def _take_document(self, document: Document, shown: str) -> None:
        result = transformed(document.text, self._transform)
        for outcome in result.outcomes:
            self.checks.see(outcome)
            self._lines.write(outcome.line.encode() + b"\n")
            if outcome.at is not None:
                self._fail(f"{shown}:{document.line + outcome.at}: {outcome.error}")
            elif outcome.error:
                self._fail(outcome.error)
        if self._form == "json":
            said = as_json(result.text)
            self._output.write(said.encode() + b"\n" if said else b"")
            return
        if not self._output.tell() and result.text.lstrip().startswith("{"):
            # kubectl takes a stream that begins with a brace for nothing but JSON,
            # and fails at the next separator.
            self._output.write(SEPARATOR.encode())
        self._output.write(result.text.encode())
        if not result.text.endswith("\n"):
            self._output.write(b"\n")
        self._output.write(document.separator.encode())

    def lines(self) -> Iterator[str]:
        """What became of each object."""
        self._lines.seek(0)
        return (line.decode().rstrip("\n") for line in self._lines)

    def finish(self, told: Iterable[str]) -> None:
        """Write output and report, or nothing but the errors; then exit.

        Raises `Unwritable`. A reader that has gone is click's to deal with.
        """
        if self.errors:
            click.echo(report.failure(self.errors), err=True, nl=False)
            sys.exit(1)
        if sys.stdout is None:
            raise Unwritable("standard output is closed: expected somewhere to write")
        try:
            self._output.seek(0)
            shutil.copyfileobj(self._output, sys.stdout.buffer)
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise Unwritable(
                f"the output can't be written: {error.strerror}"
            ) from error
        for line in told:
            click.echo(line, err=True, color=True)
