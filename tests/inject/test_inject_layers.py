"""Who imports what: the core is pure, and nothing else knows Kubernetes objects."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from proxyinit import inject

PACKAGE = Path(inject.__file__).parent
PURE = (
    *("errors", "names", "annotations", "workload", "values", "chart_fields"),
    *("opaque", "typed", "override_table", "overrides", "decision", "containers"),
    *(
        "init_container",
        "proxy_container",
        "env",
        "volumes",
        "owner",
        "patch",
        "recipe",
    ),
    *("recipe", "injection", "admission", "review"),
    *("syntax", "plain_words"),
)
EFFECTS = {
    *("os", "subprocess", "socket", "grpc", "click", "time", "logging", "pathlib"),
    *("shutil", "io", "select", "random", "threading", "tempfile", "sys", "asyncio"),
    *("requests", "uvicorn", "prometheus_client", "cryptography", "identity"),
}


def imported(module: str) -> set[str]:
    """Names of every module that a module imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse((PACKAGE / f"{module}.py").read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_touches_nothing(module: str) -> None:
    """It imports no door to the machine, not even within a function."""
    names = imported(module)

    assert {name.partition(".")[0] for name in names} & EFFECTS == set()


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_stands_on_pure_ones(module: str) -> None:
    """Of this package it imports nothing but what is pure itself."""
    ours = {
        name.split(".")[2]
        for name in imported(module)
        if name.startswith("proxyinit.inject.")
    }

    assert ours <= set(PURE)


def test_the_webhook_does_without_grpc() -> None:
    """What it shares with the issuer must not bring the issuer's libraries."""
    code = "import sys, proxyinit.inject.serve; sys.exit('grpc' in sys.modules)"

    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_redirect_does_not_know_who_injects_it() -> None:
    """The install of every pod starts without any of this."""
    for file in PACKAGE.parent.glob("*.py"):
        assert "proxyinit.inject" not in file.read_text(), file.name
