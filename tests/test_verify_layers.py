"""What judges a namespace is pure, and looking at one is no part of an install."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.imports import effects, imported, source

PURE = tuple(
    f"proxyinit.verify.{name}"
    for name in (
        "ids",
        "facts",
        "checks",
        "readback",
        "deviation",
        "sense",
        "surroundings",
    )
)


@pytest.mark.parametrize("module", PURE)
def test_what_judges_touches_nothing(module: str) -> None:
    """Neither it nor what it stands on imports a door to the machine."""
    todo, seen = [module], set()
    while todo:
        name = todo.pop()
        if name in seen or not source(name).exists():
            continue
        seen.add(name)
        assert effects(name) == set(), name
        todo += [n for n in imported(name) if n.startswith("proxyinit.")]


@pytest.mark.parametrize("module", ["proxyinit.entry", "proxyinit.cli"])
def test_an_install_loads_nothing_of_it(module: str) -> None:
    """Who does not verify does not wait for pyroute2 and rich."""
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    loaded = set(done.stdout.split())

    assert (
        loaded
        & {"pyroute2", "rich", "proxyinit.verify.verdict", "proxyinit.verify.node"}
        == set()
    )
