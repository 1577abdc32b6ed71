"""What several modules of tests are given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from proxyinit.inject.cli import main
from proxyinit.inject.testing import Cluster
from tests.inject.manifests import Run
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


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line; exit code, standard output, standard error."""

    def call(*argv: str | Path) -> tuple[int, str, str]:
        status = main([str(word) for word in argv])
        said = capsys.readouterr()
        return status, said.out, said.err

    return call
