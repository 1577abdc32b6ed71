"""What the cluster knows of namespaces and owners: from memory, else by asking.

An object that was made a moment ago may not have reached memory; then the API is
asked for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any, Protocol

from identity.issuer.errors import ApiError
from proxyinit.inject.annotations import texts
from proxyinit.inject.api_cache import JOBS, NAMESPACES, REPLICASETS, Resource, Store
from proxyinit.inject.errors import NotKnown
from proxyinit.inject.workload import Object
from proxyinit.logs import Log

PATIENCE_S = 4.0
"""How long one question may take: the API server waits for 10 s for our answer."""

_BEHIND = {"replicaset": REPLICASETS, "job": JOBS}


class Asks(Protocol):
    """The part of an API client that a lookup needs."""

    def metadata(self, path: str) -> Any:
        """The metadata of one object; raises `ApiError`."""


class Lookup:
    """Answers from stores that somebody else keeps up to date."""

    def __init__(
        self,
        client: Asks,
        stores: Mapping[Resource, Store],
        threads: Executor,
        log: Log,
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._client = client
        self._stores = stores
        self._threads = threads
        self._log = log
        self._patience_s = patience_s

    async def annotations(self, namespace: str) -> dict[str, str]:
        """A namespace's annotations. Raises `NotKnown`."""
        try:
            found = await self._find(NAMESPACES, "", namespace)
        except ApiError as error:
            raise NotKnown(f"namespace {namespace!r} is not known: {error}") from error
        return texts((found.get("metadata") or {}).get("annotations"))

    async def owned(self, kind: str, namespace: str, name: str) -> Object | None:
        """A ReplicaSet or a Job; None, and a line in the log, if nobody knows it."""
        try:
            return await self._find(_BEHIND[kind], namespace, name)
        except ApiError as error:
            what = f"{namespace}-{kind}-{name}"
            self._log.warning(
                f"couldn't retrieve parent object {what}", error=str(error)
            )
            return None

    async def _find(self, resource: Resource, namespace: str, name: str) -> Object:
        known = self._stores[resource].find(namespace, name)
        if known is not None:
            return known
        loop = asyncio.get_running_loop()
        path = resource.path(namespace, name)
        try:
            async with asyncio.timeout(self._patience_s):
                found: Object = await loop.run_in_executor(
                    self._threads, self._client.metadata, path
                )
        except TimeoutError as error:
            message = f"GET {path}: no answer within {self._patience_s:g} s"
            raise ApiError(message) from error
        return found
