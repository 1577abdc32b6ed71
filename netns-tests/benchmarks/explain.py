"""What an answer costs: one packet followed through tables of growing size.

In process, without reading any rule: processor time of the best of several runs,
which is the one that other programs disturbed least. The table is kube-proxy's and
ours: service addresses and ports, owners, marks and comments, none of which fits
before the end.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

from interception import Row

from proxyinit.explain.packet import NO_MARK, Packet
from proxyinit.explain.tables import explain
from proxyinit.iptables_save import parse
from proxyinit.rules import IPV4, Ruleset

SIZES = (1_250, 2_500, 5_000)
RUNS = 15
LIMIT_MS = 50
LINEAR = 6
"""Four times the rules may take so many times as long, noise included."""

PACKET = Packet(
    version=IPV4,
    source="10.1.0.2",
    source_port=40000,
    destination="203.0.113.7",
    destination_port=8080,
    outbound=True,
    uid=1000,
    gid=1000,
    mark=NO_MARK,
    own=(),
)


def rows() -> Iterator[Row]:
    """The time for the largest table, and how it grows."""
    times = [best_ms(table(size)) for size in SIZES]
    growth = times[-1] / times[0]
    shown = ", ".join(
        f"{size:,} rules {ms:.1f} ms" for size, ms in zip(SIZES, times, strict=True)
    )
    yield Row(
        "explain of one packet through 5,000 rules, in process",
        f"{times[-1]:.1f} ms",
        f"≤ {LIMIT_MS} ms",
        times[-1] <= LIMIT_MS,
    )
    what = f"the same through {SIZES[-1] // SIZES[0]} times the rules"
    yield Row(what, f"{growth:.1f} ({shown})", "linear", growth <= LINEAR)


def table(size: int) -> Ruleset:
    """So many rules before the one that takes the packet."""
    lines = ["*nat", ":KUBE-SERVICES - [0:0]", "-A OUTPUT -j KUBE-SERVICES"]
    for number in range(size - 2):
        address = f"10.96.{number >> 8}.{number & 255}"
        lines.append(f"-A KUBE-SERVICES {_RULES[number % len(_RULES)].format(address)}")
    lines += ["-A KUBE-SERVICES -p tcp -j REDIRECT --to-ports 4140", "COMMIT", ""]
    return parse("\n".join(lines), IPV4)


_RULES = (
    '-d {}/32 -p tcp -m comment --comment "a service" -m tcp --dport 443 -j ACCEPT',
    '-p tcp -m comment --comment "{}" -m tcp ! --dport 1:65535 -j ACCEPT',
    "-m mark --mark 0x4000/0x4000 -m owner --uid-owner 2102 -j ACCEPT",
    "-p tcp -m multiport --dports 1,2,3,4,5,6,7,4190:4191 -j ACCEPT",
    "-m addrtype --dst-type LOCAL -j ACCEPT",
)


def best_ms(rules: Ruleset) -> float:
    """The time of the quickest of some runs."""
    tables = [("iptables", rules)]
    times = []
    for _ in range(RUNS):
        gc.collect()  # or the garbage of one run is a cost of another
        start = time.thread_time()
        explanation = explain(tables, PACKET)
        times.append(1000 * (time.thread_time() - start))
        if explanation.outcomes[0].kind != "redirected":
            raise RuntimeError(explanation.sentence)
    return min(times)
