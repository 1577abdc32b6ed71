"""Fixtures of the kernel tests: root, real tools, a namespace for each test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import proxyinit
from proxyinit.lab import Lab, Namespace

# Modules beside the tests are scaffolding of more than one of them.
sys.path.insert(0, str(Path(__file__).parent))

NEEDED = ("iptables-legacy", "ip6tables-legacy", "iptables-nft", "nft", "strace")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without root or the tools, skip; in CI that is a failure, not a skip."""
    missing = [tool for tool in NEEDED if not shutil.which(tool)]
    if os.geteuid() != 0:
        missing.append("root")
    if not missing:
        return
    reason = f"needs {', '.join(missing)}: run `make test` as root"
    if os.environ.get("CI") == "true":
        raise pytest.UsageError(f"in CI nothing may be skipped: {reason}")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module", params=["legacy", "nft", "nftables"])
def mode(request: pytest.FixtureRequest) -> str:
    """The backend that a test installs with."""
    return str(request.param)


@pytest.fixture(scope="module", params=["legacy", "nft"])
def iptables_mode(request: pytest.FixtureRequest) -> str:
    """A backend of iptables, where a test is about its tables or programs."""
    return str(request.param)


@pytest.fixture(scope="module", params=[4, 6], ids=["ipv4", "ipv6"])
def version(request: pytest.FixtureRequest) -> int:
    """The IP version that a test connects with."""
    return int(request.param)


@pytest.fixture(scope="session")
def public_program() -> Iterator[list[str]]:
    """proxy-init where any user can read it, wherever this checkout lies."""
    root = Path(tempfile.mkdtemp(prefix="proxyinit-public-"))
    root.chmod(0o755)
    python, library, prefix = root / "python", root / "lib", root / "prefix"
    shutil.copy(Path(sys.executable).resolve(), python)
    for package in (proxyinit, click):
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, library / source.name)
    prefix.mkdir()
    subprocess.run(["mount", "--bind", sys.base_prefix, prefix], check=True)
    try:
        environment = [f"PYTHONHOME={prefix}", f"PYTHONPATH={library}"]
        yield ["env", *environment, str(python), "-m", "proxyinit"]
    finally:
        subprocess.run(["umount", prefix], check=True)
        shutil.rmtree(root)


@pytest.fixture
def lab() -> Iterator[Lab]:
    """A pod and a client, without any stand-in yet."""
    with Lab() as made:
        yield made


@pytest.fixture(scope="module")
def bare() -> Iterator[Lab]:
    """A pod that nobody has set up; tests leave it as it was."""
    with Lab() as made:
        yield made


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """One empty namespace."""
    made = Namespace("alone")
    yield made
    made.close()
