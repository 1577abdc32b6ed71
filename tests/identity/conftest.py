"""Fixtures of the identity tests."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from identity.issuer.config import IssuerConfig
from identity.testing import CA, KubernetesApi, Signer
from identity.testing.service import service_config, write_issuer

SECRET = re.compile(r"eyJ[\w-]{8,}|PRIVATE KEY|Bearer [^<]|BEGIN CERTIFICATE REQUEST")
"""How tokens, keys and signing requests would look in a log."""


class Guard(logging.Handler):
    """Keeps every line that anybody logs, at any level."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line, with its traceback."""
        self.lines.append(logging.Formatter().format(record))

    @property
    def leaks(self) -> list[str]:
        """The lines that hold a secret."""
        return [line for line in self.lines if SECRET.search(line)]


@pytest.fixture(autouse=True)
def guard() -> Iterator[Guard]:
    """No test may log a secret, whatever it tests."""
    made = Guard()
    logger = logging.getLogger()
    level, handlers = logger.level, list(logger.handlers)
    logger.addHandler(made)
    logger.setLevel(logging.DEBUG)
    yield made
    logger.setLevel(level)
    logger.handlers[:] = handlers  # a command that ran here has set its own
    assert not made.leaks


@pytest.fixture(scope="session")
def root() -> CA:
    """A trust anchor."""
    return CA()


@pytest.fixture(scope="session")
def issuer(root: CA) -> CA:
    """An issuer below the trust anchor."""
    return root.issuer()


@pytest.fixture(scope="session")
def signer() -> Signer:
    """The cluster's signing key, made once; tests that rotate it make their own."""
    return Signer()


@pytest.fixture
def api(signer: Signer) -> Iterator[KubernetesApi]:
    """A Kubernetes API server on loopback."""
    with KubernetesApi(signer=signer) as serving:
        yield serving


@pytest.fixture
def config(tmp_path: Path, api: KubernetesApi, root: CA, issuer: CA) -> IssuerConfig:
    """A service on loopback that asks the API server about tokens."""
    write_issuer(tmp_path, issuer, root)
    return service_config(tmp_path, api)
