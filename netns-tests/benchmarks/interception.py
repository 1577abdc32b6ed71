"""What the install costs, as ratios against the same rules set by hand.

Every figure compares whole processes, started in turn in fresh namespaces of one
run; the ratio is the median of the pairs, so a machine that slows down meanwhile
slows both. The peer is the shell script that upstream's log amounts to: one
iptables command a rule; for native nftables it is nft, fed with the same script.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import latency

from proxyinit.backend import KINDS, NFTABLES, program_name
from proxyinit.config import RedirectConfig, parse_ports, parse_subnet
from proxyinit.iptables_rule import render_rule
from proxyinit.lab import POD, Lab, Load, Namespace, load
from proxyinit.nft_reconcile import install_script
from proxyinit.nft_script import render_rule as render_native
from proxyinit.plan import plan, plan_inet
from proxyinit.rules import INET, IPV4, IPV6, OUR_CHAINS, Ruleset

PROGRAM = str(Path(sys.executable).with_name("proxy-init"))
PAIRS = 25
RERUNS = 20

DEFAULT_ARGS = [
    *("--incoming-proxy-port", "4143", "--outgoing-proxy-port", "4140"),
    *("--proxy-uid", "2102", "--inbound-ports-to-ignore", "4190,4191,4567,4568"),
    *("--outbound-ports-to-ignore", "4567,4568"),
]
_RANGES = [f"{10000 + 20 * n}-{10009 + 20 * n}" for n in range(200)]
_SUBNETS = [
    *(f"10.{n}.0.0/16" for n in range(50)),
    *(f"fd00:{n:x}::/32" for n in range(1, 51)),
]
LARGE_ARGS = [
    *DEFAULT_ARGS[:6],
    *("--inbound-ports-to-ignore", ",".join(_RANGES)),
    *("--inbound-subnets-to-ignore", ",".join(_SUBNETS)),
]


@dataclass(frozen=True)
class Row:
    """One measured figure: `met` is None where there is no target."""

    what: str
    figure: str
    target: str
    met: bool | None = None


def default_config() -> RedirectConfig:
    """What `DEFAULT_ARGS` ask for."""
    ignored = tuple(map(parse_ports, ("4190", "4191", "4567", "4568")))
    return RedirectConfig(
        4143,
        4140,
        proxy_uids=(2102,),
        inbound_ports_to_ignore=ignored,
        outbound_ports_to_ignore=ignored[2:],
    )


def large_config() -> RedirectConfig:
    """What `LARGE_ARGS` ask for."""
    return RedirectConfig(
        4143,
        4140,
        proxy_uids=(2102,),
        inbound_ports_to_ignore=tuple(map(parse_ports, _RANGES)),
        inbound_subnets_to_ignore=tuple(map(parse_subnet, _SUBNETS)),
    )


def one_by_one(config: RedirectConfig, mode: str, *, fresh: bool = True) -> str:
    """The script that upstream's log shows: 12 commands a family by default."""
    if mode == NFTABLES:
        return _one_by_one_native(config)
    lines = []
    for version in (IPV4, IPV6):
        table = plan(config, version)
        run = f"{program_name(mode, version)} -t nat"
        save = f"{program_name(mode, version, '-save')} -t nat >/dev/null"
        lines.append(save)
        for chain, builtin in zip(OUR_CHAINS, ("PREROUTING", "OUTPUT"), strict=True):
            lines.append(f"{run} {'-N' if fresh else '-F'} {chain}")
            rules = table.rules(chain)
            lines += [f"{run} -A {chain} {render_rule(rule)}" for rule in rules]
            if fresh:
                (jump,) = table.rules(builtin)
                lines.append(f"{run} -A {builtin} {render_rule(jump)}")
        lines.append(save)
    return "\n".join(lines) + "\n"


def _one_by_one_native(config: RedirectConfig) -> str:
    """The same for chains of nft that are there already."""
    table = plan_inet(config, ipv6=True)
    lines = []
    for chain in OUR_CHAINS:
        name = f"inet proxy_init {chain}"
        lines.append(f"nft flush chain {name}")
        lines += [
            f"nft add rule {name} '{render_native(r)}'" for r in table.rules(chain)
        ]
    return "\n".join(lines) + "\n"


# === timing whole processes ===


@dataclass(frozen=True)
class Run:
    """One finished process: wall clock in milliseconds."""

    wall_ms: float


def spawn(namespace: Namespace, argv: Sequence[str]) -> Run:
    """Run a program inside, its output thrown away; it must succeed."""
    return namespace.run(_spawn, list(argv))


def _spawn(argv: list[str]) -> Run:
    quiet = [
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    start = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=quiet)
    _, status = os.waitpid(pid, 0)
    wall_ms = 1000 * (time.perf_counter() - start)
    if status:
        raise RuntimeError(f"{' '.join(argv)} failed with status {status}")
    return Run(wall_ms)


def pairs(ours: Sequence[str], peer: Sequence[str]) -> list[tuple[Run, Run]]:
    """Both in turn, each time in a namespace that saw nothing yet."""
    with ExitStack() as stack:

        def fresh() -> Namespace:
            namespace = Namespace("bench")
            stack.callback(namespace.close)
            return namespace

        spawn(fresh(), ours)
        spawn(fresh(), peer)
        return [(spawn(fresh(), ours), spawn(fresh(), peer)) for _ in range(PAIRS)]


def compare(
    what: str, found: Sequence[tuple[Run, Run]], target: float, names: tuple[str, str]
) -> Row:
    """The median ratio of the pairs, with both medians for orientation."""
    ratio = statistics.median(a.wall_ms / b.wall_ms for a, b in found)
    ours = statistics.median(a.wall_ms for a, _ in found)
    peer = statistics.median(b.wall_ms for _, b in found)
    figure = f"{ratio:.2f} ({names[0]} {ours:.1f} ms, {names[1]} {peer:.1f} ms)"
    return Row(what, figure, f"≤ {target:g}", ratio <= target)


# === the rows ===


def rows() -> Iterator[Row]:
    """Every figure of the interception part."""
    for mode in ("legacy", "nft"):
        yield _against_dash("default install", mode, DEFAULT_ARGS, default_config(), 1)
    for mode in ("legacy", "nft"):
        what = "200 port ranges + 50 subnets a family"
        yield _against_dash(what, mode, LARGE_ARGS, large_config(), 0.15)
    yield _first_by_hand()
    yield _again_by_hand()
    for mode in KINDS:
        yield _rerun(mode)
    yield _memory()
    for mode in KINDS:
        yield _slipped(mode)
    yield _latency()


def _against_dash(
    what: str, mode: str, args: list[str], config: RedirectConfig, target: float
) -> Row:
    ours = [PROGRAM, *args, "--iptables-mode", mode]
    peer = ["/bin/dash", "-c", one_by_one(config, mode)]
    found = pairs(ours, peer)
    commands = peer[-1].count("\n")
    title = f"{what}, {mode}, against one command a rule ({commands} commands)"
    return compare(title, found, target, ("ours", "dash"))


def _by_hand(folder: str, config: RedirectConfig, live: Ruleset) -> list[str]:
    """A command line that feeds nft with what an install feeds it."""
    script = Path(folder, "script.nft")
    wanted = plan_inet(config, ipv6=True)
    script.write_text(install_script(wanted, live), encoding="utf-8")
    return [shutil.which("nft") or "nft", "-f", str(script)]


def _first_by_hand() -> Row:
    """Both in a fresh namespace: the kernel is asked for little.

    The figure names what an interpreter takes that does nothing: more than twice nft,
    so no program in Python comes under the target.
    """
    ours = [PROGRAM, *DEFAULT_ARGS, "--iptables-mode", NFTABLES]
    nothing = [sys.executable, "-I", "-S", "-c", "pass"]
    with tempfile.TemporaryDirectory() as folder:
        peer = _by_hand(folder, default_config(), Ruleset(INET))
        found = pairs(ours, peer)
        bare = statistics.median(run.wall_ms for run, _ in pairs(nothing, peer))
    title = "default install, nftables, against nft -f of the same script"
    row = compare(title, found, 2, ("ours", "nft"))
    figure = row.figure.removesuffix(")") + f", Python doing nothing {bare:.1f} ms)"
    return Row(title, figure, row.target, row.met)


def _again_by_hand() -> Row:
    """Both over the rules of other arguments, which the kernel must take its time for.

    One namespace for each, so that both find in turn what the same kind of run left.
    """
    sides = ([PROGRAM, *DEFAULT_ARGS], [PROGRAM, *LARGE_ARGS])
    configs = (default_config(), large_config())
    found = []
    with ExitStack() as stack:
        folders = [stack.enter_context(tempfile.TemporaryDirectory()) for _ in sides]
        mine, theirs = Namespace("bench"), Namespace("bench")
        stack.callback(mine.close)
        stack.callback(theirs.close)
        live = plan_inet(large_config(), ipv6=True)
        for number in range(-2, PAIRS):
            which = number % 2
            ours = spawn(mine, [*sides[which], "--iptables-mode", NFTABLES])
            script = _by_hand(folders[which], configs[which], live)
            found.append((ours, spawn(theirs, script)))
    title = "install over other rules, nftables, against nft -f of the same script"
    row = compare(title, found[2:], 2, ("ours", "nft"))
    return Row(row.what, row.figure, "", None)  # for orientation


def _latency() -> Row:
    """What long lists cost every new connection afterwards."""
    modes = (NFTABLES, "nft")
    ours, peer = latency.added_us(DEFAULT_ARGS[:6], modes)
    return Row(
        "time that 500 ignored port ranges and 500 subnets add to a new connection, "
        "nftables against nft",
        f"{ours / peer:.2f} ({ours:.1f} µs, {peer:.1f} µs)",
        "≤ 0.3",
        ours / peer <= 0.3,
    )


def _rerun(mode: str) -> Row:
    """First run and second run, in the same fresh namespace each time."""
    argv = [PROGRAM, *DEFAULT_ARGS, "--iptables-mode", mode]
    found = []
    with ExitStack() as stack:
        for _ in range(PAIRS):
            namespace = Namespace("bench")
            stack.callback(namespace.close)
            first = spawn(namespace, argv)
            found.append((spawn(namespace, argv), first))
    what = f"re-run with nothing to change, {mode}, against the first install"
    # That no native table is there is seen without a program, so its first install
    # runs one less than a re-run saves elsewhere.
    target = 0.9 if mode == NFTABLES else 0.8
    return compare(what, found, target, ("re-run", "first"))


_PEAK = """
import os, sys
quiet = [(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet)
print(os.wait4(pid, 0)[2].ru_maxrss)
"""


def _memory() -> Row:
    """Peak memory, with what else the kernel counts to it kept small.

    A new program inherits the peak of the one that started it (exec keeps the
    high-water mark), so a bare interpreter stands between this process and ours.
    """
    namespace = Namespace("bench")
    try:
        peaks = [_peak_kib(namespace, args, mode) for args, mode in _SIZES]
    finally:
        namespace.close()
    mib = max(peaks) / 1024
    title = "peak memory, largest of default and large, all modes"
    return Row(title, f"{mib:.1f} MiB", "≤ 16 MiB", mib <= 16)


_SIZES = [(a, m) for a in (DEFAULT_ARGS, LARGE_ARGS) for m in KINDS]


def _peak_kib(namespace: Namespace, args: list[str], mode: str) -> int:
    interpreter = [sys.executable, "-I", "-S", "-c", _PEAK]
    argv = [*interpreter, PROGRAM, *args, "--iptables-mode", mode]
    return int(namespace.exec(argv).stdout)


def _slipped(mode: str) -> Row:
    """Connections that got past the proxy while rules were set again."""
    other = [*DEFAULT_ARGS, "--outbound-subnets-to-ignore", "192.0.2.0/24"]
    args = (DEFAULT_ARGS, other)

    def ours(lab: Lab, number: int) -> None:
        spawn(lab.pod, [PROGRAM, *args[number % 2], "--iptables-mode", mode])

    script = one_by_one(default_config(), mode, fresh=False)

    def peer(lab: Lab, _: int) -> None:
        spawn(lab.pod, ["/bin/dash", "-c", script])

    mine, theirs = _under_load(mode, ours), _under_load(mode, peer)
    slipped = mine.answers.get("app", 0) + len(mine.errors)
    return Row(
        f"slipped past the proxy in {RERUNS} re-runs under load, {mode}",
        f"{slipped} of {mine.total:,}; one command a rule: "
        f"{theirs.answers.get('app', 0):,} of {theirs.total:,}",
        "0",
        slipped == 0,
    )


def _under_load(mode: str, rerun: Callable[[Lab, int], None]) -> Load:
    with Lab() as lab:
        lab.proxy()
        lab.app(8080)
        spawn(lab.pod, [PROGRAM, *DEFAULT_ARGS, "--iptables-mode", mode])
        targets = [(POD[4], 8080), (POD[6], 8080)]
        with load(lab.client, targets) as seen:
            for number in range(RERUNS):
                rerun(lab, number)
        return seen
