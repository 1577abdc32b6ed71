"""The install on a kernel in memory: choice, fallback, roll-back, and nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proxyinit.config import RedirectConfig
from proxyinit.converge import MAX_WRITES
from proxyinit.errors import (
    CommandFailed,
    NoBackend,
    NotInPlace,
    ProxyInitError,
    SysctlError,
    Unreachable,
)
from proxyinit.install import install
from proxyinit.iptables_save import parse
from proxyinit.options import Options
from proxyinit.plan import plan
from proxyinit.privileges import LockHolder, Privileges
from proxyinit.reconcile import differences, ours
from proxyinit.rules import PortRange
from proxyinit.testing import KINDS, VERSIONS, FakeKernel, FakeRun, Fault, run_on

if TYPE_CHECKING:
    from proxyinit.rules import Version
    from proxyinit.testing.table import Kind

CONFIG = RedirectConfig(4143, 4140, (2102,))
OTHER = RedirectConfig(4144, 4140, (2102,), inbound_ports_to_ignore=(PortRange(1, 9),))
JUMP = '-A OUTPUT -m comment --comment "proxy-init/install-proxy-init-output" '
JUMP += "-j PROXY_INIT_OUTPUT"
OURS = (":PROXY_INIT_OUTPUT - [0:0]", JUMP)
FOREIGN = ("-A PREROUTING -p tcp -m tcp --dport 22 -j LOG", "-A INPUT -p tcp -j ACCEPT")


def done(
    kernel: FakeKernel, config: RedirectConfig = CONFIG, **options: object
) -> FakeRun:
    """A run that must succeed."""
    run = run_on(kernel, Options(**options))  # type: ignore[arg-type]
    install(run.session, config)
    return run


def failed(
    kernel: FakeKernel, error: type[ProxyInitError], said: str, **options: object
) -> FakeRun:
    """A run that must fail so, and leave everything as it was."""
    before = held(kernel)
    run = run_on(kernel, Options(**options))  # type: ignore[arg-type]
    with pytest.raises(error) as caught:
        install(run.session, CONFIG)
    assert said in str(caught.value)
    assert held(kernel) == before
    assert kernel.close_wait is None
    return run


def held(kernel: FakeKernel) -> dict[tuple[str, Version], str]:
    """All tables with anything in them: reading legacy nat makes an empty one."""
    empty = FakeKernel().table("nft", 4).dump()
    return {key: dump for key, dump in kernel.state().items() if dump != empty}


def in_place(
    kernel: FakeKernel, config: RedirectConfig = CONFIG
) -> set[tuple[str, Version]]:
    """Where the redirect stands whole; nothing of ours may be anywhere else."""
    found = set()
    for key, dump in kernel.state().items():
        table = parse(dump, key[1])
        if ours(table).chains:
            assert differences(plan(config, key[1]), table) == []
            found.add(key)
    return found


def both(kind: Kind) -> set[tuple[str, Version]]:
    return {(kind, 4), (kind, 6)}


def warnings(run: FakeRun) -> list[str]:
    return run.said("warning")


def writes(kernel: FakeKernel) -> list[str]:
    return [call.program for call in kernel.calls if call.program.endswith("-restore")]


# === the straight way ===


@pytest.mark.parametrize(
    ("mode", "plain", "kind"),
    [
        ("legacy", "nft", "legacy"),
        ("nft", "legacy", "nft"),
        ("plain", "legacy", "legacy"),
        ("plain", "nft", "nft"),
    ],
)
def test_first_install(mode: str, plain: Kind, kind: Kind) -> None:
    """Both families, one transaction each, all read before the first is written."""
    kernel = FakeKernel(plain=plain)

    run = done(kernel, mode=mode)

    assert in_place(kernel) == both(kind)
    assert warnings(run) == []
    suffix = "" if mode == "plain" else f"-{mode}"
    programs = [call.program for call in kernel.calls if "--version" not in call.argv]
    assert programs == [
        *(f"iptables{suffix}-save", f"ip6tables{suffix}-save"),
        *(f"iptables{suffix}-restore", f"ip6tables{suffix}-restore"),
        *(f"iptables{suffix}-save", f"ip6tables{suffix}-save"),
    ]


def test_the_lock_is_waited_for_with_a_limit() -> None:
    """Every restore says for how long, and never empties the table."""
    kernel = FakeKernel()

    done(kernel, lock_wait_s=7)

    for call in kernel.calls:
        if call.program.endswith("-restore"):
            assert call.argv[1:] == ("--noflush", "--wait=7")


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_written_when_all_is_in_place(kind: Kind) -> None:
    """A second run reads, and says that it had nothing to do."""
    kernel = FakeKernel()
    done(kernel, mode=kind)
    before = kernel.state()
    kernel.calls.clear()

    run = done(kernel, mode=kind)

    assert writes(kernel) == []
    assert kernel.state() == before
    assert sum("already in place" in line for line in run.said("info")) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_other_arguments_replace_the_rules(kind: Kind) -> None:
    """A second run with another configuration leaves only that; foreign rules stay."""
    kernel = FakeKernel()
    for version in VERSIONS:
        kernel.load(kind, version, *FOREIGN)
    done(kernel, mode=kind)

    done(kernel, OTHER, mode=kind)

    assert in_place(kernel, OTHER) == both(kind)
    for version in VERSIONS:
        lines = kernel.table(kind, version).lines()
        assert [line for line in lines if "PROXY_INIT" not in line] == list(FOREIGN)


def test_only_the_damaged_family_is_written() -> None:
    """What is right in one family is left alone while the other is mended."""
    kernel = FakeKernel()
    done(kernel)
    kernel.load("legacy", 6, JUMP)
    kernel.calls.clear()

    run = done(kernel)

    assert writes(kernel) == ["ip6tables-legacy-restore"]
    assert in_place(kernel) == both("legacy")
    assert any("IPv4: already in place" in line for line in run.said("info"))


def test_the_transaction_and_the_result_are_logged() -> None:
    """At info, as upstream does: what was fed, and the dump read back."""
    kernel = FakeKernel()

    info = "".join(done(kernel).said("info")).replace("\\n", "\n").replace('\\"', '"')

    for text in kernel.fed():
        assert text in info
    for dump in kernel.state().values():
        assert dump in info


def test_ipv4_alone() -> None:
    """Without --ipv6 nothing of IPv6 is read or written."""
    kernel = FakeKernel()

    done(kernel, ipv6=False)

    assert in_place(kernel) == {("legacy", 4)}
    assert not [call for call in kernel.calls if call.program.startswith("ip6")]


def test_a_kernel_without_ipv6() -> None:
    """There is no IPv6 traffic to miss: one warning, and IPv4 is redirected."""
    kernel = FakeKernel()
    kernel.ipv6 = False

    run = done(kernel)

    assert in_place(kernel) == {("legacy", 4)}
    (warning,) = warnings(run)
    assert "this kernel has no IPv6" in warning


# === fallback ===


@pytest.mark.parametrize(
    ("condition", "mode", "cause"),
    [
        ("no ip_tables", "legacy", "the kernel has no ip_tables"),
        ("no legacy nat table", "legacy", "the kernel has no legacy nat table"),
        ("no nfnetlink", "nft", "the kernel has no nf_tables"),
        ("no nf_tables", "nft", "the kernel's nf_tables does not answer"),
        ("SELinux", "legacy", "a security module"),
    ],
)
def test_fallback_when_the_kernel_lacks_it(
    condition: str, mode: Kind, cause: str
) -> None:
    """The other backend takes both families, and one warning says why."""
    kernel = FakeKernel()
    kernel.impose(condition)
    other: Kind = "nft" if mode == "legacy" else "legacy"

    run = done(kernel, mode=mode)

    assert in_place(kernel) == both(other)
    (warning,) = [line for line in warnings(run) if "trying" in line]
    assert cause in warning
    assert f"trying iptables-{other}" in warning


@pytest.mark.parametrize("mode", KINDS)
def test_fallback_when_programs_are_missing(mode: Kind) -> None:
    """One absent program of one family is enough for both to change over."""
    kernel = FakeKernel()
    kernel.programs.discard(f"ip6tables-{mode}-restore")
    other: Kind = "nft" if mode == "legacy" else "legacy"

    run = done(kernel, mode=mode)

    assert in_place(kernel) == both(other)
    (warning,) = [line for line in warnings(run) if "trying" in line]
    assert f"not found: ip6tables-{mode}-restore" in warning
    assert f"trying iptables-{other}" in warning


@pytest.mark.parametrize("mode", KINDS)
def test_fallback_after_the_second_family_failed(mode: Kind) -> None:
    """What was written in the first is put back before the other backend is tried."""
    kernel = FakeKernel()
    kernel.impose("no REDIRECT", f"ip6tables-{mode}-*")
    kernel.load(mode, 4, *FOREIGN)
    before = kernel.table(mode, 4).dump()
    other: Kind = "nft" if mode == "legacy" else "legacy"

    run = done(kernel, mode=mode)

    assert in_place(kernel) == both(other)
    assert kernel.table(mode, 4).dump() == before
    assert any("put back what was there before" in line for line in warnings(run))


def test_plain_falls_back_by_name() -> None:
    """Without plain programs the named ones are tried, nft first."""
    kernel = FakeKernel()
    kernel.programs -= {"iptables-save", "ip6tables-save"}

    done(kernel, mode="plain")

    assert in_place(kernel) == both("nft")


def test_nothing_is_left_to_try() -> None:
    """The error names every backend with its cause, and every next step."""
    kernel = FakeKernel()
    kernel.impose("no legacy nat table")
    kernel.impose("no nf_tables")

    run = run_on(kernel, Options())
    with pytest.raises(NoBackend) as caught:
        install(run.session, CONFIG)

    said = str(caught.value)
    assert (
        "iptables-legacy can't be used here: the kernel has no legacy nat table" in said
    )
    assert "iptables-nft can't be used here: the kernel's nf_tables does not" in said
    assert "ip6table_nat" in said.partition("Next: ")[2]
    assert "modprobe nf_tables" in said.partition("Next: ")[2]
    assert "Table does not exist (do you need to insmod?)" in caught.value.stderr
    assert "Could not fetch rule set generation id" in caught.value.stderr
    assert held(kernel) == {}


def test_no_programs_at_all() -> None:
    """The advice is to install them."""
    kernel = FakeKernel()
    kernel.programs.clear()

    failed(kernel, NoBackend, "install the iptables package")


def test_no_capabilities() -> None:
    """The broken link of the chain is named, from what the process holds."""
    kernel = FakeKernel()
    kernel.impose("no capabilities")
    kernel.held = Privileges(65534, 0x3000, 0, no_new_privs=True)

    failed(kernel, NoBackend, "granted to the container")


# === failures that another backend must not hide ===


def test_a_held_lock_is_no_reason_to_change_over() -> None:
    """The error names the lock file and its holder; nft is not tried."""
    kernel = FakeKernel()
    kernel.impose("held lock")
    kernel.holders = [LockHolder(4711, "kube-proxy")]

    failed(
        kernel, CommandFailed, "/run/xtables.lock, held by process 4711 (kube-proxy)"
    )

    assert not [call for call in kernel.calls if "-nft-" in call.program]


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("read-only lock file", "mount a writable directory there"),
        ("lock file of root", "the xtables lock file can't be opened"),
        ("no lock file", "set XTABLES_LOCKFILE"),
        ("rules refused", "iptables refused the rules"),
    ],
)
def test_a_refusal_is_no_reason_to_change_over(condition: str, said: str) -> None:
    """The machine could do what was asked for: nothing else is done in silence."""
    kernel = FakeKernel()
    kernel.impose(condition)

    run = failed(kernel, CommandFailed, said)

    assert warnings(run) == []


@pytest.mark.parametrize("mode", KINDS)
@pytest.mark.parametrize("earlier", [None, OTHER], ids=["fresh", "re-run"])
def test_a_failure_in_the_second_family_undoes_the_first(
    mode: Kind, earlier: RedirectConfig | None
) -> None:
    """IPv4 was written when IPv6 fails: the whole state is what it was before."""
    kernel = FakeKernel()
    kernel.load(mode, 4, *FOREIGN)
    if earlier:
        done(kernel, earlier, mode=mode)
    kernel.load(mode, 4, "-A OUTPUT -p udp -j ACCEPT")
    kernel.impose("rules refused", f"ip6tables-{mode}-*")
    kernel.calls.clear()

    run = failed(kernel, CommandFailed, "iptables refused the rules", mode=mode)

    assert f"iptables-{mode}-restore" in writes(kernel)
    assert any("IPv4: put back what was there before" in line for line in warnings(run))


def test_what_can_t_be_put_back_is_said() -> None:
    """The error of the roll-back is told beside the error that caused it."""
    kernel = FakeKernel()
    kernel.impose("rules refused", "ip6tables-legacy-*")
    kernel.interference = [
        lambda _: None,
        lambda k: k.impose("rules refused", "iptables-legacy-*"),
    ]
    run = run_on(kernel, Options())

    with pytest.raises(CommandFailed, match="iptables refused the rules"):
        install(run.session, CONFIG)

    assert any("can't put back what was there" in line for line in run.said("error"))


def test_what_is_put_back_is_what_was_there_first() -> None:
    """Not what another program made of it between two writes of the same run."""
    kernel = FakeKernel()
    done(kernel, OTHER)
    before = held(kernel)
    kernel.load("nft", 4, *OURS)
    leftover = kernel.table("nft", 4).dump()
    kernel.impose("rules refused", "iptables-nft-*")
    kernel.interference = [
        lambda _: None,
        lambda k: k.load("legacy", 4, "-F OUTPUT"),
    ]
    kernel.calls.clear()
    run = run_on(kernel, Options())

    with pytest.raises(CommandFailed, match="iptables-nft-restore failed"):
        install(run.session, CONFIG)

    assert writes(kernel).count("iptables-legacy-restore") == 3
    assert held(kernel) == before | {("nft", 4): leftover}


def test_plain_programs_of_two_backends() -> None:
    """Both families get one backend, so plain ones that differ can't be used."""
    kernel = FakeKernel()
    kernel.plain = {4: "legacy", 6: "nft"}

    run = done(kernel, mode="plain")

    assert in_place(kernel) == both("nft")
    (warning,) = warnings(run)
    assert "iptables is legacy, ip6tables is nft" in warning


def test_plain_programs_that_don_t_say_their_version() -> None:
    """Those are older than the choice: legacy."""
    kernel = FakeKernel(plain="legacy")
    kernel.faults = [Fault("*-save", 2, "unknown option --version\n", times=2)]

    done(kernel, mode="plain")

    assert in_place(kernel) == both("legacy")


# === other programs at work ===


def test_a_change_between_reading_and_writing() -> None:
    """A transaction that failed since a jump was gone underneath is made anew."""
    kernel = FakeKernel()
    kernel.load("legacy", 4, *OURS, JUMP)
    kernel.interference = [
        lambda k: k.load("legacy", 4, "-F OUTPUT", "-A OUTPUT -p udp -j ACCEPT")
    ]
    run = done(kernel)

    assert in_place(kernel) == both("legacy")
    assert kernel.table("legacy", 4).lines()[1] == "-A OUTPUT -p udp -j ACCEPT"
    assert any("another program changed the table" in li for li in run.said("info"))


def test_a_change_right_after_writing() -> None:
    """What another program spoils before it is read back is mended in the same run."""
    kernel = FakeKernel()
    kernel.interference = [
        lambda _: None,
        lambda k: k.load("legacy", 4, "-F OUTPUT"),
    ]

    done(kernel)

    assert in_place(kernel) == both("legacy")
    assert len(writes(kernel)) == 3


def test_a_program_that_never_stops_spoiling() -> None:
    """After some tries the run gives up, says what differs, and puts back."""
    kernel = FakeKernel()
    kernel.interference = [
        lambda k: (
            k.load("legacy", 4, "-A OUTPUT -j PROXY_INIT_OUTPUT")
            if "PROXY_INIT_OUTPUT" in k.table("legacy", 4).chains
            else None
        )
    ] * 99
    run = run_on(kernel, Options())

    with pytest.raises(NotInPlace) as caught:
        install(run.session, CONFIG)

    assert "another program may be changing the same rules" in str(caught.value)
    assert "IPv4: OUTPUT has the jump '-j PROXY_INIT_OUTPUT'" in str(caught.value)
    assert writes(kernel).count("iptables-legacy-restore") <= MAX_WRITES + 1


# === leftovers ===


@pytest.mark.parametrize("mode", KINDS)
def test_leftovers_of_the_other_backend(mode: Kind) -> None:
    """What an earlier run left there goes, is reported, and foreign rules stay."""
    other: Kind = "nft" if mode == "legacy" else "legacy"
    kernel = FakeKernel()
    for version in VERSIONS:
        kernel.load(other, version, *FOREIGN)
    done(kernel, OTHER, mode=other)

    run = done(kernel, mode=mode)

    assert in_place(kernel) == both(mode)
    assert kernel.table(other, 4).lines() == list(FOREIGN)
    assert (
        sum(
            f"removed rules of an earlier run from iptables-{other}" in line
            for line in warnings(run)
        )
        == 2
    )


def test_leftovers_of_the_other_family() -> None:
    """IPv6 rules of an earlier run go when IPv6 is not wanted any more."""
    kernel = FakeKernel()
    done(kernel)

    run = done(kernel, ipv6=False)

    assert in_place(kernel) == {("legacy", 4)}
    (warning,) = warnings(run)
    assert "IPv6: removed rules of an earlier run from iptables-legacy" in warning


def test_rivals_in_the_other_backend() -> None:
    """Which of two backends the kernel asks first can't be seen: a warning."""
    kernel = FakeKernel()
    kernel.load("nft", 6, "-A OUTPUT -p tcp -j REDIRECT --to-ports 15001")

    run = done(kernel)

    assert in_place(kernel) == both("legacy")
    (warning,) = warnings(run)
    assert (
        "IPv6: iptables-nft holds '-A OUTPUT -p tcp -j REDIRECT --to-ports" in warning
    )


def test_looking_for_leftovers_makes_no_table() -> None:
    """Nothing is read of a backend that holds nothing, legacy's least of all."""
    kernel = FakeKernel()

    done(kernel, mode="nft")

    assert set(kernel.state()) == both("nft")


def test_a_silent_kernel_is_not_made_to_create_a_table() -> None:
    """When only root may know of legacy's table, it is not read and that is said."""
    kernel = FakeKernel()
    kernel.silent = {"legacy", "nft"}

    run = done(kernel, mode="nft")

    assert set(kernel.state()) == both("nft")
    assert any("not looking for rules of ours" in line for line in run.said("debug"))


def test_the_new_redirect_stands_before_the_old_one_goes() -> None:
    """No moment without interception while the backend changes."""
    kernel = FakeKernel()
    done(kernel, mode="legacy")
    kernel.calls.clear()

    done(kernel, mode="nft")

    assert [name.split("-")[1] for name in writes(kernel)] == [
        *["nft"] * 2,
        *["legacy"] * 2,
    ]


# === rules of others in the way ===

ACCEPT = "-A PREROUTING -p tcp -m tcp --dport 80 -j ACCEPT"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_rule_in_front_that_ends_connections(kind: Kind, version: Version) -> None:
    """It is named with its number and how to delete it, and nothing is written."""
    kernel = FakeKernel()
    kernel.load(kind, version, "-A PREROUTING -p udp -j ACCEPT", ACCEPT)

    failed(
        kernel,
        Unreachable,
        "rule 2 of PREROUTING, '-p tcp -m tcp --dport 80 -j ACCEPT', stands in front",
        mode=kind,
    )

    assert writes(kernel) == []


def test_a_rule_behind_the_jump_is_no_obstacle() -> None:
    """Order counts: the same rule behind our jump takes nothing away."""
    kernel = FakeKernel()
    done(kernel)
    kernel.load("legacy", 4, ACCEPT)

    done(kernel, OTHER)

    assert in_place(kernel, OTHER) == both("legacy")


def test_a_chain_of_others_that_takes_some_connections() -> None:
    """It may be meant, as with services of Kubernetes: a warning, once, and install."""
    kernel = FakeKernel()
    kernel.load(
        *("legacy", 4, ":KUBE - [0:0]", "-A OUTPUT -j KUBE"),
        "-A KUBE -d 10.96.0.1/32 -p tcp -j DNAT --to-destination 10.0.0.7:6443",
    )

    run = done(kernel)

    assert in_place(kernel) == both("legacy")
    (warning,) = warnings(run)
    assert "rule 1 of OUTPUT, '-j KUBE', stands in front" in warning
    assert (
        "(through chain KUBE); connections that it takes are not redirected" in warning
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_policy_that_drops_what_is_left_alone(version: Version) -> None:
    """The proxy itself could not connect: refused, with the command that mends it."""
    kernel = FakeKernel()
    done(kernel, mode="nft")
    kernel.load("nft", version, ":OUTPUT DROP [0:0]")
    program = "iptables-nft" if version == 4 else "ip6tables-nft"

    failed(
        kernel,
        Unreachable,
        "the policy of OUTPUT is DROP, so connections that are not redirected",
        mode="nft",
    )
    failed(kernel, Unreachable, f"{program} -t nat -P OUTPUT ACCEPT", mode="nft")


def test_a_table_that_is_put_to_sleep() -> None:
    """Rules that stand and that nothing asks are no redirect."""
    kernel = FakeKernel()
    done(kernel, mode="nft")
    kernel.asleep = {6}

    failed(kernel, Unreachable, "IPv6: table ip6 nat is dormant", mode="nft")
    failed(kernel, Unreachable, "wake it: nft add table ip6 nat", mode="nft")
    done(kernel, mode="legacy")


def test_a_stray_jump_of_ours_is_no_obstacle() -> None:
    """A jump of ours in a foreign chain goes in the same transaction."""
    kernel = FakeKernel()
    done(kernel)
    kernel.load(
        *("legacy", 4, ":DOCKER - [0:0]", "-A DOCKER -j PROXY_INIT_REDIRECT"),
        *("-F PREROUTING", "-A PREROUTING -j DOCKER"),
    )

    done(kernel)

    assert in_place(kernel) == both("legacy")
    assert kernel.table("legacy", 4).chains["DOCKER"].rules == []


# === auto ===

THEIRS = ("-A POSTROUTING -j MASQUERADE",)


@pytest.mark.parametrize(
    ("legacy", "nft", "chosen"),
    [
        pytest.param((), (), "nft", id="nothing anywhere: nft"),
        pytest.param(OURS, (), "legacy", id="ours in legacy"),
        pytest.param((), OURS, "nft", id="ours in nft"),
        pytest.param(OURS, THEIRS, "legacy", id="ours count more than others'"),
        pytest.param(OURS, OURS, "nft", id="ours in both: nft"),
        pytest.param(THEIRS, (), "legacy", id="anybody's in legacy"),
        pytest.param((), THEIRS, "nft", id="anybody's in nft"),
        pytest.param(THEIRS, THEIRS, "nft", id="anybody's in both: nft"),
        pytest.param(("",), (), "nft", id="an empty legacy table counts for nothing"),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_auto(
    legacy: tuple[str, ...], nft: tuple[str, ...], chosen: Kind, version: Version
) -> None:
    """The backend in use, in either family, is the one that both families get."""
    kernel = FakeKernel()
    if legacy:
        kernel.load("legacy", version, *legacy)
    if nft:
        kernel.load("nft", version, *nft)

    done(kernel, mode="auto")

    assert in_place(kernel) == both(chosen)


def test_auto_with_one_backend_only() -> None:
    """Where nft can't be had, legacy is taken."""
    kernel = FakeKernel()
    kernel.impose("no nf_tables")
    kernel.silent = {"nft"}

    done(kernel, mode="auto")

    assert in_place(kernel) == both("legacy")


# === the sysctl ===


def test_close_wait() -> None:
    """Checked before anything is written, set when all is in place."""
    kernel = FakeKernel()

    done(kernel, close_wait_s=3600)

    assert kernel.close_wait == 3600
    names = [call.program for call in kernel.calls]
    assert names[0] == "check_sysctl"
    assert names[-1] == "set_close_wait"


def test_no_close_wait() -> None:
    """Unasked, nobody looks at the setting."""
    kernel = FakeKernel()

    done(kernel)

    assert not {"check_sysctl", "set_close_wait"} & {c.program for c in kernel.calls}


def test_a_setting_that_can_t_be_written() -> None:
    """Known before the first write, so nothing has to be undone."""
    kernel = FakeKernel()
    kernel.sysctl_fault = "it needs root"

    failed(kernel, SysctlError, "it needs root", close_wait_s=1)

    assert [call.program for call in kernel.calls] == ["check_sysctl"]


def test_a_failed_install_sets_nothing() -> None:
    """The setting is the last thing that changes."""
    kernel = FakeKernel()
    kernel.impose("rules refused")

    failed(kernel, CommandFailed, "iptables refused the rules", close_wait_s=1)
