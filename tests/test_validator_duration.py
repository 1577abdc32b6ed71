"""Spans of time as upstream's flags spell them, read and shown."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxyinit.validator.duration import MAX_MS, UNITS_MS, Duration, parse_duration

PROPERTY = settings(deadline=None, max_examples=300)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("0ms", 0),
        ("0d", 0),
        ("500ms", 500),
        ("10s", 10_000),
        ("120s", 120_000),
        ("2m", 120_000),
        ("2h", 7_200_000),
        ("2d", 172_800_000),
        (" 10s\t", 10_000),
        ("+10s", 10_000),
        ("010s", 10_000),
        (f"{MAX_MS}ms", MAX_MS),
    ],
)
def test_duration(text: str, ms: int) -> None:
    """Everything that upstream takes, with the same meaning."""
    assert parse_duration(text) == Duration(ms)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "s", "foobars", "ten s", "-1s", "+", "+s", "1.5s", "1e3ms", "1_0s"),
        *("10 s", "1m30s", "٣s", "²s", "10sec", "10S", "10us", "120", "+5", "--5s"),
        *("18446744073709551615s", f"{MAX_MS + 1}ms", "9" * 5000 + "ms"),
    ],
)
def test_no_duration(text: str) -> None:
    """What upstream refuses is refused."""
    with pytest.raises(ValueError, match=r"^expected "):
        parse_duration(text)


@PROPERTY
@given(st.integers(0, 10**21), st.sampled_from(sorted(UNITS_MS)))
@example(MAX_MS, "ms")
@example(MAX_MS // 1000 + 1, "s")
def test_durations_are_products(number: int, unit: str) -> None:
    """A number times its unit, up to upstream's 64 bits, never wrapped around."""
    ms = number * UNITS_MS[unit]
    if ms <= MAX_MS:
        assert parse_duration(f"{number}{unit}").ms == ms
    else:
        with pytest.raises(ValueError, match=f"expected at most {MAX_MS}ms"):
            parse_duration(f"{number}{unit}")


@PROPERTY
@given(st.text(max_size=12) | st.from_regex(r"[+0-9a-z \u0660]{0,12}", fullmatch=True))
def test_any_text_is_a_duration_or_a_mistake(text: str) -> None:
    """Nothing else is ever raised."""
    try:
        found = parse_duration(text)
    except ValueError:
        return
    assert 0 <= found.ms <= MAX_MS


@PROPERTY
@given(st.integers(0, MAX_MS // 1000))
def test_whole_seconds_are_shown_as_they_are_typed(seconds: int) -> None:
    """What the last error line shows can be used again."""
    shown = str(Duration(seconds * 1000))
    assert shown == (f"{seconds}s" if seconds else "0ns")
    if seconds:
        assert parse_duration(shown) == Duration(seconds * 1000)


@pytest.mark.parametrize(
    ("ms", "shown"), [(1, "1ms"), (999, "999ms"), (1500, "1.5s"), (60_001, "60.001s")]
)
def test_parts_of_a_second_are_shown(ms: int, shown: str) -> None:
    """As Rust's Debug form of a Duration."""
    assert str(Duration(ms)) == shown
