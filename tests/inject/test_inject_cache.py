"""Memory that list and watch fill, against an API server with good and bad days."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from identity.issuer.access import from_kubeconfig
from identity.issuer.errors import ApiError
from identity.testing.https import Answer
from proxyinit.inject import events
from proxyinit.inject.api import ApiClient
from proxyinit.inject.api_cache import (
    FOLLOWED,
    JOBS,
    NAMESPACES,
    REPLICASETS,
    Follower,
    Store,
)
from proxyinit.inject.errors import NotKnown
from proxyinit.inject.lookup import Lookup
from proxyinit.inject.owner import Owner
from proxyinit.inject.testing import Cluster
from proxyinit.logs import Log

DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1"}


class Memory:
    """Followers of a cluster, their stores, and what they say."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.lines: list[str] = []
        self.log = Log("debug", write=self.lines.append)
        self.client = ApiClient(from_kubeconfig(cluster.write_kubeconfig(folder)))
        self.followers = {
            each: Follower(self.client, Store(each), self.log) for each in FOLLOWED
        }

    def follow(self) -> None:
        """Begin, and wait until memory is filled."""
        for follower in self.followers.values():
            follower.start()
        for follower in self.followers.values():
            assert follower.synced.wait(10)

    def annotations(self, name: str) -> Any:
        """A namespace's annotations as memory has them."""
        found = self.followers[NAMESPACES].store.find("", name)
        return None if found is None else found["metadata"]["annotations"]

    def lookup(self, threads: ThreadPoolExecutor, patience_s: float = 4) -> Lookup:
        """Questions that memory answers."""
        stores = {each: f.store for each, f in self.followers.items()}
        return Lookup(self.client, stores, threads, self.log, patience_s=patience_s)

    def close(self) -> None:
        """Follow no more."""
        for follower in self.followers.values():
            follower.stop()
        self.cluster.end_watches()


def eventually(seen: Callable[[], object], timeout_s: float = 10) -> None:
    """Wait until a thread has done its part."""
    end = time.monotonic() + timeout_s
    while not seen():
        assert time.monotonic() < end, "not seen"
        time.sleep(0.005)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """A cluster with one namespace, and followers that have not begun."""
    with Cluster() as cluster:
        cluster.annotate("shop", {"a": "1"})
        made = Memory(cluster, tmp_path)
        yield made
        made.close()


def lists(cluster: Cluster) -> int:
    """How often namespaces were listed."""
    paths = [call.path for call in list(cluster.calls)]
    return sum("namespaces?limit" in path for path in paths)


def watches(cluster: Cluster) -> list[str]:
    """The watches of namespaces so far."""
    paths = [call.path for call in list(cluster.calls)]
    return [path for path in paths if "namespaces?watch" in path]


def test_changes_arrive(memory: Memory) -> None:
    """What is made, changed and deleted, without another list."""
    memory.follow()
    assert memory.annotations("shop") == {"a": "1"}

    memory.cluster.annotate("shop", {"a": "2"})
    memory.cluster.annotate("other", {})
    memory.cluster.delete("namespaces", "", "other")
    memory.cluster.annotate("last", {})
    eventually(lambda: memory.annotations("last") is not None)
    assert memory.annotations("shop") == {"a": "2"}
    assert memory.annotations("other") is None
    assert lists(memory.cluster) == 1


def test_lists_come_in_pages(memory: Memory) -> None:
    """Nothing of a later page is lost."""
    memory.cluster.page = 2
    for number in range(5):
        memory.cluster.annotate(f"ns-{number}", {})
    memory.follow()

    assert len(memory.followers[NAMESPACES].store) == 6
    assert lists(memory.cluster) == 3


def test_a_watch_that_ends_goes_on_from_its_version(memory: Memory) -> None:
    """Without a list, and without a gap."""
    memory.follow()
    memory.cluster.annotate("shop", {"a": "2"})
    eventually(lambda: memory.annotations("shop") == {"a": "2"})
    memory.cluster.end_watches()
    memory.cluster.annotate("shop", {"a": "3"})

    eventually(lambda: memory.annotations("shop") == {"a": "3"})
    eventually(lambda: len(set(watches(memory.cluster))) == 2)
    memory.cluster.annotate("shop", {"a": "4"})
    eventually(lambda: memory.annotations("shop") == {"a": "4"})
    assert lists(memory.cluster) == 1


@pytest.mark.parametrize("as_event", [False, True], ids=["an answer", "an event"])
def test_gone_means_a_new_list(memory: Memory, *, as_event: bool) -> None:
    """410, whichever way it is told; what was deleted meanwhile is gone as well."""
    memory.cluster.gone_as_event = as_event
    memory.cluster.annotate("old", {})
    memory.follow()
    memory.cluster.down()
    memory.cluster.delete("namespaces", "", "old")
    memory.cluster.annotate("new", {})
    memory.cluster.forget()
    memory.cluster.up()

    eventually(lambda: memory.annotations("new") is not None)
    assert memory.annotations("old") is None
    assert lists(memory.cluster) >= 2


def test_memory_answers_while_the_api_is_gone(memory: Memory) -> None:
    """And catches up when it is back."""
    memory.follow()
    memory.cluster.down()
    eventually(lambda: any("can't follow namespaces" in line for line in memory.lines))
    assert memory.annotations("shop") == {"a": "1"}

    memory.cluster.annotate("shop", {"a": "2"})
    memory.cluster.up()
    eventually(lambda: memory.annotations("shop") == {"a": "2"})


def test_an_api_that_fails_at_first(memory: Memory) -> None:
    """Nothing is synced before the first list; failures are told and tried again."""
    memory.cluster.fault = Answer(500, {"kind": "Status", "message": "not yet"})
    follower = memory.followers[NAMESPACES]
    follower.start()
    eventually(lambda: memory.lines)
    assert not follower.synced.is_set()

    memory.cluster.fault = None
    assert follower.synced.wait(10)


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param([], id="a list of nothing"),
        pytest.param({"metadata": "text"}, id="metadata is text"),
        pytest.param({"items": {"a": 1}}, id="items are an object"),
        pytest.param({"items": ["a"]}, id="an item is text"),
        pytest.param({"items": [{"metadata": "a"}]}, id="an item's metadata is text"),
    ],
)
def test_an_api_that_answers_nonsense(memory: Memory, odd: Any) -> None:
    """Whatever stands between, it is an error like others."""
    memory.cluster.fault = Answer(200, odd)

    with pytest.raises(ApiError, match="expected"):
        memory.client.list("/api/v1/namespaces")


def test_nonsense_costs_no_follower_its_life(memory: Memory) -> None:
    """It is told, and the next list is as good as ever."""
    memory.cluster.fault = Answer(200, {"items": ["a"]})
    follower = memory.followers[NAMESPACES]
    follower.start()
    eventually(lambda: any("can't follow namespaces" in x for x in memory.lines))
    memory.cluster.fault = None

    assert follower.synced.wait(10)
    assert memory.annotations("shop") == {"a": "1"}


def test_what_is_new_is_asked_for(memory: Memory) -> None:
    """Memory may be a moment behind: the API knows, or nobody does."""
    cluster = memory.cluster
    cluster.owned("replicasets", "shop", "web-5b", DEPLOYMENT)
    cluster.owned("jobs", "shop", "job", DEPLOYMENT)
    with ThreadPoolExecutor(2) as threads:
        lookup = memory.lookup(threads)
        assert asyncio.run(lookup.annotations("shop")) == {"a": "1"}
        for kind, name in (("replicaset", "web-5b"), ("job", "job")):
            found = asyncio.run(lookup.owned(kind, "shop", name))
            assert found is not None
            assert found["metadata"]["ownerReferences"] == [DEPLOYMENT]
        with pytest.raises(NotKnown, match="namespace 'nowhere' is not known"):
            asyncio.run(lookup.annotations("nowhere"))
        assert asyncio.run(lookup.owned("job", "shop", "nobody")) is None
    said = "couldn't retrieve parent object shop-job-nobody"
    assert any(said in line and " level=warning " in line for line in memory.lines)


def test_what_memory_has_is_not_asked_for(memory: Memory) -> None:
    """Reviews cost the API server nothing."""
    memory.cluster.owned("replicasets", "shop", "web-5b", DEPLOYMENT)
    memory.follow()
    calls = len(memory.cluster.calls)
    with ThreadPoolExecutor(1) as threads:
        lookup = memory.lookup(threads)
        asyncio.run(lookup.annotations("shop"))
        asyncio.run(lookup.owned("replicaset", "shop", "web-5b"))

    asked = [call.path for call in memory.cluster.calls[calls:]]
    assert [path for path in asked if "watch" not in path] == []


def test_an_api_that_takes_too_long(memory: Memory) -> None:
    """The API server waits for our answer too: no question takes for ever."""
    memory.cluster.delay_s = 0.5
    with ThreadPoolExecutor(1) as threads:
        lookup = memory.lookup(threads, patience_s=0.1)
        with pytest.raises(NotKnown, match=r"no answer within 0\.1 s"):
            asyncio.run(lookup.annotations("shop"))


def test_paths() -> None:
    """Names can't lead anywhere else."""
    assert NAMESPACES.path("", "shop") == "/api/v1/namespaces/shop"
    assert REPLICASETS.path("a", "b") == "/apis/apps/v1/namespaces/a/replicasets/b"
    assert JOBS.path("a", "../b?c") == "/apis/batch/v1/namespaces/a/jobs/..%2Fb%3Fc"


def test_events(memory: Memory) -> None:
    """They arrive with what makes them appear at the owner; failures are counted."""
    outcomes: list[str] = []
    sender = events.Sender(memory.client, memory.log, outcomes.append)
    sender.start()
    owner = Owner("deployment", "web", DEPLOYMENT)
    sender.send(events.injected("shop", owner))
    memory.cluster.wait(lambda cluster: bool(cluster.events))
    (found,) = memory.cluster.events

    assert (found["reason"], found["type"]) == ("Injected", "Normal")
    assert found["source"] == {"component": "linkerd-proxy-injector"}
    assert found["involvedObject"] == {**DEPLOYMENT, "namespace": "shop"}
    memory.cluster.fault = Answer(403, {"kind": "Status", "message": "no"})
    sender.send(events.skipped("shop", owner, "why"))
    eventually(lambda: outcomes == ["sent", "failed"])
    sender.close()


def test_events_that_are_too_many_are_dropped() -> None:
    """Nobody waits for them."""

    class Nobody:
        def create(self, path: str, body: dict[str, Any]) -> Any:
            raise ApiError(f"never called: {path} {body}")

    outcomes: list[str] = []
    sender = events.Sender(Nobody(), Log(), outcomes.append)
    owner = Owner("deployment", "web", DEPLOYMENT)
    for number in range(events.QUEUED + 3):
        sender.send(events.skipped("shop", owner, str(number)))
    sender.send(events.skipped("shop", owner, "0"))

    assert outcomes == ["dropped"] * 3


def test_names_of_events_differ() -> None:
    """Even in the same instant."""
    event = events.injected("shop", Owner("deployment", "web", DEPLOYMENT))
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    made = [events.body(event, now, number, 1) for number in (1, 2)]

    assert len({each["metadata"]["name"] for each in made}) == 2


def test_equal_events_become_one(memory: Memory) -> None:
    """A hundred replicas are one line at their Deployment, with a count."""
    sender = events.Sender(memory.client, memory.log, lambda _: None)
    owner = Owner("deployment", "web", DEPLOYMENT)
    for _ in range(100):
        sender.send(events.injected("shop", owner))
    sender.send(events.skipped("shop", owner, "why"))
    sender.start()
    memory.cluster.wait(lambda cluster: len(cluster.events) == 2)
    sender.close()

    assert [found["count"] for found in memory.cluster.events] == [100, 1]
