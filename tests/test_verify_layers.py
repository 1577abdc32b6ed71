"""What judges a namespace is pure, and looking at one is no part of an install."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import proxyinit

ROOT = Path(proxyinit.__file__).parents[1]
PURE = tuple(
    f"proxyinit.verify.{name}"
    for name in ("facts", "checks", "readback", "deviation", "sense", "surroundings")
)
EFFECTS = {
    *("os", "subprocess", "socket", "grpc", "click", "time", "logging", "posix"),
    *("pathlib", "shutil", "io", "select", "fcntl", "random", "threading", "ctypes"),
    *("pyroute2", "rich", "multiprocessing", "concurrent"),
}


def source(module: str) -> Path:
    """The file of a module, by its dotted name."""
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


def imported(module: str) -> set[str]:
    """Names of every module that a module of ours imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source(module).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("module", PURE)
def test_what_judges_touches_nothing(module: str) -> None:
    """Neither it nor what it stands on imports a door to the machine."""
    todo, seen = [module], set()
    while todo:
        name = todo.pop()
        if name in seen or not source(name).exists():
            continue
        seen.add(name)
        names = imported(name)
        assert {n.partition(".")[0] for n in names} & EFFECTS == set(), name
        todo += [n for n in names if n.startswith("proxyinit.")]


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
