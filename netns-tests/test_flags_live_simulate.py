"""--simulate prints what a run would feed, to the byte, and changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from installed import PROGRAM, sh

from proxyinit.lab import Namespace

LINKERD = ("-p", "4143", "-o", "4140", "-u", "2102")
MUCH = (
    *("-p", "4143", "-o", "4140", "-u", "2102,0", "-g", "7"),
    *("--inbound-ports-to-ignore", "4190,4191,4567-4568,1-9,20-29,30-39,40-49,50-59"),
    *("--outbound-ports-to-ignore", "25,443"),
    *("--subnets-to-ignore", "10.0.0.0/8,fd00::/8"),
    *("--outbound-subnets-to-ignore", "0.0.0.0/0,2001:db8::/32"),
    *("-r", "80,9090"),
)
SBIN = "/usr/sbin"
OTHER = {"legacy": "nft", "nft": "legacy", "nftables": "nft"}
VERSIONS = ("ip", "ip6")
AS_NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
WITHOUT_IPTABLES = (
    *("unshare", "--mount", "sh", "-c"),
    *(f'mount -t tmpfs none {SBIN} && exec "$@"', "sh"),
)


def run(
    namespace: Namespace,
    arguments: Sequence[str],
    *,
    through: Sequence[str] = (),
    program: Sequence[str] = (PROGRAM,),
) -> CompletedProcess[str]:
    """Run proxy-init, started by another program if one is given."""
    return namespace.exec([*through, *program, *arguments])


def state(namespace: Namespace) -> list[str]:
    """Tables by name, and the contents of those that exist; creates none."""
    looks = [f"cat /proc/net/{version}_tables_names" for version in VERSIONS]
    looks += ["nft list tables"]
    looks += [f"{v}tables-{m}-save" for v in VERSIONS for m in ("legacy", "nft")]
    looks += ["nft --stateless list table inet proxy_init"]
    texts = [namespace.exec(look.split()).stdout for look in looks]
    # Dates stand in comments.
    return [
        "\n".join(line for line in text.splitlines() if not line.startswith("#"))
        for text in texts
    ]


class Tap:
    """Every restore program and nft, wrapped: what they are fed is kept, in order."""

    def __init__(self, folder: Path) -> None:
        self._record = folder / "fed"
        self._record.touch()
        self._bin = folder / "bin"
        self._bin.mkdir()
        for version in VERSIONS:
            for variant in ("-legacy", "-nft", ""):
                name = f"{version}tables{variant}-restore"
                wrapper = self._bin / name
                # tee ends before the program does, so the order is that of runs.
                wrapper.write_text(
                    f'#!/bin/sh\ntee -a {self._record} | {SBIN}/{name} "$@"\n'
                )
                wrapper.chmod(0o755)
        wrapper = self._bin / "nft"
        listing = f'[ "$1" = -f ] || exec {SBIN}/nft "$@"'
        wrapper.write_text(
            f'#!/bin/sh\n{listing}\ntee -a {self._record} | {SBIN}/nft "$@"\n'
        )
        wrapper.chmod(0o755)

    @property
    def prefix(self) -> tuple[str, ...]:
        """What to start proxy-init through."""
        return "env", f"PATH={self._bin}:{os.environ['PATH']}"

    def fed(self) -> str:
        """All that was fed so far."""
        return self._record.read_text()


@pytest.fixture
def tap(tmp_path: Path) -> Tap:
    return Tap(tmp_path)


# === states of a namespace that a run may find ===


def fresh(_namespace: Namespace, _mode: str) -> None:
    """Nothing was there."""


def others(namespace: Namespace, mode: str) -> None:
    """Somebody else's rules, in both families."""
    if mode == "nftables":
        sh(namespace, "nft add table inet other; nft add chain inet other mine")
        mode = "nft"
    for version in VERSIONS:
        program = f"{version}tables-{mode}"
        sh(
            namespace,
            f"{program} -t nat -N KUBE-LIKE;"
            f"{program} -t nat -A PREROUTING -p udp -j KUBE-LIKE;"
            f"{program} -A INPUT -p udp -j ACCEPT",
        )


def earlier(namespace: Namespace, mode: str) -> None:
    """Our rules, for other arguments."""
    arguments = (*LINKERD, "--inbound-ports-to-ignore", "25", "--iptables-mode", mode)
    assert run(namespace, arguments).returncode == 0


def damaged(namespace: Namespace, mode: str) -> None:
    """Our rules with a doubled jump, a missing rule, a jump with a condition."""
    earlier(namespace, mode)
    if mode == "nftables":
        sh(
            namespace,
            "nft insert rule inet proxy_init PREROUTING jump PROXY_INIT_REDIRECT;"
            "nft flush chain inet proxy_init PROXY_INIT_OUTPUT;"
            "nft add chain inet proxy_init MINE",
        )
        return
    for version in VERSIONS:
        program = f"{version}tables-{mode} -t nat"
        sh(
            namespace,
            f"{program} -I PREROUTING -j PROXY_INIT_REDIRECT;"
            f"{program} -D PROXY_INIT_OUTPUT 1;"
            f"{program} -A OUTPUT -o eth9 -p tcp -j PROXY_INIT_OUTPUT",
        )


def one_family(namespace: Namespace, mode: str) -> None:
    """IPv4 as wanted already, IPv6 not."""
    done = run(namespace, (*MUCH, "--ipv6=false", "--iptables-mode", mode))
    assert done.returncode == 0


def elsewhere(namespace: Namespace, mode: str) -> None:
    """Our rules, in the other backend."""
    earlier(namespace, OTHER[mode])


def everywhere(namespace: Namespace, mode: str) -> None:
    """Our rules, in both backends."""
    elsewhere(namespace, mode)
    for version in VERSIONS:
        there, here = ("nft", "legacy") if mode == "legacy" else ("legacy", "nft")
        sh(namespace, f"{version}tables-{there}-save|{version}tables-{here}-restore")
    sh(
        namespace,
        "nft add table inet proxy_init;"
        "nft add chain inet proxy_init PROXY_INIT_OUTPUT;"
        "nft add rule inet proxy_init PROXY_INIT_OUTPUT tcp dport 25 return",
    )


STATES = [
    pytest.param(fresh, id="a fresh namespace"),
    pytest.param(others, id="others' rules"),
    pytest.param(earlier, id="an earlier run with other arguments"),
    pytest.param(damaged, id="an earlier run, damaged"),
    pytest.param(one_family, id="one family in place"),
    pytest.param(elsewhere, id="leftovers in the other backend"),
    pytest.param(everywhere, id="rules in every backend"),
]


@pytest.mark.parametrize("prepare", STATES)
def test_prints_what_a_run_then_feeds(
    namespace: Namespace,
    mode: str,
    tap: Tap,
    prepare: Callable[[Namespace, str], None],
) -> None:
    """The same bytes in the same order, and the simulation has changed nothing."""
    prepare(namespace, mode)
    before = state(namespace)
    arguments = (*MUCH, "--iptables-mode", mode)

    simulated = run(namespace, (*arguments, "--simulate"), through=tap.prefix)

    assert simulated.returncode == 0, simulated.stderr
    assert state(namespace) == before
    assert tap.fed() == ""
    real = run(namespace, arguments, through=tap.prefix)
    assert (real.returncode, real.stdout) == (0, ""), real.stderr
    assert simulated.stdout == tap.fed()
    assert tap.fed() != ""


@pytest.mark.parametrize("prepare", STATES)
def test_prints_what_cleanup_then_feeds(
    namespace: Namespace,
    mode: str,
    tap: Tap,
    prepare: Callable[[Namespace, str], None],
) -> None:
    """The same of `cleanup --simulate`; nothing at all where nothing is ours."""
    prepare(namespace, mode)
    before = state(namespace)
    simulated = run(namespace, ("cleanup", "--simulate"), through=tap.prefix)
    assert simulated.returncode == 0, simulated.stderr
    assert (state(namespace), tap.fed()) == (before, "")
    real = run(namespace, ("cleanup",), through=tap.prefix)
    assert (real.returncode, real.stdout) == (0, "")
    assert simulated.stdout == tap.fed()
    assert (tap.fed() == "") == (prepare in (fresh, others))


def test_prints_nothing_when_all_is_in_place(namespace: Namespace, mode: str) -> None:
    """A run would feed nothing, and says so."""
    arguments = (*MUCH, "--iptables-mode", mode)
    assert run(namespace, arguments).returncode == 0
    before = state(namespace)
    done = run(namespace, (*arguments, "--simulate"))
    assert (done.returncode, done.stdout) == (0, "")
    assert "nothing written" in done.stderr
    assert state(namespace) == before


def test_native_script_does_the_job_by_hand(namespace: Namespace) -> None:
    """Fed to nft, as its comment says, it makes what a run finds right."""
    arguments = (*MUCH, "--iptables-mode", "nftables")
    script = run(namespace, (*arguments, "--simulate")).stdout
    assert script.startswith("# inet: nft -f -\n")
    assert namespace.exec(["nft", "-f", "-"], text=script).returncode == 0
    done = run(namespace, arguments)
    assert done.returncode == 0
    assert "nothing written" in done.stderr


def test_what_is_printed_does_the_job_by_hand(
    namespace: Namespace, iptables_mode: str
) -> None:
    """Fed to the programs that its comments name, it makes what a run finds right."""
    mode = iptables_mode
    arguments = (*MUCH, "--iptables-mode", mode)
    script = run(namespace, (*arguments, "--simulate")).stdout
    parts = script.split("# IPv")[1:]
    assert [part[0] for part in parts] == ["4", "6"]
    for part in parts:
        title, _, transaction = part.partition("\n")
        argv = title.partition(": ")[2].split()
        assert f"tables-{mode}-restore" in argv[0]
        assert namespace.exec(argv, text=transaction).returncode == 0
    done = run(namespace, arguments)
    assert done.returncode == 0
    assert done.stderr.count("nothing written") == 2


def test_one_family(namespace: Namespace, iptables_mode: str) -> None:
    """With --ipv6=false there is no transaction of IPv6."""
    mode = iptables_mode
    arguments = (*LINKERD, "--ipv6=false", "--simulate", "--iptables-mode", mode)
    done = run(namespace, arguments)
    assert done.returncode == 0
    assert done.stdout.count("COMMIT\n") == 1
    assert f"iptables-{mode}-restore --noflush" in done.stdout
    assert "ip6tables" not in done.stdout


@pytest.mark.parametrize("level", ["error", "panic"])
def test_what_is_printed_is_no_log(namespace: Namespace, level: str) -> None:
    """A quieter log prints the same; a simulation logs nothing that it would do."""
    quiet = run(namespace, (*LINKERD, "--simulate", "--log-level", level))
    assert quiet.stdout == run(namespace, (*LINKERD, "--simulate")).stdout
    assert (quiet.stdout.count("COMMIT\n"), quiet.stderr) == (2, "")


# === who may simulate ===


def real_feed(tap: Tap, mode: str) -> str:
    """What a run by root feeds in a fresh namespace of its own."""
    fresh_one = Namespace("real")
    try:
        arguments = (*MUCH, "--iptables-mode", mode)
        assert run(fresh_one, arguments, through=tap.prefix).returncode == 0
    finally:
        fresh_one.close()
    return tap.fed()


WEAK = [
    pytest.param(AS_NOBODY, "", id="not root"),
    pytest.param(WITHOUT_IPTABLES, "is not installed", id="no iptables"),
    pytest.param((*WITHOUT_IPTABLES, *AS_NOBODY), "is not installed", id="neither"),
    pytest.param((*WITHOUT_IPTABLES, "env", "-i"), "is not installed", id="no PATH"),
]
DENIED = {
    "legacy": "only root may see it",
    "nft": "Permission denied (you must be root)",
    "nftables": "Operation not permitted (you must be root)",
}


@pytest.mark.parametrize(("through", "why"), WEAK)
def test_simulates_without_root_and_without_iptables(
    namespace: Namespace,
    mode: str,
    tap: Tap,
    through: tuple[str, ...],
    why: str,
    public_program: list[str],
) -> None:
    """It prints what root would feed to an empty table, and says it assumes one."""
    before = state(namespace)
    arguments = (*MUCH, "--simulate", "--iptables-mode", mode)
    done = run(namespace, arguments, through=through, program=public_program)
    assert done.returncode == 0, done.stderr
    assert done.stdout == real_feed(tap, mode)
    families = ("inet",) if mode == "nftables" else ("IPv4", "IPv6")
    for family in families:
        said = f"{family}: can't read the live nat table, assuming it is empty: "
        assert said in done.stderr
    assert done.stderr.count(why or DENIED[mode]) == len(families)
    assert state(namespace) == before


def test_root_with_iptables_assumes_nothing(namespace: Namespace, mode: str) -> None:
    """That a table is not there can be seen, so nobody is warned."""
    done = run(namespace, (*LINKERD, "--simulate", "--iptables-mode", mode))
    assert (done.returncode, "assuming" in done.stderr) == (0, False)


@pytest.mark.parametrize("mode_flag", ["auto", "plain"])
@pytest.mark.parametrize("through", [WITHOUT_IPTABLES, AS_NOBODY])
def test_simulates_other_modes_alike(
    namespace: Namespace,
    mode_flag: str,
    through: tuple[str, ...],
    public_program: list[str],
) -> None:
    """A choice of backend does not need a machine that could apply it."""
    before = state(namespace)
    arguments = (*LINKERD, "--simulate", "--iptables-mode", mode_flag)
    done = run(namespace, arguments, through=through, program=public_program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("COMMIT\n") == 2
    assert state(namespace) == before


# === what a simulation refuses ===


def test_mistakes_are_mistakes(namespace: Namespace) -> None:
    """Exit 2, and nothing on standard output that one could feed."""
    before = state(namespace)
    done = run(namespace, (*LINKERD, "--simulate", "--inbound-ports-to-ignore", "0"))
    assert (done.returncode, done.stdout) == (2, "")
    assert state(namespace) == before


def test_refuses_what_a_run_would_refuse(
    namespace: Namespace, iptables_mode: str
) -> None:
    """A redirect that connections can't get to: exit 1, nothing printed."""
    mode = iptables_mode
    sh(namespace, f"iptables-{mode} -t nat -A PREROUTING -p tcp -j ACCEPT")
    before = state(namespace)
    arguments = (*LINKERD, "--iptables-mode", mode)
    simulated = run(namespace, (*arguments, "--simulate"))
    assert (simulated.returncode, simulated.stdout) == (1, "")
    assert "rule 1 of PREROUTING" in simulated.stderr
    assert state(namespace) == before
    assert run(namespace, arguments).returncode == 1
