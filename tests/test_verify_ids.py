"""Users of a pod that has a user namespace of its own, and the node's for them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxyinit.verify.ids import NOBODY, SAME, parse_ids

POD = parse_ids("         0     100000      65536\n     70000          7          1\n")


def test_a_map_is_read_as_the_kernel_prints_it() -> None:
    """Three columns a line: inside, outside, how many."""
    assert POD.ranges == ((0, 100_000, 65_536), (70_000, 7, 1))


def test_both_ways() -> None:
    """The ends of a range belong to it; what stands in none has no name there."""
    inside = [POD.inside(i) for i in (99_999, 100_000, 165_535, 165_536, 7)]
    outside = [POD.outside(i) for i in (0, 2102, 65_535, 65_536, 70_000)]

    assert inside == [NOBODY, 0, 65_535, NOBODY, 70_000]
    assert outside == [100_000, 102_102, 165_535, None, 7]


@given(st.integers(0, 2**32 - 2))
def test_where_there_is_no_other_namespace_ids_are_what_they_are(number: int) -> None:
    """Most pods share the node's users."""
    assert (SAME.inside(number), SAME.outside(number)) == (number, number)
