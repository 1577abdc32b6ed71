"""The kernel in memory is held to the real one: the same cases, played here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proxyinit.lab import Namespace
from proxyinit.runner import SystemRunner
from proxyinit.testing.cases import CASES, Case, outcome
from proxyinit.testing.native_cases import NATIVE_CASES, NativeCase, native_outcome

if TYPE_CHECKING:
    from proxyinit.rules import Version
    from proxyinit.testing.table import Kind


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize(("kind", "at"), [("legacy", 0), ("nft", 1)])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_contract(
    namespace: Namespace, case: Case, kind: Kind, at: int, version: Version
) -> None:
    """What the case says, iptables does."""
    found = namespace.run(outcome, case, SystemRunner(), kind, version)

    assert (found.status, found.lines) == (case.statuses[at], case.lines)
    assert case.said[at] in found.stderr


@pytest.mark.parametrize("case", NATIVE_CASES, ids=lambda case: case.name)
def test_native_contract(namespace: Namespace, case: NativeCase) -> None:
    """What the case says, nft does."""
    found = namespace.run(native_outcome, case, SystemRunner())

    assert (found.status, found.listing) == (case.status, case.listing)
    assert case.said in found.stderr
