"""Fixtures of the identity tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from identity.testing import CA, KubernetesApi


@pytest.fixture(scope="session")
def root() -> CA:
    """A trust anchor."""
    return CA()


@pytest.fixture(scope="session")
def issuer(root: CA) -> CA:
    """An issuer below the trust anchor."""
    return root.issuer()


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    """A Kubernetes API server on loopback."""
    with KubernetesApi() as serving:
        yield serving
