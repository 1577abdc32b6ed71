"""Streams cut into documents, and put together again without losing a byte."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit.inject import stream
from proxyinit.inject.stream import Document, documents
from proxyinit.inject.syntax import BadYaml


def cut(text: str | bytes) -> list[Document]:
    """The documents of a stream."""
    data = text.encode() if isinstance(text, str) else text
    return list(documents(io.BytesIO(data)))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("", [], id="nothing"),
        pytest.param("a: 1", ["a: 1"], id="no line break at the end"),
        pytest.param("a\n---\nb\n", ["a\n", "b\n"], id="two"),
        pytest.param("---\na\n---\n", ["---\na\n"], id="separators around one"),
        pytest.param("a\n---\n---\n", ["a\n", "---\n"], id="an empty one at the end"),
        pytest.param("---\n---\na\n", ["---\n", "a\n"], id="an empty one before"),
        pytest.param("a\n---   \nb\n", ["a\n", "b\n"], id="blanks behind"),
        pytest.param("a\n---\r\nb\r\n", ["a\n", "b\r\n"], id="CRLF"),
        pytest.param("a\n--- # c\nb\n", ["a\n", "b\n"], id="a comment behind"),
        pytest.param("# c\n---\nb\n", ["# c\n", "b\n"], id="a comment alone"),
        pytest.param("a: |\n  ---\nb\n", ["a: |\n  ---\nb\n"], id="indented"),
        pytest.param("a--- \n", ["a--- \n"], id="not at the start of a line"),
        pytest.param(
            "# c\n%YAML 1.1\n---\na\n", ["# c\n%YAML 1.1\n---\na\n"], id="a directive"
        ),
        pytest.param("\ufeffa\n---\nb\n", ["a\n", "b\n"], id="a BOM before all"),
    ],
)
def test_a_stream_is_cut(text: str, found: list[str]) -> None:
    """Documents as Kubernetes' reader finds them."""
    assert [document.text for document in cut(text)] == found


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(("---\n", "--- # c\n", "a: 1\n", "\n", "  - b\r\n", "é: 😀\n")),
        max_size=12,
    )
)
def test_a_stream_is_put_together_again(lines: list[str]) -> None:
    """Texts and separators give the stream, closed by a separator."""
    text = "".join(lines)
    found = cut(text)

    again = "".join(document.text + document.separator for document in found)

    assert again in (text, text + stream.SEPARATOR)
    assert all(
        text.split("\n")[d.line - 1] == d.text.split("\n")[0].rstrip("\n")
        for d in found
    )


@pytest.mark.parametrize(
    ("data", "line", "told"),
    [
        pytest.param(b"a: 1\nb: \xff\n", 1, "UTF-8 text, got byte 0xff", id="Latin"),
        pytest.param(b"\xff\xfea\x00\n\x00", 0, "got UTF-16", id="UTF-16"),
        pytest.param(b"\x7fELF\x02\x80\n", 0, "got byte 0x80", id="a program"),
        pytest.param(b"a\n---\nb\n--- c: d\n", 3, "nothing but a comment", id="behind"),
    ],
)
def test_what_is_no_stream(data: bytes, line: int, told: str) -> None:
    """It is said in which line."""
    with pytest.raises(BadYaml, match=told) as refused:
        cut(data)

    assert refused.value.line == line


def test_a_document_has_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is too large is refused before it is in memory."""
    monkeypatch.setattr(stream, "LARGEST", 1000)

    assert len(cut("a: 1\n---\n" * 500)) == 500
    with pytest.raises(BadYaml, match="a document larger than"):
        cut("a: 1\n" * 500)
