"""What the webhook says, counts and sends of a review, and when."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from proxyinit.inject import events
from proxyinit.inject.testing import pod, service
from proxyinit.inject.testing.caller import UID
from tests.inject.webhook_bench import DEPLOYMENT, ENABLED, REPLICASET, Bench


def test_what_is_said_of_a_pod(bench: Bench) -> None:
    """Upstream's lines, in upstream's words; a pod without a name has another."""
    document = pod(name="")
    document["metadata"]["generateName"] = "web-"
    bench.ask(document)

    said = [line.partition("msg=")[2].rstrip() for line in bench.lines]
    assert said == [
        f'"received admission review request \\"{UID}\\""',
        '"received pod/web-"',
        '"injection patch generated for: pod/web-"',
    ]


def test_objects_and_patches_are_for_debugging(tmp_path: Path) -> None:
    """They may hold secrets: nobody logs them who did not ask for it."""
    secret = pod(containers=[{"name": "a", "env": [{"name": "P", "value": "s3cret"}]}])
    bench = Bench(tmp_path)
    bench.ask(secret)
    assert not bench.said("s3cret")

    bench = Bench(tmp_path, verbose=True)
    bench.ask(secret)
    assert bench.said(" level=debug ", "request object bytes: ", "s3cret")
    assert bench.said(" level=debug ", "injection patch: ", "linkerd-init")


def test_events_go_to_the_owner(bench: Bench) -> None:
    """Injected, or skipped with the reasons; with the uid that the cluster knows."""
    bench.cluster.owners = {"replicaset/web-5b": DEPLOYMENT}
    bench.ask(pod(owner=REPLICASET))
    bench.ask(pod(owner=REPLICASET, hostNetwork=True))

    first, second = bench.events
    assert (first.reason, first.message) == (
        "Injected",
        "Linkerd sidecar proxy injected",
    )
    assert (second.reason, second.message) == (
        "InjectionSkipped",
        "Linkerd sidecar proxy injection skipped: hostNetwork is enabled",
    )
    for event in bench.events:
        assert (event.kind, event.name, event.uid) == ("Deployment", "web", "d1")


def test_nobody_waits_for_what_is_told(tmp_path: Path) -> None:
    """The answer is out before it is logged, counted and sent."""
    waiting: list[Callable[[], None]] = []
    bench = Bench(tmp_path, later=waiting.append)
    assert bench.ask(pod(owner=DEPLOYMENT)).patch

    where = {"owner_kind": "deployment", "namespace": "shop"}
    where |= {"annotation_at": "namespace"}
    requests = "proxy_inject_admission_requests"
    assert not bench.said("patch generated")
    assert (bench.counted(requests, **where), bench.events) == (None, [])
    (tell,) = waiting
    tell()
    assert bench.said("injection patch generated for: pod/web")
    assert (bench.counted(requests, **where), len(bench.events)) == (1, 1)


def test_what_can_not_be_told_costs_no_pod(tmp_path: Path) -> None:
    """A bug has its name in the log, and the review its answer."""

    def send(_event: events.Event) -> None:
        raise LookupError("the bug")

    bench = Bench(tmp_path, send=send)

    assert bench.ask(pod(owner=DEPLOYMENT)).patch
    assert bench.said(" level=error ", "tell of pod/web", "LookupError: the bug")


def test_nothing_is_sent_for_a_dry_run(bench: Bench) -> None:
    """The configuration says that there are no side effects."""
    bench.ask(pod(owner=DEPLOYMENT), dryRun=True)
    bench.ask(pod())

    assert bench.events == []


def test_counters(bench: Bench) -> None:
    """As upstream has them: by owner, annotations of the pod's own, and reasons."""
    bench.cluster.found = {**ENABLED, "config.linkerd.io/admin-port": "9999"}
    own = {"config.linkerd.io/proxy-log-level": "debug"}
    bench.ask(pod(owner=DEPLOYMENT, annotations=own))
    where = {"owner_kind": "deployment", "namespace": "shop"}
    where |= {"annotation_at": "namespace", "proxy_log_level": "debug"}

    assert bench.counted("proxy_inject_admission_requests", **where) == 1
    responses = "proxy_inject_admission_responses"
    assert bench.counted(responses, **where, skip="false") == 1
    bench.ask(pod(annotations={"linkerd.io/inject": "disabled"}, hostNetwork=True))
    assert bench.counted(
        responses,
        owner_kind="pod", namespace="shop", skip="true", annotation_at="workload",
        skip_reason="host_network_enabled,injection_disable_annotation_present",
    ) == 1  # fmt: skip
    before = bench.metrics.render()
    bench.ask(service({"port": 80}))
    after = bench.metrics.render()
    lines = [line for line in after.splitlines() if responses.encode() in line]
    assert all(line in before for line in lines), "an untouched Service is not counted"
