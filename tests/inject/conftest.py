"""What several modules of tests are given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from proxyinit.inject.testing import Cluster
from tests.inject.program import Program, injecting, running
from tests.inject.webhook_bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A webhook in a namespace that injects."""
    return Bench(tmp_path)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster for one test alone."""
    with injecting() as found:
        yield found


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A program that stays up, whatever it is sent."""
    with (
        injecting() as cluster,
        running(tmp_path_factory.mktemp("webhook") / "program", cluster) as found,
    ):
        yield found
