"""What is answered over HTTP: reviews, and what operators and kubelets ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from prometheus_client import CONTENT_TYPE_LATEST

from proxyinit.inject.metrics import Metrics
from proxyinit.inject.server import App, Message, Receive, Send
from proxyinit.inject.webhook import MOST_BYTES, Answer

_JSON = b"application/json"
_TEXT = b"text/plain; charset=utf-8"


class Answers(Protocol):
    """The webhook, as its server sees it."""

    async def answer(self, body: bytes) -> Answer:
        """Answer a body; never raises."""

    def refuse_size(self) -> Answer:
        """Answer a body that nobody is going to read."""


class _TooLarge(Exception):
    """A body is larger than any that is answered."""


class _HungUp(Exception):
    """Who sent a body has gone before its end, and waits for nothing."""


def webhook_app(webhook: Answers) -> App:
    """Every path and method is the webhook."""

    async def app(_scope: Message, receive: Receive, send: Send) -> None:
        try:
            answer = await webhook.answer(await _body(receive))
        except _TooLarge:
            answer = webhook.refuse_size()
        except _HungUp:
            return
        kind = _JSON if answer.status == 200 else _TEXT
        await _respond(send, answer, kind)

    return app


async def _body(receive: Receive) -> bytes:
    """All of the body. Raises `_TooLarge` and `_HungUp`.

    What is too much is read all the same, and forgotten: clients that write can't
    read an answer.
    """
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _HungUp
        part = message.get("body", b"")
        size += len(part)
        if size > MOST_BYTES:
            parts.clear()
        else:
            parts.append(part)
        if not message.get("more_body"):
            break
    if size > MOST_BYTES:
        raise _TooLarge
    return b"".join(parts)


def admin_app(metrics: Metrics, is_ready: Callable[[], bool]) -> App:
    """/ping, /ready and /metrics. Not ready is status 500, as upstream has it."""

    async def app(scope: Message, _receive: Receive, send: Send) -> None:
        kind = _TEXT
        match scope["path"]:
            case "/ping":
                answer = Answer(200, b"pong\n")
            case "/ready" if is_ready():
                answer = Answer(200, b"ok\n")
            case "/ready":
                answer = Answer(500, b"not ready\n")
            case "/metrics":
                kind = CONTENT_TYPE_LATEST.encode()
                # Many series take a while, and reviews don't wait for them.
                answer = Answer(200, await asyncio.to_thread(metrics.render))
            case _:
                answer = Answer(404, b"not found\n")
        await _respond(send, answer, kind)

    return app


async def _respond(send: Send, answer: Answer, kind: bytes) -> None:
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(answer.body)).encode()),
    ]
    start = {"type": "http.response.start", "status": answer.status}
    await send({**start, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
