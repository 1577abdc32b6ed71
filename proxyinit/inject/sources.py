"""Where manifests come from: standard input, files, folders with all that is in them.

Opened one after the other and read line by line: a stream may be longer than memory.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO
from urllib.parse import urlsplit

from proxyinit.inject.errors import InjectError
from proxyinit.inject.stream import LARGEST, Document, documents

STDIN = "-"


class Unreadable(InjectError):
    """A file can't be read."""


def is_url(path: str) -> bool:
    """Whether a path means something on another machine."""
    found = urlsplit(path)
    return bool(found.scheme and found.netloc)


def files(path: str, tell: Callable[[Unreadable], None]) -> Iterator[str]:
    """A file, or the files below a folder in the order of their names.

    Links to folders are not followed. Folders that can't be read are told.
    """
    if path == STDIN or not os.path.isdir(path):  # noqa: PTH112  (names stay as typed)
        yield path
        return
    try:
        with os.scandir(path) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        tell(_unreadable(path, error))
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from files(entry.path, tell)
        elif not entry.is_dir():
            yield entry.path


def read(path: str, *, only_files: bool = False) -> Iterator[Document]:
    """The documents of one file, or of standard input for `STDIN`.

    `only_files` refuses pipes and devices, which could keep a run waiting for ever.
    Raises `Unreadable` and `BadYaml`.
    """
    try:
        if path == STDIN and sys.stdin is None:
            raise Unreadable("standard input is closed: expected a manifest")
        if path == STDIN:
            yield from documents(_lines(sys.stdin.buffer))
            return
        if only_files and not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116
            raise Unreadable(f"{path}: expected a file, got a pipe or a device")
        with open(path, "rb") as stream:  # noqa: PTH123  (as it was typed)
            yield from documents(_lines(stream))
    except OSError as error:
        raise _unreadable(path, error) from error


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines with their breaks; none is longer than the largest document."""
    while line := stream.readline(LARGEST + 1):
        yield line


def _unreadable(path: str, error: OSError) -> Unreadable:
    return Unreadable(f"{path}: can't be read: {error.strerror}")
