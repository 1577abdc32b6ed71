"""A kernel in memory for tests, and the cases that hold it to the real one."""

from proxyinit.testing.cases import CASES, Case, outcome
from proxyinit.testing.kernel import (
    CONDITIONS,
    KINDS,
    VERSIONS,
    FakeKernel,
    FakeRun,
    Fault,
    run_on,
)
from proxyinit.testing.table import FakeTable, Kind

__all__ = [
    "CASES",
    "CONDITIONS",
    "KINDS",
    "VERSIONS",
    "Case",
    "FakeKernel",
    "FakeRun",
    "FakeTable",
    "Fault",
    "Kind",
    "outcome",
    "run_on",
]
