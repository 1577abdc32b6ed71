"""What makes one list of another: which items stay, change, come and go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Step = tuple[int, tuple[Any, ...], tuple[Any, ...]]
"""An index, the item before, the item after; see `aligned`."""


def differ(old: Any, new: Any) -> bool:
    """Whether two values are not the same; what is shared is not looked into."""
    return old is not new and bool(old != new)


def aligned(old: list[Any], new: list[Any]) -> Iterator[Step]:
    """What makes `new` of `old`: index in `old`, the item before, the item after.

    Both are tuples of one, or empty: without a before it is inserted in front of
    the index, without an after removed. Items that stay are not told.
    """
    at = 0
    rest = list(new)
    while at < len(old) or rest:
        if at == len(old):
            yield at, (), (rest.pop(0),)
        elif not rest:
            yield at, (old[at],), ()
            at += 1
        elif not differ(old[at], rest[0]):
            at += 1
            del rest[0]
        elif any(not differ(old[at], other) for other in rest):
            yield at, (), (rest.pop(0),)
        elif any(not differ(other, rest[0]) for other in old[at:]):
            yield at, (old[at],), ()
            at += 1
        elif _namesakes(old[at], rest[0]) or len(old) - at == len(rest):
            yield at, (old[at],), (rest.pop(0),)
            at += 1
        elif len(old) - at > len(rest):
            yield at, (old[at],), ()
            at += 1
        else:
            yield at, (), (rest.pop(0),)


def _namesakes(old: Any, new: Any) -> bool:
    both = isinstance(old, dict) and isinstance(new, dict)
    return both and "name" in old and old["name"] == new.get("name")
