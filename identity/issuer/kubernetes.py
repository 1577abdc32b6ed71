"""Asking the Kubernetes API: may we review tokens, whose is this one, take an event."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Protocol

from identity.issuer import events
from identity.issuer.api import KubernetesClient
from identity.issuer.config import AUDIENCE
from identity.issuer.errors import (
    AccessDenied,
    ApiError,
    Malformed,
    NotEntitled,
    Overloaded,
)
from identity.issuer.limit import Gate
from identity.issuer.policy import Account, parse_username, shown

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105  (a path)
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
QUEUED_EVENTS = 1000

_log = logging.getLogger(__name__)


class Validator(Protocol):
    """Finds out whose token it is."""

    async def validate(self, token: bytes) -> Account:
        """The account that the token proves.

        Raises `Refusal` for bad tokens, and `ApiError` when nobody can tell.
        """


def check_access(client: KubernetesClient) -> None:
    """Let pass who may create token reviews; raises `AccessDenied` or `ApiError`."""
    wanted = {
        "verb": "create",
        "group": "authentication.k8s.io",
        "version": "v1",
        "resource": "tokenreviews",
    }
    review = client.create(
        ACCESS_REVIEWS,
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": wanted},
        },
    )
    status = _mapping(review, "status")
    if status.get("allowed") is not True:
        reason = status.get("reason") or status.get("evaluationError") or "not allowed"
        raise AccessDenied(f"Unable to create kubernetes token reviews: {reason}")


class TokenReviewer:
    """Validates tokens by TokenReview: one call to the API for each of them."""

    def __init__(self, client: KubernetesClient, gate: Gate, threads: Executor) -> None:
        self._client = client
        self._gate = gate
        self._threads = threads

    async def validate(self, token: bytes) -> Account:
        """The account that the API server says the token belongs to."""
        try:
            text = token.decode("ascii")
        except UnicodeDecodeError:
            raise Malformed("the token is not ASCII text") from None
        status = await self._review(text, [AUDIENCE])
        if "token audiences" in str(status.get("error", "")):
            # A token without our audience may still be one for the API server:
            # clusters that project no tokens have no other.
            status = await self._review(text, [])
        elif status.get("authenticated") and AUDIENCE not in _list(status, "audiences"):
            raise NotEntitled(f"the token is not for the audience {AUDIENCE}")
        if error := status.get("error"):
            raise Malformed(shown(str(error).replace(text, "<token>")))
        if status.get("authenticated") is not True:
            raise NotEntitled("authentication token could not be authenticated")
        return parse_username(str(_mapping(status, "user").get("username", "")))

    async def _review(self, token: str, audiences: Sequence[str]) -> Mapping[str, Any]:
        spec: dict[str, Any] = {"token": token}
        if audiences:
            spec["audiences"] = list(audiences)
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": spec,
        }
        call = partial(self._client.create, TOKEN_REVIEWS, body)
        async with self._gate.enter():
            loop = asyncio.get_running_loop()
            review = await loop.run_in_executor(self._threads, call)
        return _mapping(review, "status")


class EventSender:
    """Sends events in the background, with what token reviews leave of the limit.

    Events are for people; when there are more than can be sent, the newest are
    dropped. `counted` is told `sent`, `failed` or `dropped` of each.
    """

    def __init__(
        self,
        client: KubernetesClient,
        gate: Gate,
        threads: Executor,
        counted: Callable[[str], None],
    ) -> None:
        self._client = client
        self._gate = gate
        self._threads = threads
        self._counted = counted
        self._queue: asyncio.Queue[events.Event] = asyncio.Queue(QUEUED_EVENTS)
        self._number = 0

    def send(self, event: events.Event) -> None:
        """Queue an event."""
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self._counted("dropped")

    async def run(self) -> None:
        """Send what is queued, until cancelled."""
        while True:
            event = await self._queue.get()
            await self._gate.idle()
            await self._deliver(event)

    async def _deliver(self, event: events.Event) -> None:
        now = dt.datetime.now(tz=dt.UTC)
        self._number += 1
        suffix = f"{int(now.timestamp() * 1e6):x}{self._number:04x}"
        body = events.body(event, now, suffix)
        path = f"/api/v1/namespaces/{event.target.namespace}/events"
        call = partial(self._client.create, path, body)
        try:
            async with self._gate.enter():
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._threads, call)
        except (ApiError, Overloaded) as error:
            _log.debug("event was not taken: %s", error)
            self._counted("failed")
        else:
            self._counted("sent")


def _mapping(value: Any, key: str) -> Mapping[str, Any]:
    found = value.get(key, {})
    if not isinstance(found, dict):
        raise ApiError(f"expected an object as {key!r} in the API server's answer")
    return found


def _list(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    return found if isinstance(found, list) else []
