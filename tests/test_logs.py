"""Log lines: logrus' two forms, one line an entry, whatever it says."""

from __future__ import annotations

import json
import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit.flags import LOG_FORMATS, LOG_LEVELS
from proxyinit.logrus import quote, write_stderr
from proxyinit.logs import Log

EPOCH = 1726703126.9  # 2024-09-18T23:45:26Z
ENTRY = re.compile(
    r'time="[^"]*" level=[a-z]+ msg="(\\.|[^"\\])*"( [a-z]+="(\\.|[^"\\])*")*'
)
anything = st.text() | st.text(st.sampled_from('\n\r\t"\\\x00\x1b\x7f\x85\u2028 a'))


def entries(level: str, form: str, text: str = "done", **fields: str) -> list[str]:
    """What a log of that level and form writes of one entry of each level."""
    written: list[str] = []
    log = Log(level, form, write=written.append, clock=lambda: EPOCH)
    for say in (log.error, log.warning, log.info, log.debug):
        say(text, **fields)
    return written


def test_plain() -> None:
    """As logrus writes where there is no terminal."""
    assert entries("debug", "plain")[2] == (
        'time="2024-09-18T23:45:26Z" level=info msg="done"\n'
    )


def test_json() -> None:
    """The same as one object, keys in order."""
    assert entries("debug", "json", stderr="x")[0] == (
        '{"level":"error","msg":"done","stderr":"x","time":"2024-09-18T23:45:26Z"}\n'
    )


def test_fields_stand_behind_the_message() -> None:
    """What a program printed is kept, on the same line."""
    assert entries("error", "plain", stderr='a\n"b"')[0].endswith(
        ' msg="done" stderr="a\\n\\"b\\""\n'
    )


@pytest.mark.parametrize(
    ("level", "written"),
    [
        *((level, ["error"]) for level in ("panic", "fatal", "error")),
        *((level, ["error", "warning"]) for level in ("warn", "warning")),
        ("info", ["error", "warning", "info"]),
        *(
            (level, ["error", "warning", "info", "debug"])
            for level in ("debug", "trace")
        ),
    ],
)
def test_level(level: str, written: list[str]) -> None:
    """Errors are written always, others down to the level, whatever its spelling."""
    lines = entries(level, "json")

    assert [json.loads(line)["level"] for line in lines] == written


def test_all_levels_have_a_case() -> None:
    """A level without one could do anything."""
    (mark,) = [m for m in test_level.pytestmark if m.name == "parametrize"]  # type: ignore[attr-defined]

    assert {level for level, _ in mark.args[1]} == set(LOG_LEVELS)


@pytest.mark.parametrize("form", LOG_FORMATS)
@settings(deadline=None)
@given(text=anything)
def test_one_entry_is_one_line(form: str, text: str) -> None:
    """No message can end its line, begin another, or move a terminal's cursor."""
    lines = entries("debug", form, text, stderr=text)
    assert len(lines) == 4
    for line in lines:
        assert line.endswith("\n")
        assert not re.search(r"[\x00-\x1f\x7f-\x9f]", line[:-1])
        if form == "json":
            found = json.loads(line)
            assert (found["msg"], found["stderr"]) == (text, text)
        else:
            assert ENTRY.fullmatch(line[:-1])


@settings(deadline=None)
@given(anything)
def test_quoting(text: str) -> None:
    """JSON reads back what was quoted."""
    assert json.loads(quote(text)) == text


def test_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    """Lines go there unbuffered; what is no text does not stop them."""
    write_stderr("a\udcff\n")

    assert capfd.readouterr().err == "a?\n"


def test_a_standard_error_that_takes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """A line that nobody takes is lost, and the work goes on."""
    kept = os.dup(2)
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        os.dup2(full, 2)
        write_stderr("lost\n")
    finally:
        os.dup2(kept, 2)
        os.close(full)
        os.close(kept)

    assert capfd.readouterr().err == ""
