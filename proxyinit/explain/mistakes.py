"""What is wrong with the flags of ``proxy-init explain``, seen together. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proxyinit import options
from proxyinit.explain.flags import Undirected, is_planned, quiet, reads_live
from proxyinit.explain.packet import version_of
from proxyinit.pflag import Arguments

NO_DIRECTION = (
    "it can't be told whether the connection is opened in the namespace or comes from "
    "outside: say --inbound or --outbound"
)


def problems(arguments: Arguments) -> Iterator[str]:
    """Every mistake that shows when the flags are seen together."""
    yield from _packet_problems(arguments)
    yield from _direction_problems(arguments)
    yield from options.problems(quiet(arguments))
    named = [f"--{n}" for n in ("netns", "pid") if n in arguments.given]
    sources = {
        "--dump": "dump" in arguments.given,
        "flags of an install": is_planned(arguments),
        " and ".join(named): bool(named),
    }
    chosen = [name for name, there in sources.items() if there]
    if len(chosen) > 1:
        yield (
            f"{' and '.join(chosen)} each say which rules to follow: expected "
            "flags of an install, or --dump, or a namespace"
        )


def _packet_problems(arguments: Arguments) -> Iterator[str]:
    values: dict[str, Any] = arguments.values
    for name, example in (("from", "10.0.0.5"), ("to", "10.0.0.7:8080")):
        if name not in arguments.given:
            yield f"--{name} is missing: an address, such as {example}"
    source, target = values["from"], values["to"]
    if source and target and version_of(source.address) != version_of(target.address):
        yield (
            f"--from {arguments.given['from'][-1]!r} and --to "
            f"{arguments.given['to'][-1]!r} are not of one family: expected two IPv4 "
            "or two IPv6 addresses"
        )


def _direction_problems(arguments: Arguments) -> Iterator[str]:
    values = arguments.values
    outward = [n for n in ("outbound", "out", "uid", "gid") if _says(arguments, n)]
    inward = [n for n in ("inbound", "in") if _says(arguments, n)]
    if outward and inward:
        yield (
            f"--{outward[0]} and --{inward[0]} contradict each other: only what the "
            "namespace sends has an owner and leaves, only what others send comes in"
        )
    if values["in"] == "lo" and not outward:
        yield (
            "--in 'lo': what comes over lo was sent in the namespace itself, and was "
            "decided there: ask with --outbound"
        )
    asked = values["from"] is not None and values["to"] is not None
    if asked and not (outward or inward or reads_live(arguments)):
        packet = Undirected(arguments).packet(None)
        if packet is None:
            yield NO_DIRECTION


def _says(arguments: Arguments, name: str) -> bool:
    """Whether a flag that gives a direction was given, and not as ``=false``."""
    return name in arguments.given and arguments.values[name] is not False
