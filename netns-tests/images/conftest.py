"""Fixtures of the image tests: images of this checkout, and runc."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.testing.built import Built, images
from images.testing.runtime import SECCOMP, Runtime

NEEDED = ("gcc", "getcap", "mmdebstrap", "podman", "runc")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a runtime or the tools, skip; in CI that is a failure, not a skip."""
    missing = [tool for tool in NEEDED if not shutil.which(tool)]
    if not SECCOMP.exists():
        missing.append(str(SECCOMP))
    if not missing:
        return
    reason = f"needs {', '.join(missing)}: run `make test` as root on Debian or Ubuntu"
    if os.environ.get("CI") == "true":
        raise pytest.UsageError(f"in CI nothing may be skipped: {reason}")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def built() -> Iterator[Built]:
    """Both images, on a base of Debian's packages; built once, kept by content."""
    with images() as made:
        yield made


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    """runc with a state of its own."""
    with Runtime() as made:
        yield made
