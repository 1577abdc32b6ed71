"""What it costs to verify every pod of a node, against saving its rules in a shell.

The peer is what an operator does without a tool: `nsenter` into each namespace and
let iptables-nft and iptables-legacy print the tables of both families, without
judging them.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from interception import DEFAULT_ARGS, Row, Run, spawn

from proxyinit.lab import Namespace

PROGRAM = str(Path(sys.executable).with_name("proxy-init"))
NAMESPACES = 250
MODES = ("legacy", "nft", "nftables", "", "")
"""Backends in turn; of five namespaces two have no redirect."""
PAIRS = 5
TARGET = 0.5

_SAVE = " ".join(
    f"nsenter --net=/run/netns/$name {program}-save;"
    for program in (
        "iptables-nft",
        "ip6tables-nft",
        "iptables-legacy",
        "ip6tables-legacy",
    )
)


def rows() -> Iterator[Row]:
    """The one figure: `verify --all` over 250 namespaces."""
    with ExitStack() as stack:
        namespaces = []
        for number in range(NAMESPACES):
            namespace = Namespace(f"pod{number}")
            stack.callback(namespace.close)
            namespaces.append(namespace)
            mode = MODES[number % len(MODES)]
            if mode:
                spawn(namespace, [PROGRAM, *DEFAULT_ARGS, "--iptables-mode", mode])
        yield _against_shell(namespaces)


def _against_shell(namespaces: list[Namespace]) -> Row:
    names = " ".join(namespace.name for namespace in namespaces)
    peer = ["/bin/dash", "-c", f"for name in {names}; do {_SAVE} done"]
    # 3: other namespaces of this machine, which are looked at as well, may differ.
    ours = ["/bin/dash", "-c", f"{PROGRAM} verify --all || [ $? = 3 ]"]
    home = Namespace("node")
    try:
        spawn(home, peer)
        pairs = [(spawn(home, ours), spawn(home, peer)) for _ in range(PAIRS)]
    finally:
        home.close()
    return _row(pairs)


def _row(pairs: list[tuple[Run, Run]]) -> Row:
    ratio = statistics.median(one.wall_ms / other.wall_ms for one, other in pairs)
    ours = statistics.median(one.wall_ms for one, _ in pairs) / 1000
    peer = statistics.median(other.wall_ms for _, other in pairs) / 1000
    return Row(
        f"`verify --all` over {NAMESPACES} namespaces, against a shell loop of nsenter "
        "and four save programs",
        f"{ratio:.2f} (ours {ours:.2f} s, shell {peer:.2f} s)",
        f"≤ {TARGET:g}",
        ratio <= TARGET,
    )
