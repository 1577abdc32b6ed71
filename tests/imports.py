"""What a module imports, read from its source, and which of that is an effect."""

from __future__ import annotations

import ast
from pathlib import Path

import proxyinit

ROOT = Path(proxyinit.__file__).parents[1]
EFFECTS = {
    *("os", "subprocess", "socket", "grpc", "click", "time", "logging", "posix"),
    *("pathlib", "shutil", "io", "select", "fcntl", "random", "threading", "ctypes"),
    *("signal", "_signal", "pyroute2", "rich", "multiprocessing", "concurrent"),
}
"""Doors to the machine: no module that is pure has one."""


def source(module: str) -> Path:
    """The file of a module, by its dotted name."""
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


def imported(module: str) -> set[str]:
    """Names of all that a module imports, and takes of it, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source(module).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def effects(module: str) -> set[str]:
    """The doors to the machine that a module imports itself."""
    return {name.partition(".")[0] for name in imported(module)} & EFFECTS
