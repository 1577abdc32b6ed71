"""Lines of network-validator's log: the form that Rust's tracing gives them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit.validator.tracing import LEVELS, Log, Span, debug_text, line

NOW_NS = 1_717_675_322_055_672_999
CONNECTION = Span("serve"), Span("conn", "client.addr", "10.0.0.1:5")


def written(level: str, form: str = "plain") -> list[str]:
    """What a log of that level writes of one line at each level."""
    lines: list[str] = []
    log = Log(level, form, write=lines.append, clock=lambda: NOW_NS)
    log.error("No", timeout="10s")
    log.warn("Hm")
    log.info("Validated")
    log.debug("Accepted", *CONNECTION)
    log.debug("", data=debug_text("a\n"), size=2)
    return lines


def test_plain_lines() -> None:
    """Microseconds, the level to the right, spans before the origin."""
    assert "".join(written("debug")) == (
        "2024-06-06T12:02:02.055672Z ERROR linkerd_network_validator: No timeout=10s\n"
        "2024-06-06T12:02:02.055672Z  WARN linkerd_network_validator: Hm\n"
        "2024-06-06T12:02:02.055672Z  INFO linkerd_network_validator: Validated\n"
        "2024-06-06T12:02:02.055672Z DEBUG serve:conn{client.addr=10.0.0.1:5}: "
        "linkerd_network_validator: Accepted\n"
        '2024-06-06T12:02:02.055672Z DEBUG linkerd_network_validator: data="a\\n" '
        "size=2\n"
    )


def test_json_lines() -> None:
    """Keys in upstream's order; numbers stay numbers."""
    error, _, _, accepted, data = written("debug", "json")
    assert error == (
        '{"timestamp":"2024-06-06T12:02:02.055672Z","level":"ERROR",'
        '"fields":{"message":"No","timeout":"10s"},'
        '"target":"linkerd_network_validator"}\n'
    )
    assert json.loads(accepted)["spans"] == [
        {"name": "serve"},
        {"client.addr": "10.0.0.1:5", "name": "conn"},
    ]
    assert json.loads(data)["fields"] == {"data": '"a\\n"', "size": 2}


@pytest.mark.parametrize(
    ("level", "count"),
    list(zip(LEVELS, (1, 1, 2, 3, 5, 5), strict=True)),
)
def test_levels(level: str, count: int) -> None:
    """Lines at a level and above; an error is written even when nothing is asked."""
    assert len(written(level)) == count


@settings(deadline=None)
@given(st.text(), st.text())
def test_a_line_is_one_line(message: str, value: str) -> None:
    """Whatever a stranger said, it can't look like another line, nor break JSON."""
    for form in ("plain", "json"):
        text = line("info", message, {"x": value}, (), now_ns=NOW_NS, form=form)
        assert text.endswith("\n")
        assert text.count("\n") == 1
        assert "\r" not in text
    fields = json.loads(text)["fields"]
    assert fields == ({"message": message} if message else {}) | {"x": value}


@settings(deadline=None)
@given(st.text())
def test_quoted_text_is_printable_as_far_as_it_is_ascii(text: str) -> None:
    """No control character is left, and no quote that would end it early."""
    quoted = debug_text(text)
    assert all(ord(char) >= 32 and ord(char) != 127 for char in quoted)
    inner = quoted[1:-1].replace("\\\\", "").replace('\\"', "")
    assert '"' not in inner
