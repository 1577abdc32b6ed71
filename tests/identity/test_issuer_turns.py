"""Turns: alone at once, in a crowd together, in order, and nobody is forgotten."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from identity._proto.identity_pb2 import CertifyRequest
from identity.issuer.metrics import Metrics
from identity.issuer.policy import Request
from identity.issuer.server import Context, Handler
from identity.issuer.service import Certified
from identity.issuer.turns import PATIENCE_S, TOGETHER, Turns


class Clock:
    """Time that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def busy(clock: Clock) -> Turns:
    """Turns of which the first has just been taken."""
    turns = Turns(clock)
    await turns.wait()
    return turns


async def settle() -> None:
    """Let all that can run now run; no timer fires meanwhile."""
    for _ in range(5):
        await asyncio.sleep(0)


def tasks(turns: Turns, taken: list[int], *numbers: int) -> list[asyncio.Task[None]]:
    """Callers that note their numbers when it is their turn."""

    async def call(number: int) -> None:
        await turns.wait()
        taken.append(number)

    return [asyncio.create_task(call(number)) for number in numbers]


def test_who_is_alone_does_not_wait() -> None:
    """Calls that are far apart never meet a timer."""

    async def test() -> None:
        clock = Clock()
        turns = Turns(clock)
        for _ in range(3):
            waiting = turns.wait()
            with pytest.raises(StopIteration):  # it ends without a suspension
                waiting.send(None)
            clock.now_s += 2 * PATIENCE_S

    asyncio.run(test())


def test_a_full_group_goes_at_once() -> None:
    """In order, and all of it before whoever came later."""

    async def test() -> None:
        turns = await busy(Clock())
        taken: list[int] = []
        callers = tasks(turns, taken, *range(TOGETHER - 1))
        await settle()
        assert taken == []
        callers += tasks(turns, taken, TOGETHER - 1)
        await settle()
        assert taken == list(range(TOGETHER))
        await asyncio.gather(*callers)

    asyncio.run(test())


@pytest.mark.parametrize("count", [1, 3, TOGETHER + 5])
def test_who_is_not_joined_goes_when_patience_ends(count: int) -> None:
    """A group need not fill up."""

    async def test() -> None:
        turns = await busy(Clock())
        taken: list[int] = []
        await asyncio.gather(*tasks(turns, taken, *range(count)))
        assert taken == list(range(count))

    asyncio.run(test())


def test_nobody_overtakes_and_groups_follow_groups() -> None:
    """However long the first has waited, and also right after a group has gone."""

    async def test() -> None:
        clock = Clock()
        turns = await busy(clock)
        taken: list[int] = []
        early = tasks(turns, taken, 0)
        await settle()
        clock.now_s += 2 * PATIENCE_S
        await asyncio.gather(*early, *tasks(turns, taken, 1))
        assert taken == [0, 1]
        next_group = tasks(turns, taken, 2, 3)
        await settle()
        assert taken == [0, 1]
        await asyncio.gather(*next_group)
        assert taken == [0, 1, 2, 3]

    asyncio.run(test())


def test_who_is_cancelled_keeps_nobody_waiting() -> None:
    """The clients of the others still have their deadlines."""

    async def test() -> None:
        turns = await busy(Clock())
        taken: list[int] = []
        first, second, third = tasks(turns, taken, 0, 1, 2)
        await settle()
        second.cancel()
        await asyncio.gather(first, third)
        assert taken == [0, 2]

    asyncio.run(test())


def test_work_of_a_group_comes_before_its_answers() -> None:
    """Else the code that sends would come between."""
    seen: list[str] = []

    async def certify(request: Request) -> Certified:
        seen.append(f"work {request.identity}")
        return Certified(b"leaf", (), 0)

    async def answer(handler: Handler, identity: str) -> None:
        wire = CertifyRequest(identity=identity).SerializeToString()
        await handler.call(wire, cast(Context, None))  # who succeeds has no use for it
        seen.append(f"answer {identity}")

    async def test() -> None:
        handler = Handler(certify, Metrics(), await busy(Clock()))
        await asyncio.gather(answer(handler, "a"), answer(handler, "b"))

    asyncio.run(test())
    assert seen == ["work a", "work b", "answer a", "answer b"]
