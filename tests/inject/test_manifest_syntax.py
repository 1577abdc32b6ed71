"""YAML as Kubernetes reads it, and what it refuses."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

from proxyinit.inject import layout, syntax
from proxyinit.inject.syntax import BadYaml


def read(text: str) -> Any:
    """What a text means."""
    node = syntax.compose(text)
    assert node is not None
    return syntax.value(node)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        *(
            (word, True)
            for word in ("y", "Y", "yes", "Yes", "on", "ON", "true", "True")
        ),
        *((word, False) for word in ("n", "N", "no", "NO", "off", "Off", "false")),
        *((word, None) for word in ("", "~", "null", "Null", "NULL")),
        *((word, word) for word in ("yEs", "tRue", "nil", "None", "=", "enabled")),
        ("12", 12),
        ("-12", -12),
        ("+12", 12),
        ("1_000", 1000),
        ("0777", 511),
        ("0o17", 15),
        ("-010", -8),
        ("0x1F", 31),
        ("0b101", 5),
        ("089", 89),
        ("1e3", 1000),
        ("1E-2", 0.01),
        ("1.50", 1.5),
        (".5", 0.5),
        ("5.", 5),
        ("18446744073709551616", 2**64),
        ("-.inf", -math.inf),
        pytest.param("9" * 5000, "9" * 5000, id="more digits than int takes"),
        ("-1e999", "-1e999"),
        *((word, word) for word in ("1e", "1.2.3", "0x", "08x", "-x", "+", ".", "1:2")),
        *((word, word) for word in ("22:22", "100m", "1Gi", "4567,4568", "v1")),
        *((word, word) for word in ("2001-12-14", "2001-12-14T21:59:43Z", "1-2")),
    ],
)
def test_a_word_without_quotes(text: str, meant: Any) -> None:
    """It means what kubectl's reader takes it for: no dates, no base 60."""
    assert read(f"a: {text}\n") == {"a": meant}
    assert type(read(f"a: {text}\n")["a"]) is type(meant)


@pytest.mark.parametrize("text", ["yes", "0777", "1e3", "~", "2001-12-14", "y", "null"])
def test_quotes_make_text_of_anything(text: str) -> None:
    """Whatever is quoted is text, and so is what is tagged so."""
    for written in (f"'{text}'", f'"{text}"', f"!!str {text}", f"|-\n  {text}\n"):
        assert read(f"a: {written}\n") == {"a": text}


@pytest.mark.parametrize(
    ("typed", "key"),
    [
        pytest.param("on", "true", id="a boolean"),
        pytest.param("010", "8", id="a number"),
        pytest.param("1.5", "1.5", id="a fraction"),
        pytest.param('"on"', "on", id="text"),
    ],
)
def test_keys_are_text(typed: str, key: str) -> None:
    """A key is what JSON will have, as sigs.k8s.io/yaml makes it."""
    assert read(f"{typed}: x\n") == {key: "x"}


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        pytest.param("a:\n\tb: c\n", 1, "a tab can't indent YAML", id="tab"),
        pytest.param("a: 1\nb: 2\na: 3\n", 2, "key 'a' stands there twice", id="twice"),
        pytest.param("on: 1\ntrue: 2\n", 1, "'true' stands there twice", id="twice so"),
        pytest.param("a: b\x00c\n", 0, "control character '\\x00'", id="NUL"),
        pytest.param("a: 1\nb: \x1b[0m\n", 1, "control character", id="escape"),
        pytest.param("a: [1, 2\nb: 3\n", 1, "did not find expected", id="open bracket"),
        pytest.param("a: 'b\n", 1, "unexpected end of stream", id="open quote"),
        pytest.param("a: *b\n", 0, "undefined alias", id="alias to nothing"),
        pytest.param("a: !foo b\n", 0, "no tag such as '!foo'", id="own tag"),
        pytest.param("a: !!int x\n", 0, "no tag such as '!!int'", id="not its tag"),
        pytest.param("a: !!binary aGk=\n", 0, "'!!binary'", id="binary tag"),
        pytest.param("a: !!set {b}\n", 0, "'!!set'", id="set"),
        pytest.param("~: a\n", 0, "expected text as a key", id="null as key"),
        pytest.param("? [a]\n: b\n", 0, "expected text as a key", id="list as key"),
        pytest.param(
            "a: b\n...\nc: d\n", 2, "the document to end", id="two after dots"
        ),
        pytest.param("a: b: c\n", 0, "mapping values are not allowed", id="colons"),
    ],
)
def test_what_is_refused(text: str, line: int, told: str) -> None:
    """It is said what is wrong, and in which line."""
    with pytest.raises(BadYaml, match=re.escape(told)) as refused:
        read(text)

    assert refused.value.line == line


@pytest.mark.parametrize("opening", ["[", "- ", "{a: ", "? "])
def test_depth_has_an_end(opening: str) -> None:
    """Deep nesting is refused, not followed until the C stack is full."""
    with pytest.raises(BadYaml, match="nested deeper than 200 levels"):
        syntax.compose(opening * 5_000)


def laughs(levels: int) -> str:
    """The billion laughs: ten of the level below on each level."""
    above = (f"l{n}: &l{n} [{f'*l{n - 1}, ' * 10}]" for n in range(1, levels + 1))
    return "\n".join(["l0: &l0 lol", *above, ""])


def test_a_billion_laughs_are_not_laughed() -> None:
    """Aliases are written out up to a limit, and refused beyond it."""
    small, large = syntax.compose(laughs(3)), syntax.compose(laughs(9))
    assert small is not None
    assert large is not None

    assert len(syntax.expanded(small)["l3"]) == 10
    with pytest.raises(BadYaml, match="aliases stand for more than 100000 nodes"):
        syntax.expanded(large)


def test_an_alias_to_itself_has_an_end() -> None:
    """A list that holds itself is refused."""
    node = syntax.compose("a: &a [*a]\n")
    assert node is not None

    assert syntax.has_aliases(node)
    with pytest.raises(BadYaml, match="aliases stand for more than"):
        syntax.expanded(node)


def test_aliases_and_merges_are_written_out() -> None:
    """What is merged gives way to what is there; scalars stay as typed."""
    text = (
        "base: &base {cpu: 0.50, mode: 0644}\n"
        "one:\n  <<: *base\n  cpu: 1\n"
        "two: *base\n"
        "three:\n  <<: [{cpu: 7}, *base]\n"
    )
    node = syntax.compose(text)
    assert node is not None

    anew = layout.block(syntax.expanded(node))

    assert anew == (
        "base:\n  cpu: 0.50\n  mode: 0644\n"
        "one:\n  cpu: 1\n  mode: 0644\n"
        "two:\n  cpu: 0.50\n  mode: 0644\n"
        "three:\n  cpu: 7\n  mode: 0644\n"
    )
    assert read(anew)["two"] == {"cpu": 0.5, "mode": 420}


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        pytest.param("1234", "1234", id="a number"),
        pytest.param("1.10", "1.10", id="a version that looks like a number"),
        pytest.param("0777", "511", id="octal, as Kubernetes reads it"),
        pytest.param("1e3", "1000", id="an exponent"),
        pytest.param("1_000", "1000", id="underscores"),
        pytest.param("1e-7", "1e-07", id="a small number as Go writes it"),
        pytest.param("on", "true", id="a switch"),
        pytest.param("No", "false", id="another switch"),
    ],
)
def test_annotations_become_text(typed: str, text: str) -> None:
    """Decimal numbers as typed, all else as its value."""
    node = syntax.compose(f"key: {typed}\nother: text\nempty:\n")
    assert node is not None

    assert syntax.texts(node) == {"key": text}


def test_json_with_characters_in_two_escapes() -> None:
    """JSON's surrogate pairs, which YAML can't read, become the characters."""
    said = json.dumps({"a": "😀", "b": "\\ud83d\\ude00", "c": "é"})

    assert read(syntax.joined(said)) == {"a": "😀", "b": "\\ud83d\\ude00", "c": "é"}
    assert syntax.joined(f"a: {said[1:-1]}") == f"a: {said[1:-1]}"


def test_long_lines_and_odd_characters() -> None:
    """A megabyte on one line, emoji, and a BOM before the text are no trouble."""
    long = "x" * (1 << 20)

    assert read(f'a: {long}\nb: "😀\\U0001F600"\n') == {"a": long, "b": "😀😀"}
    assert read("\ufeffa: b\r\nc: d\r\n") == {"a": "b", "c": "d"}
