"""The outcome of `verify --all` as metrics, in Prometheus' text format. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

VERDICTS = ("intercepted", "differs", "unknown", "gone")
"""What verify says of a namespace, in one word."""

_PREFIX = "proxyinit_verify_"


def exposition(document: Mapping[str, Any], finished_s: float, took_s: float) -> str:
    """The metrics of one look at a node.

    `document` is what ``verify --all --format json`` prints, `finished_s` when it did
    so (seconds since 1970), `took_s` for how long it looked.
    """
    namespaces = document["namespaces"]
    lines = [
        *_metric(
            "namespaces",
            "Network namespaces with a redirect or a proxy, by what was found.",
            _counts(namespaces),
        ),
        *_metric(
            "fault",
            "Checks that failed or could not be made, 1 for each.",
            _faults(namespaces),
        ),
        *_metric(
            "hidden_processes",
            "Processes that may not be looked at: not all namespaces are known.",
            [({}, document["hidden_processes"])],
        ),
        *_metric("timestamp_seconds", "When this was found.", [({}, finished_s)]),
        *_metric("duration_seconds", "How long it took.", [({}, took_s)]),
    ]
    return "\n".join(lines) + "\n"


Sample = tuple[Mapping[str, str], float]


def _counts(namespaces: Iterable[Mapping[str, Any]]) -> Iterator[Sample]:
    found = [namespace["verdict"] for namespace in namespaces]
    for verdict in VERDICTS:
        yield {"verdict": verdict}, found.count(verdict)


def _faults(namespaces: Iterable[Mapping[str, Any]]) -> Iterator[Sample]:
    """One sample for each check that is not well, so a healthy node has none."""
    for namespace in namespaces:
        for check in namespace["checks"]:
            if check["state"] in ("fail", "unknown"):
                labels = {
                    "pod": namespace["pod"] or namespace["name"],
                    "pod_uid": namespace["pod_uid"],
                    "inode": str(namespace["inode"]),
                    "check": check["name"],
                    "state": check["state"],
                }
                yield labels, 1


def _metric(name: str, text: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {_PREFIX}{name} {text}"
    yield f"# TYPE {_PREFIX}{name} gauge"
    for labels, value in samples:
        shown = ",".join(f'{key}="{_escaped(said)}"' for key, said in labels.items())
        yield (
            f"{_PREFIX}{name}{{{shown}}} {value:g}"
            if shown
            else (f"{_PREFIX}{name} {value!r}")
        )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
