"""Users and groups by two counts: a pod's own, and the reader's. Pure."""

from __future__ import annotations

from dataclasses import dataclass

NOBODY = 65534
"""What the kernel shows of an id that a user namespace does not have."""


@dataclass(frozen=True, slots=True)
class Ids:
    """Which ids of the reader a user namespace calls by which of its own.

    `ranges` are those of /proc/PID/uid_map: (first inside, first outside, how many).
    """

    ranges: tuple[tuple[int, int, int], ...] = ((0, 0, 2**32 - 1),)

    def inside(self, outside: int) -> int:
        """The pod's name for an id of the reader's; NOBODY where it has none."""
        for low, first, count in self.ranges:
            if first <= outside < first + count:
                return low + outside - first
        return NOBODY

    def outside(self, inside: int) -> int | None:
        """The reader's name for an id of the pod's; None where the pod has it not."""
        for low, first, count in self.ranges:
            if low <= inside < low + count:
                return first + inside - low
        return None


SAME = Ids()
"""Of a namespace that has the reader's users, as most have."""


def parse_ids(text: str) -> Ids:
    """The text of /proc/PID/uid_map or gid_map."""
    rows = (line.split() for line in text.splitlines())
    return Ids(tuple((int(low), int(first), int(n)) for low, first, n in rows))
