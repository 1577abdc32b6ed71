"""Records: values with fields, equality and no way to change them."""

from __future__ import annotations

from typing import Any

import pytest

from proxyinit.record import Record


class Point(Record):
    x: int
    y: int = 0


class Place(Record):
    x: int
    y: int = 0


def test_construction() -> None:
    """By position, by name, with defaults."""
    assert Point(1, 2) == Point(x=1, y=2) == Point(1, y=2)
    assert Point(1) == Point(1, 0)
    assert (Point(1).x, Point(1).y) == (1, 0)


def test_equality_is_by_type_and_value() -> None:
    """Equal fields of another type are something else."""
    others: tuple[object, ...] = (Point(2), Place(1), (1, 0), None)

    assert Point(1) not in others
    assert len({Point(1), Point(1, 0), Place(1)}) == 2
    assert hash(Point(1)) == hash(Point(1, 0))


def test_repr() -> None:
    """As one would write it."""
    assert repr(Point(1, 2)) == "Point(x=1, y=2)"


def test_no_change() -> None:
    """Neither a field nor anything else can be set or removed."""
    point: Any = Point(1)

    with pytest.raises(AttributeError, match=r"Point\.x can't be changed"):
        point.x = 2
    with pytest.raises(AttributeError):
        point.z = 2
    with pytest.raises(AttributeError):
        del point.x
    assert point == Point(1)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        pytest.param((), {}, id="a field is missing"),
        pytest.param((), {"y": 1}, id="the field without a default is missing"),
        pytest.param((1, 2, 3), {}, id="too many values"),
        pytest.param((1,), {"z": 1}, id="an unknown name"),
        pytest.param((1,), {"x": 1}, id="a field twice"),
        pytest.param((1, 2), {"y": 1}, id="a full record and a name"),
        pytest.param((1, 2), {"z": 1}, id="a full record and an unknown name"),
    ],
)
def test_bad_construction(args: tuple[int, ...], kwargs: dict[str, int]) -> None:
    """A record without its fields, or with others, is never made."""
    make: Any = Point

    with pytest.raises(TypeError, match="Point has the fields x, y; got"):
        make(*args, **kwargs)
