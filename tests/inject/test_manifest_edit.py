"""Changes written into text: what is asked for comes out, and nothing else moves."""

from __future__ import annotations

import json
import random
from textwrap import dedent
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit.inject import layout, syntax
from proxyinit.inject.alignment import aligned
from proxyinit.inject.edit import Unplaceable, edited

ODD = (
    "y",
    "no",
    "on",
    "null",
    "~",
    "",
    "0777",
    "1e3",
    "22:22",
    "2001-12-14",
    "=",
    "<<",
)
TEXTS = st.one_of(
    st.sampled_from(ODD),
    st.text(max_size=8),
    st.from_regex(r"[a-z]{1,6}(\n[a-z ]{1,4}){0,3}\n?", fullmatch=True),
)
KEYS = st.one_of(st.sampled_from(("name", "image", "y")), st.text(max_size=6))
LEAVES = st.one_of(TEXTS, st.integers(-9, 10**6), st.booleans(), st.none())
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=5)


def read(text: str) -> Any:
    """What a text means."""
    node = syntax.compose(text)
    assert node is not None
    return syntax.value(node)


def written(text: str, new: Any) -> str:
    """The text with another object in it."""
    node = syntax.compose(text)
    assert node is not None
    return edited(text, [(node, syntax.value(node), new)])


def laid_out(value: Any, style: str, chance: random.Random) -> str:
    """A value as YAML, as one program or another writes it."""
    if style == "json":
        return syntax.joined(json.dumps(value, indent=chance.choice((None, 2, 4))))
    if style == "quoted":
        dumped: str = yaml.safe_dump(
            value,
            default_style='"',
            default_flow_style=chance.choice((False, None)),
            indent=chance.choice((2, 4)),
            width=chance.choice((20, 80)),
            allow_unicode=chance.random() < 0.5,
            sort_keys=False,
        )
        return dumped.replace('!!int "', '!!int "')
    lines = layout.block(value).splitlines(keepends=True)
    if any(": |" in line for line in lines):
        return "".join(lines)  # a comment in a literal would be text
    return "".join(
        line.replace("\n", chance.choice(("\n", "  # why\n", "\n\n", "\n# next\n")))
        for line in lines
    )


def changed(value: Any, chance: random.Random) -> Any:
    """A value with something added, removed or replaced, and all else shared."""
    if isinstance(value, dict) and value:
        found = dict(value)
        key = chance.choice(list(found))
        action = chance.randrange(4)
        if action == 0:
            del found[key]
        elif action == 1:
            found[f"{key}-new"] = chance.choice(({"a": [1]}, "x\ny\n", None, ["z"]))
        else:
            found[key] = changed(found[key], chance)
        return found
    if isinstance(value, list) and value:
        items = list(value)
        at = chance.randrange(len(items))
        action = chance.randrange(4)
        if action == 0:
            del items[at]
        elif action == 1:
            items.insert(at, chance.choice(({"name": "new", "n": [0]}, "new", 7)))
        elif action == 2:
            items.append({"name": "last"})
        else:
            items[at] = changed(items[at], chance)
        return items
    return chance.choice(("word", 7, True, None, {"k": {"v": 1}}, ["i", {"j": "k"}]))


@pytest.mark.parametrize("style", ["json", "quoted", "ours"])
@settings(max_examples=40, deadline=None)
@given(value=OBJECTS, seed=st.integers(0, 2**32))
def test_what_was_asked_for_is_read_back(style: str, value: Any, seed: int) -> None:
    """Any change in any layout gives the new value, or is refused as unplaceable."""
    chance = random.Random(seed)  # noqa: S311  (no secret)
    text = laid_out(value, style, chance)
    new = value
    for _ in range(chance.randrange(1, 4)):
        new = changed(new, chance)
    if not isinstance(new, dict):
        return

    try:
        after = written(text, new)
    except Unplaceable:
        return

    assert read(after) == new


@settings(max_examples=40, deadline=None)
@given(value=OBJECTS)
def test_a_layout_is_read_back(value: Any) -> None:
    """What is laid out anew means the same, to this reader and to PyYAML's."""
    text = layout.block(value)

    assert read(text) == value
    assert yaml.safe_load(text) == value


@settings(max_examples=40, deadline=None)
@given(value=VALUES)
def test_json_in_yaml_is_read_back(value: Any) -> None:
    """Flow style is JSON that YAML reads, odd characters and all."""
    assert read(f"a: {layout.flow(value)}\n") == {"a": value}


CASES = (
    pytest.param(
        "a: 1  # one\nb:\n- x   # first\n# second\n- z\n",
        {"a": 1, "b": ["x", "m", "z"]},
        "a: 1  # one\nb:\n- x   # first\n- m\n# second\n- z\n",
        id="an item goes in after its neighbour, comments stay with what they are on",
    ),
    pytest.param(
        "b:\n# first\n- x\nc: 1\n",
        {"b": ["m", "x"], "c": 1},
        "b:\n- m\n# first\n- x\nc: 1\n",
        id="a new first item goes above the comment of the old one",
    ),
    pytest.param(
        "spec:\n  volumes: []  # none\n  z: 1\n",
        {"spec": {"volumes": [{"name": "v"}], "z": 1}},
        "spec:\n  volumes:  # none\n  - name: v\n  z: 1\n",
        id="an empty list becomes one with items, its comment stays",
    ),
    pytest.param(
        "spec:\n  a:\n    b: 1\n\n# end\n",
        {"spec": {"a": {"b": 1}, "c": "d"}},
        "spec:\n  a:\n    b: 1\n  c: d\n\n# end\n",
        id="a key is appended where its map ends, before blank lines",
    ),
    pytest.param(
        "a: |\n  text\n  more\nb: 1\n",
        {"a": "other\nlines\n", "b": 1},
        "a: |\n  other\n  lines\nb: 1\n",
        id="a literal is replaced by a literal",
    ),
    pytest.param(
        "a:\n  b: |+\n    text\n\n",
        {"a": {"b": "text\n\n", "c": 1}},
        "a:\n  b: |+\n    text\n\n  c: 1\n",
        id="blank lines that belong to a literal stay with it",
    ),
    pytest.param(
        "a: b\r\nc:\r\n- d\r\n",
        {"a": "b", "c": ["d", {"e": 1, "f": 2}]},
        "a: b\r\nc:\r\n- d\r\n- e: 1\r\n  f: 2\r\n",
        id="new lines end as the old ones do: CRLF",
    ),
    pytest.param(
        "a:\n  - b: 1\n    c: 2",
        {"a": [{"b": 1, "c": 2}], "d": [{"e": ["f"]}]},
        "a:\n  - b: 1\n    c: 2\nd:\n  - e:\n      - f\n",
        id="dashes are indented as the text does it",
    ),
    pytest.param(
        '{"a": {"b": 1}, "c": [1, 2, 3]}',
        {"a": {"b": 1, "d": "e"}, "c": [2]},
        '{"a": {"b": 1, "d": "e"}, "c": [2]}\n',
        id="JSON on one line stays on one line",
    ),
    pytest.param(
        '{\n  "a": {\n    "b": 1\n  }\n}',
        {"a": {"b": 1, "d": {"e": 1}}},
        '{\n  "a": {\n    "b": 1,\n    "d": {\n      "e": 1\n    }\n  }\n}\n',
        id="JSON over several lines goes on so",
    ),
    pytest.param(
        "a: {b: 1, c: 2, d: 3}\n",
        {"a": {"b": 1}},
        "a: {b: 1}\n",
        id="the last keys of a flow map go with their commas",
    ),
    pytest.param(
        "a:\n  b: 1\nc: 2\n", {"a": {}, "c": 2}, "a: {}\nc: 2\n", id="a map is emptied"
    ),
    pytest.param(
        "l: {a: 1_000, b: 0o17, c: 1.50}\n",
        {"l": {"a": 1000, "b": 15, "c": 1.5, "d": 1}},
        'l: {a: 1_000, b: 0o17, c: 1.50, "d": 1}\n',
        id="numbers stay as they were typed",
    ),
    pytest.param(
        "a: 'it''s'\nb: >\n  folded\n  text\n\nc: \"\\u263a\"\n",
        {"a": "it's", "b": "folded text\n", "c": "☺", "d": "é😀"},
        "a: 'it''s'\nb: >\n  folded\n  text\n\nc: \"\\u263a\"\nd: \"é😀\"\n",
        id="quotes and folds of the author stay",
    ),
)


@pytest.mark.parametrize(("text", "new", "after"), CASES)
def test_only_what_differs_is_written(text: str, new: Any, after: str) -> None:
    """The whole text afterwards, byte by byte."""
    assert written(text, new) == after
    assert read(after) == new


@pytest.mark.parametrize(
    ("text", "new"),
    [
        pytest.param("- a: 1\n  b: 2\n", [{"b": 2}], id="a key behind a dash"),
        pytest.param("a: &x\n  b: 1\n", {"a": {}}, id="an anchor behind a key"),
        pytest.param("{a, b: 1}\n", {"a": 1, "b": 1}, id="a key without a value"),
        pytest.param("a: [b: 1]\n", {"a": [{"b": 2, "c": 1}]}, id="a bare pair"),
    ],
)
def test_where_there_is_no_room_it_is_said(text: str, new: Any) -> None:
    """Nothing is written that would mean something else."""
    with pytest.raises(Unplaceable):
        written(text, new)


def test_containers_keep_their_lines_when_one_is_put_before_them() -> None:
    """An item that is moved by an insertion is not rewritten."""
    text = dedent("""\
        containers:
        - name: a  # of mine
          image: x
        - {name: b}
        """)
    new = [{"name": "p"}, *read(text)["containers"]]

    after = written(text, {"containers": new})

    assert after == text.replace("containers:\n", "containers:\n- name: p\n")


@settings(max_examples=60, deadline=None)
@given(
    old=st.lists(st.sampled_from("abcde"), max_size=6),
    new=st.lists(st.sampled_from("abcde"), max_size=6),
)
def test_an_alignment_makes_one_list_of_the_other(
    old: list[str], new: list[str]
) -> None:
    """Followed step by step, it turns the old list into the new one."""
    made: list[str] = []
    done = 0
    for at, before, after in aligned(old, new):
        made += old[done:at]
        done = at + len(before)
        made += after
    made += old[done:]

    assert made == new
