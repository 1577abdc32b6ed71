"""network-validator's walls: what is pure, and what starts it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import proxyinit.validator

PACKAGE = Path(proxyinit.validator.__file__).parent
PURE = ("addresses", "duration", "settings", "outcome", "findings", "neighbours")
EFFECTS = {
    *("os", "subprocess", "socket", "click", "time", "logging", "select", "signal"),
    *("pathlib", "shutil", "io", "fcntl", "random", "threading", "ctypes", "_signal"),
}
STATELESS = {"AF_INET", "AF_INET6", "inet_ntop", "inet_pton"}
"""All that pure modules may take of `_socket`."""


def imported(module: str) -> set[str]:
    """Names of every module that a module imports, and what it takes of them."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((PACKAGE / f"{module}.py").read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_touches_nothing(module: str) -> None:
    """It imports no door to the machine, not even within a function."""
    names = imported(module)
    assert {name.partition(".")[0] for name in names} & EFFECTS == set()
    taken = {name.partition(".")[2] for name in names if name.startswith("_socket")}
    assert taken <= STATELESS


def test_the_launcher_imports_the_entry_alone() -> None:
    """The installed program must not bring a wrapper's imports back in."""
    assert imported("launcher") == {"os", "sys", "proxyinit.validator.entry.main"}
