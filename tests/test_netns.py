"""Which network namespace is the node's own."""

from __future__ import annotations

import os

import pytest

from proxyinit.netns import leads_to_node

BOOTED = 0xEFFFFFF9
MADE = 0xF0000042


def file(inode: int, device: int = 4) -> os.stat_result:
    """What stat says of a namespace's file."""
    return os.stat_result((0, inode, device, 1, 0, 0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("there", "first", "node"),
    [
        pytest.param(file(MADE), file(MADE), True, id="process 1 lives there"),
        pytest.param(file(MADE), file(MADE + 1), False, id="process 1 lives elsewhere"),
        pytest.param(file(MADE), file(MADE, 5), False, id="a like number elsewhere"),
        pytest.param(
            file(BOOTED), None, True, id="process 1 is hidden, booted with it"
        ),
        pytest.param(file(BOOTED), file(MADE), True, id="process 1 is a container's"),
        pytest.param(file(MADE), None, False, id="process 1 is hidden, made later"),
    ],
)
def test_the_nodes_own(
    there: os.stat_result, first: os.stat_result | None, *, node: bool
) -> None:
    """The kernel's number tells it also where process 1 may not be looked at."""
    assert leads_to_node(there, first) is node
