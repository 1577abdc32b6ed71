"""When to renew: upstream's arithmetic, jitter, retries, and clocks that jump."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identity import durations
from identity.schedule import Appointment, Backoff, RefreshPolicy

NOW = datetime(2026, 3, 29, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
POLICY = RefreshPolicy()

chances = st.floats(0, 1, exclude_max=True)
spans = st.timedeltas(timedelta(), timedelta(days=4000))


@pytest.mark.parametrize(
    ("left", "wait"),
    [
        pytest.param(None, 10 * SECOND, id="nothing accepted yet"),
        pytest.param(-SECOND, 10 * SECOND, id="expired"),
        pytest.param(timedelta(), 10 * SECOND, id="expires now"),
        pytest.param(10 * SECOND, 10 * SECOND, id="below the shortest"),
        pytest.param(24 * HOUR + 20 * SECOND, 60494 * SECOND, id="a day, 70 %"),
        pytest.param(40 * HOUR, 24 * HOUR, id="above the longest"),
    ],
)
def test_waits_as_upstream(left: timedelta | None, wait: timedelta) -> None:
    """The vectors of the proxy's own rule."""
    expiry = None if left is None else NOW + left
    assert POLICY.wait(expiry, NOW) == wait
    assert POLICY.early_wait(expiry, NOW, 0.0) == wait


def test_the_shortest_bound_counts_first() -> None:
    """Bounds the wrong way round are taken as upstream takes them."""
    odd = RefreshPolicy(shortest=HOUR, longest=SECOND)
    assert odd.wait(NOW + SECOND, NOW) == HOUR
    assert odd.wait(NOW + 10 * HOUR, NOW) == SECOND


@given(spans, chances)
def test_jitter_is_early_only_and_small(left: timedelta, chance: float) -> None:
    """At most 5 % early, never late, never below the shortest bound."""
    wait = POLICY.wait(NOW + left, NOW)
    early = POLICY.early_wait(NOW + left, NOW, chance)
    assert max(wait * 0.95, POLICY.shortest) <= early <= wait


@given(st.integers(1, 10**6), chances)
def test_retries_stay_within_their_bounds(failures: int, chance: float) -> None:
    """From 1 s to 60 s, at most a quarter early, for ever."""
    wait = Backoff().wait(failures, chance)
    latest = min(2.0 ** min(failures - 1, 10), 60) * SECOND
    assert max(latest * 0.75, SECOND) <= wait + timedelta(microseconds=1)
    assert wait <= latest


def test_retries_double() -> None:
    """Without chance the waits are the well-known series."""
    waits = [Backoff().wait(failures, 0) / SECOND for failures in range(1, 10)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_retries_with_odd_bounds() -> None:
    """No shortest wait means none at all; a large spread never goes below."""
    assert Backoff(shortest=timedelta()).wait(5, 0.5) == timedelta()
    assert Backoff(spread=100.0).wait(3, 0.99) >= SECOND


# === appointments ===


def test_time_passes_on_both_clocks() -> None:
    """Normally both clocks agree."""
    appointment = Appointment.after(HOUR, NOW, 1000.0)
    assert appointment.left(NOW, 1000.0) == HOUR
    assert appointment.left(NOW + HOUR / 2, 2800.0) == HOUR / 2
    assert appointment.left(NOW + HOUR, 4600.0) == timedelta()


@pytest.mark.parametrize(
    ("wall", "steady", "left"),
    [
        pytest.param(3 * HOUR, 5.0, -2 * HOUR, id="slept for three hours"),
        pytest.param(2 * HOUR, 1.0, -HOUR, id="clock set forward"),
        pytest.param(-24 * HOUR, 600.0, 50 * HOUR / 60, id="clock set back a day"),
        pytest.param(-24 * HOUR, 3600.0, timedelta(), id="set back, and it is time"),
    ],
)
def test_one_clock_jumps(wall: timedelta, steady: float, left: timedelta) -> None:
    """The clock that says sooner is believed."""
    appointment = Appointment.after(HOUR, NOW, 1000.0)
    assert appointment.left(NOW + wall, 1000.0 + steady) == left


# === durations ===


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        pytest.param("10s", 10 * SECOND, id="seconds"),
        pytest.param("24h", 24 * HOUR, id="hours"),
        pytest.param("1d", 24 * HOUR, id="days"),
        pytest.param("5m", 300 * SECOND, id="minutes"),
        pytest.param("1000ms", SECOND, id="milliseconds"),
        pytest.param(" 1s\t", SECOND, id="blanks around"),
        pytest.param("0", timedelta(), id="bare zero"),
        pytest.param("007s", 7 * SECOND, id="leading zeros"),
    ],
)
def test_durations_as_the_proxy_reads_them(text: str, duration: timedelta) -> None:
    """Digits and one unit."""
    assert durations.parse(text) == duration


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "s",
        "10",
        "1.5h",
        "1h30m",
        "1 s",
        "-1s",
        "+1s",
        "1S",
        "1us",
        "\u0661s",
        "1s s",
        "9" * 5000 + "s",
        "9999999999d",
    ],
    ids=range(15),
)
def test_durations_refused(text: str) -> None:
    """Everything else is told what is expected."""
    with pytest.raises(ValueError, match=r"^expected "):
        durations.parse(text)


@given(st.integers(0, 10**12))
def test_durations_are_read_back(milliseconds: int) -> None:
    """What is rendered is parsed to the same duration."""
    duration = timedelta(milliseconds=milliseconds)
    assert durations.parse(durations.render(duration)) == duration
    with pytest.raises(ValueError, match=r"whole number"):
        durations.render(duration + timedelta(microseconds=1))
