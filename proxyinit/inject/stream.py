"""A stream of documents, cut as Kubernetes' own reader cuts it.

A line that starts with ``---``, followed by nothing but blanks or a comment, ends a
document; one that ends nothing belongs to the document that follows. Both keep their
bytes, so a stream that nobody changed is put together again as it was. Objects in JSON
may follow one another with nothing between, as ``-o json`` prints them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from proxyinit.inject.syntax import BadYaml

SEPARATOR = "---\n"
LARGEST = 64 << 20
"""Bytes of one document; etcd takes objects of 1.5 MiB, Lists hold many."""

_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Document:
    """A document's text, the line it starts at from 1, and the line that ended it.

    `separator` is ``---`` where the stream ended without one.
    """

    text: str
    line: int
    separator: str = SEPARATOR


def documents(lines: Iterable[bytes]) -> Iterator[Document]:
    """Cut a stream of lines. Raises `BadYaml`, with a line of the stream."""
    held: list[bytes] = []
    size = start = number = 0
    for number, given in enumerate(lines):
        line = _first(given) if number == 0 else given
        size += len(line)
        if size > LARGEST:
            raise BadYaml(f"a document larger than {LARGEST >> 20} MiB", start)
        if line.startswith(b"{") and held and _ends_json(held):
            yield Document(_text(held, start), start + 1)
            held, size = [], len(line)
        if not held:
            start = number
        ends = line.startswith(b"---") and held and not _are_directives(held)
        if ends and _separates(line, number):
            yield Document(_text(held, start), start + 1, _text([line], number))
            held, size = [], 0
        else:
            held.append(line)
    if held:
        yield Document(_text(held, start), start + 1)


def _first(line: bytes) -> bytes:
    """The first line without a mark of its encoding, which has to be UTF-8."""
    if line.startswith(_UTF16):
        raise BadYaml("expected UTF-8 text, got UTF-16: iconv -f UTF-16 -t UTF-8 FILE")
    return line.removeprefix(_BOM)


def _ends_json(held: list[bytes]) -> bool:
    """Whether an object in braces is over: behind a brace nothing may begin in it."""
    first = next((line for line in held if _says(line)), b"")
    last = next((line for line in reversed(held) if _says(line)), b"")
    return first.startswith(b"{") and last.rstrip().endswith(b"}")


def _says(line: bytes) -> bool:
    return bool(line.strip()) and not line.startswith((b"#", b"---"))


def _are_directives(held: list[bytes]) -> bool:
    """Whether a document has yet to begin: ``%YAML 1.1`` and its like come before."""
    said = [line for line in held if line.strip() and not line.startswith(b"#")]
    return bool(said) and all(line.startswith(b"%") for line in said)


def _separates(line: bytes, number: int) -> bool:
    rest = line[3:].strip()
    if rest and not rest.startswith(b"#"):
        said = "expected nothing but a comment behind '---', got"
        raise BadYaml(f"{said} {rest[:40].decode('utf-8', 'replace')!r}", number)
    return True


def _text(lines: list[bytes], start: int) -> str:
    """Text of lines. Raises `BadYaml` at the line that is none."""
    try:
        return b"".join(lines).decode()
    except UnicodeDecodeError:
        for at, line in enumerate(lines):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                byte = f"byte {line[error.start]:#04x}"
                raise BadYaml(f"expected UTF-8 text, got {byte}", start + at) from None
        raise
