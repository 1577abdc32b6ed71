"""`proxy-init watch`: what it serves is what Prometheus reads, and nothing stale."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from proxyinit.verify.exposition import exposition
from proxyinit.verify.watch_cli import (
    Outcome,
    parse_address,
    parse_interval,
    watch_command,
)


def namespace(verdict: str, *states: str, pod: str = "web-1") -> dict[str, Any]:
    """One namespace as `verify --all --format json` prints it."""
    return {
        "name": "process 7",
        "pod": pod,
        "pod_uid": "0-0",
        "inode": 4026531840,
        "verdict": verdict,
        "checks": [{"name": f"check{n}", "state": s} for n, s in enumerate(states)],
    }


def read(*namespaces: dict[str, Any]) -> dict[tuple[str, frozenset[Any]], float]:
    """The samples that a scraper makes of an exposition."""
    document = {"hidden_processes": 3, "namespaces": list(namespaces)}
    text = exposition(document, 1_700_000_000.5, 0.25)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def only(samples: dict[tuple[str, frozenset[Any]], float], name: str) -> Any:
    """Labels and values of one metric."""
    prefix = "proxyinit_verify_"
    return {
        labels: v for (found, labels), v in samples.items() if found == prefix + name
    }


def test_verdicts_are_counted() -> None:
    """Each verdict has its number, and those that nobody got are zero."""
    samples = read(
        namespace("intercepted"), namespace("intercepted"), namespace("gone")
    )
    counts = {
        dict(labels)["verdict"]: v for labels, v in only(samples, "namespaces").items()
    }
    assert counts == {"intercepted": 2, "differs": 0, "unknown": 0, "gone": 1}


def test_faults_have_a_name() -> None:
    """A check that failed is a sample with pod and check; what is well is none."""
    samples = read(namespace("differs", "ok", "fail", "warn", "unknown"))
    found = [dict(labels) for labels in only(samples, "fault")]
    assert [(f["pod"], f["check"], f["state"]) for f in found] == [
        ("web-1", "check1", "fail"),
        ("web-1", "check3", "unknown"),
    ]
    assert set(only(samples, "fault").values()) == {1}


def test_names_of_others_can_not_forge_samples() -> None:
    """A host name is what its pod likes: quotes and lines stay inside the label."""
    evil = 'a"} 1\nproxyinit_verify_hidden_processes 0\\'
    samples = read(namespace("differs", "fail", pod=evil))
    (labels,) = only(samples, "fault")
    assert dict(labels)["pod"] == evil
    assert only(samples, "hidden_processes") == {frozenset(): 3}


def test_when_and_how_long() -> None:
    """Whoever alerts on old outcomes finds their time in full."""
    samples = read()
    assert only(samples, "timestamp_seconds") == {frozenset(): 1_700_000_000.5}
    assert only(samples, "duration_seconds") == {frozenset(): 0.25}


def test_fresh_until_it_is_old() -> None:
    """Nothing found yet is not fresh; what lasts no time is not either."""
    empty, lasting, fleeting = Outcome(60), Outcome(60), Outcome(0)
    lasting.put("found")
    fleeting.put("found")
    assert [o.is_fresh for o in (empty, lasting, fleeting)] == [False, True, False]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        pytest.param(":4194", ("", 4194), id="every address"),
        pytest.param("127.0.0.1:80", ("127.0.0.1", 80), id="IPv4"),
        pytest.param("[::1]:80", ("::1", 80), id="IPv6"),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    """Host and port, as other programs of meshes take them."""
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["4194", "host:", "host:x", ":65536", ":٣"])
def test_addresses_that_are_none(text: str) -> None:
    """Refused, not guessed at."""
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", "", "٣", "86401", "9" * 20])
def test_intervals_that_are_none(text: str) -> None:
    """Less than a second is not what one does to a node, more than a day no watch."""
    with pytest.raises(ValueError, match="seconds from 1 to 86400"):
        parse_interval(text)


def test_all_mistakes_at_once() -> None:
    """As every command: exit code 2, both flags are named."""
    done = CliRunner().invoke(watch_command, ["--addr", "x", "--interval", "0"])
    assert done.exit_code == 2
    assert "--addr" in done.output
    assert "--interval" in done.output
