"""Who imports what: the transform is pure, and commands are imported when called."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from proxyinit.inject import cli

PACKAGE = Path(cli.__file__).parent
PURE = (
    *("syntax", "layout", "edit", "manifest", "stream", "uninject", "report"),
    *("transform", "settings", "alignment"),
)
EFFECTS = {
    *("os", "subprocess", "socket", "grpc", "click", "time", "logging", "pathlib"),
    *("shutil", "io", "select", "random", "threading", "tempfile", "sys"),
}


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_touches_nothing(module: str) -> None:
    """It imports no door to the machine, not even within a function."""
    names = set()
    for node in ast.walk(ast.parse((PACKAGE / f"{module}.py").read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")

    assert {name.partition(".")[0] for name in names} & EFFECTS == set()


@pytest.mark.parametrize(
    ("command", "left_out"),
    [
        pytest.param("--version", {"yaml", "proxyinit.inject.transform"}, id="bare"),
        pytest.param(
            "inject", {"asyncio", "requests", "cryptography", "grpc"}, id="inject"
        ),
    ],
)
def test_what_is_not_needed_is_not_loaded(command: str, left_out: set[str]) -> None:
    """Who transforms a manifest does not wait for the server's libraries."""
    code = (
        "import sys; from proxyinit.inject.cli import main; "
        f"main([{command!r}, '--help'][:{1 if command.startswith('-') else 2}]); "
        "print('LOADED', *sys.modules)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )

    loaded = set(said.stdout.partition("LOADED")[2].split())
    assert "proxyinit.inject.cli" in loaded
    assert loaded & left_out == set()
