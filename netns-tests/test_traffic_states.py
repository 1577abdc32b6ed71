"""Who answers after a second run, a change of backend, a failure halfway."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from installed import PROGRAM, install, sh

from proxyinit.backend import title
from proxyinit.lab import POD, PROXY_UID, WORLD, Answer, Lab
from proxyinit.lab.tables import dump, versions_of

PORTS = ("-p", "4143", "-o", "4140")
LINKERD = (*PORTS, "-u", "2102")
IGNORING = (
    *LINKERD,
    *("--inbound-ports-to-ignore", "5000-5009"),
    *("--outbound-ports-to-ignore", "6000-6009"),
)
OTHER = (
    *LINKERD,
    *("-u", "3000", "-r", "5000,8080"),
    *("--outbound-subnets-to-ignore", "203.0.113.0/24,2001:db8::/32"),
)

FRONTENDS = {
    **{m: (f"iptables-{m}", f"ip6tables-{m}") for m in ("legacy", "nft")},
    "nftables": ("nft", "nft"),
}
"""The programs of each mode, for IPv4 and IPv6."""


@pytest.fixture
def served(lab: Lab) -> Lab:
    """A lab where proxy, application and world all answer."""
    lab.proxy()
    lab.app(5000, 7000, 8080)
    lab.world(6000, 9090)
    return lab


def run(lab: Lab, *arguments: str, path: str = "") -> CompletedProcess[str]:
    """Run proxy-init in the pod, with a folder in front of PATH."""
    environment = [f"PATH={path}:{os.environ['PATH']}"] if path else []
    return lab.pod.exec(["env", *environment, PROGRAM, *arguments])


REDIRECT, OUTPUT = "PROXY_INIT_REDIRECT", "PROXY_INIT_OUTPUT"

Seen = dict[str, str]
"""Who answered, by what was tried."""


def who(lab: Lab, version: int) -> Seen:
    """Who answers some clients of the pod and some of its users, in one family.

    The proxy counts only when it learns the original destination.
    """
    world = WORLD[version]
    tried = {
        **{f"to {port}": lab.inbound(port, version=version) for port in IN},
        **{f"from {u}": lab.outbound(world, 9090, uid=u) for u in (1000, 3000)},
        "from the proxy": lab.outbound(world, 9090, uid=PROXY_UID),
        "from 1000 to 6000": lab.outbound(world, 6000),
    }
    originals = {f"to {port}": (POD[version], port) for port in IN}
    for name, answer in tried.items():
        port = 6000 if name.endswith("6000") else 9090
        original = originals.get(name, (world, port))
        listener = 4143 if name in originals else 4140
        assert answer.who != "proxy" or answer == Answer("proxy", listener, original)
    return {name: answer.who for name, answer in tried.items()}


IN = (5000, 7000, 8080)
UNTOUCHED = {
    **{f"to {port}": "app" for port in IN},
    "from 1000": "world",
    "from 3000": "world",
    "from 1000 to 6000": "world",
    "from the proxy": "world",
}
BY_LINKERD = {
    **{f"to {port}": "proxy" for port in IN},
    "from 1000": "proxy",
    "from 3000": "proxy",
    "from 1000 to 6000": "proxy",
    "from the proxy": "world",
}
BY_IGNORING = BY_LINKERD | {"to 5000": "app", "from 1000 to 6000": "world"}
BY_OTHER = UNTOUCHED | {"to 5000": "proxy", "to 8080": "proxy"}


def everywhere(lab: Lab) -> tuple[Seen, Seen]:
    """Who answers, in IPv4 and in IPv6."""
    return who(lab, 4), who(lab, 6)


# === a second run with different arguments ===


def test_each_run_replaces_what_the_one_before_wanted(served: Lab, mode: str) -> None:
    """Ignored ports, lists, users and subnets of an earlier run leave no trace."""
    assert everywhere(served) == (UNTOUCHED, UNTOUCHED)
    runs = {IGNORING: BY_IGNORING, OTHER: BY_OTHER, LINKERD: BY_LINKERD}
    for arguments in (*runs, IGNORING):
        install(served.pod, *arguments, mode=mode)
        assert everywhere(served) == (runs[arguments], runs[arguments])


def test_second_run_moves_to_another_proxy(
    served: Lab, mode: str, version: int
) -> None:
    """New ports count for every new connection, the old ones no more."""
    install(served.pod, *LINKERD, mode=mode)
    served.proxy(inbound=15006, outbound=15001)
    install(served.pod, "-p", "15006", "-o", "15001", "-u", "2102", mode=mode)
    inbound = served.inbound(8080, version=version)
    outbound = served.outbound(WORLD[version], 9090)
    assert (inbound.port, outbound.port) == (15006, 15001)


def test_second_run_without_ipv6_takes_ipv6_away(served: Lab, mode: str) -> None:
    """--ipv6=false after a run with IPv6 leaves IPv4 redirected alone."""
    install(served.pod, *LINKERD, mode=mode)
    said = install(served.pod, *LINKERD, "--ipv6=false", mode=mode)
    assert everywhere(served) == (BY_LINKERD, UNTOUCHED)
    if mode != "nftables":  # there it is a condition on the jump
        assert "IPv6: removed rules of an earlier run" in said
    install(served.pod, *LINKERD, mode=mode)
    assert everywhere(served) == (BY_LINKERD, BY_LINKERD)


# === leftovers in the other backend ===


def by_proxy_init(mode: str) -> str:
    return f"{PROGRAM} {' '.join(IGNORING)} --iptables-mode {mode}"


def by_single_commands(mode: str) -> str:
    """As upstream adds its rules: one process for each."""
    if mode == "nftables":
        return by_single_native_commands()
    commands = (
        "-N PROXY_INIT_REDIRECT",
        "-A PROXY_INIT_REDIRECT -p tcp --match multiport --dports 5000:5009 -j RETURN",
        "-A PROXY_INIT_REDIRECT -p tcp -j REDIRECT --to-port 9999",
        "-A PREROUTING -j PROXY_INIT_REDIRECT",
        "-N PROXY_INIT_OUTPUT",
        "-A PROXY_INIT_OUTPUT -p tcp -j REDIRECT --to-port 9998",
        "-A OUTPUT -j PROXY_INIT_OUTPUT",
    )
    pairs = itertools.product(FRONTENDS[mode], commands)
    return "\n".join(f"{program} -t nat {command}" for program, command in pairs)


def by_single_native_commands() -> str:
    table = "inet proxy_init"
    lines = []
    for hook, name, port in (("prerouting", REDIRECT, 9999), ("output", OUTPUT, 9998)):
        base = f"type nat hook {hook} priority -100;"
        lines += [
            f"nft add chain {table} {name}",
            f"nft add rule {table} {name} tcp dport 5000-5009 return",
            f"nft add rule {table} {name} meta l4proto tcp redirect to :{port}",
            f"nft add chain {table} {hook.upper()} '{{ {base} }}'",
            f"nft add rule {table} {hook.upper()} jump {name}",
        ]
    return "\n".join([f"nft add table {table}", *lines])


def in_one_family(mode: str) -> str:
    return f"{by_proxy_init(mode)} --ipv6=false"


def chains_alone(mode: str) -> str:
    """What a run that failed halfway leaves: chains, and no jump to them."""
    names = ("PROXY_INIT_REDIRECT", "PROXY_INIT_OUTPUT")
    if mode == "nftables":
        table = "inet proxy_init"
        chains = ";".join(f"nft add chain {table} {name}" for name in names)
        return f"nft add table {table};{chains}"
    pairs = itertools.product(FRONTENDS[mode], names)
    return ";".join(f"{program} -t nat -N {name}" for program, name in pairs)


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(by_proxy_init, id="a whole install with other arguments"),
        pytest.param(by_single_commands, id="rules added one command at a time"),
        pytest.param(in_one_family, id="IPv4 only"),
        pytest.param(chains_alone, id="chains without a jump"),
    ],
)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(before, after, id=f"{before} to {after}")
        for before, after in itertools.permutations(FRONTENDS, 2)
    ],
)
def test_leftovers_of_the_other_backend_do_not_count(
    served: Lab, before: str, after: str, left: Callable[[str], str]
) -> None:
    """Only the new rules decide, the old ones are gone, and the log says so."""
    sh(served.pod, left(before))
    said = install(served.pod, *OTHER, mode=after)
    assert everywhere(served) == (BY_OTHER, BY_OTHER)
    assert f"removed rules of an earlier run from {title(before)}" in said
    for version in versions_of(before):
        assert "PROXY_INIT" not in dump(served.pod, before, version)


# === a failure halfway ===


def failing(folder: Path, program: str) -> str:
    """A folder where one restore program takes its input and then fails."""
    fake = folder / (program if program == "nft" else f"{program}-restore")
    lists = f'[ "$1" = -f ] || exec {shutil.which("nft")} "$@"\n'
    fails = "cat >/dev/null\necho 'line 3 failed' >&2\nexit 1\n"
    fake.write_text(f"#!/bin/sh\n{lists if program == 'nft' else ''}{fails}")
    fake.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize("failed", [4, 6], ids=["IPv4 fails", "IPv6 fails"])
def test_failed_first_run_redirects_nothing(
    served: Lab, mode: str, tmp_path: Path, failed: int
) -> None:
    """Whichever family fails, neither is redirected; the next run completes."""
    path = failing(tmp_path, FRONTENDS[mode][failed == 6])
    done = run(served, *LINKERD, "--iptables-mode", mode, path=path)
    assert done.returncode == 1
    assert "line 3 failed" in done.stderr
    assert everywhere(served) == (UNTOUCHED, UNTOUCHED)
    install(served.pod, *LINKERD, mode=mode)
    assert everywhere(served) == (BY_LINKERD, BY_LINKERD)


@pytest.mark.parametrize("failed", [4, 6], ids=["IPv4 fails", "IPv6 fails"])
def test_failed_second_run_leaves_the_first_as_it_was(
    served: Lab, mode: str, tmp_path: Path, failed: int
) -> None:
    """Whichever family fails, both stay redirected as before."""
    install(served.pod, *IGNORING, mode=mode)
    path = failing(tmp_path, FRONTENDS[mode][failed == 6])
    done = run(served, *OTHER, "--iptables-mode", mode, path=path)
    assert done.returncode == 1
    assert everywhere(served) == (BY_IGNORING, BY_IGNORING)


def test_rules_abandoned_by_single_commands_are_completed(
    served: Lab, mode: str
) -> None:
    """After each command that upstream may have died after, a run puts all right."""
    commands = by_single_commands(mode).splitlines()
    for count in range(1, len(commands)):
        sh(served.pod, "\n".join(commands[:count]))
        install(served.pod, *LINKERD, mode=mode)
        assert everywhere(served) == (BY_LINKERD, BY_LINKERD)
        assert run(served, "cleanup").returncode == 0


# === the place of the jump ===


def test_jump_keeps_its_place_in_front_of_others(
    served: Lab, iptables_mode: str
) -> None:
    """A rule put behind the jump stays there when all of ours is written anew."""
    mode = iptables_mode
    install(served.pod, *IGNORING, mode=mode)
    for program in FRONTENDS[mode]:
        for chain in ("PREROUTING", "OUTPUT"):
            sh(served.pod, f"{program} -t nat -A {chain} -p tcp -j ACCEPT")
    for arguments, expected in ((OTHER, BY_OTHER), (LINKERD, BY_LINKERD)):
        install(served.pod, *arguments, mode=mode)
        assert everywhere(served) == (expected, expected)


def test_jump_behind_a_rule_that_takes_everything(
    served: Lab, iptables_mode: str
) -> None:
    """That is refused by name, and nothing is redirected by halves."""
    mode = iptables_mode
    program = FRONTENDS[mode][1]
    sh(served.pod, f"{program} -t nat -A OUTPUT -p tcp -j ACCEPT")
    done = run(served, *LINKERD, "--iptables-mode", mode)
    assert done.returncode == 1
    assert "IPv6: rule 1 of OUTPUT, '-p tcp -j ACCEPT'," in done.stderr
    assert everywhere(served) == (UNTOUCHED, UNTOUCHED)


def test_jump_for_another_interface_is_none(served: Lab, iptables_mode: str) -> None:
    """A jump that looks like ours to a regular expression does not pass for it."""
    mode = iptables_mode
    for program in FRONTENDS[mode]:
        sh(
            served.pod,
            f"{program} -t nat -N PROXY_INIT_REDIRECT;"
            f"{program} -t nat -A PREROUTING -i eth9 -j PROXY_INIT_REDIRECT;"
            f"{program} -t nat -N PROXY_INIT_OUTPUT_OLD;"
            f"{program} -t nat -A OUTPUT -j PROXY_INIT_OUTPUT_OLD",
        )
    install(served.pod, *LINKERD, mode=mode)
    assert everywhere(served) == (BY_LINKERD, BY_LINKERD)
