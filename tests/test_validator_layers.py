"""network-validator's walls: what is pure, and what starts it."""

from __future__ import annotations

import pytest

from tests.imports import effects, imported

PURE = ("addresses", "duration", "settings", "outcome", "findings", "neighbours")
STATELESS = {"AF_INET", "AF_INET6", "inet_ntop", "inet_pton"}
"""All that pure modules may take of `_socket`."""


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_touches_nothing(module: str) -> None:
    """It imports no door to the machine, not even within a function."""
    assert effects(f"proxyinit.validator.{module}") == set()
    names = imported(f"proxyinit.validator.{module}")
    taken = {name.partition(".")[2] for name in names if name.startswith("_socket.")}
    assert taken <= STATELESS


def test_the_launcher_imports_the_entry_alone() -> None:
    """The installed program must not bring a wrapper's imports back in."""
    assert imported("proxyinit.validator.launcher") == {
        "os",
        "sys",
        "proxyinit.validator.entry",
        "proxyinit.validator.entry.main",
    }
