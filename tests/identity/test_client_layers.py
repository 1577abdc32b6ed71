"""What pure modules may import, and what costs a pod's start nothing."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import identity

FOLDER = Path(identity.__file__).parent
PURE = (
    *(
        "names",
        "variables",
        "der",
        "pem",
        "csr",
        "durations",
        "schedule",
        "credentials",
        "trust",
    ),
    *("config", "env", "errors", "leaf", "issuer/policy", "issuer/tokens"),
)
EFFECTS = {
    *("os", "subprocess", "socket", "grpc", "click", "time", "logging", "asyncio"),
    *("ssl", "signal", "pathlib", "random", "secrets", "threading"),
}


def imported(module: str) -> set[str]:
    """The modules that a module imports, by their full names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((FOLDER / f"{module}.py").read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_touch_nothing(module: str) -> None:
    """No clock, no chance, no file, no network: all that is an argument."""
    tops = {name.partition(".")[0] for name in imported(module)}
    assert not tops & EFFECTS


EFFECT_MODULES = {
    *("anchors", "commands"),
    *("store", "token", "resolve", "transport", "relay", "client", "agent", "hooks"),
    *(
        "health",
        "directory",
        "clock",
        "bootstrap",
        "keys",
        "cli",
        "client_cli",
        "show",
        "show_cli",
    ),
}


@pytest.mark.parametrize("module", sorted(PURE))
def test_imports_point_one_way(module: str) -> None:
    """Values know nothing of those who use them."""
    assert not imported(module) & {f"identity.{name}" for name in EFFECT_MODULES}
