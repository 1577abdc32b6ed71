"""Native nftables on a kernel in memory: install, fallback, roll-back, leftovers."""

from __future__ import annotations

import pytest

from proxyinit.backend import locate
from proxyinit.cleanup import cleanup
from proxyinit.config import RedirectConfig
from proxyinit.converge import MAX_WRITES
from proxyinit.errors import (
    CommandFailed,
    NoBackend,
    NotInPlace,
    ProgramMissing,
    ProxyInitError,
    SysctlError,
    Unreachable,
)
from proxyinit.install import install
from proxyinit.nft_list import parse
from proxyinit.nft_script import render
from proxyinit.options import Options
from proxyinit.plan import plan_inet
from proxyinit.privileges import Privileges
from proxyinit.rules import INET, PortRange
from proxyinit.runner import Output
from proxyinit.testing import KINDS, VERSIONS, FakeKernel, FakeRun, Fault, run_on
from proxyinit.testing.kernel import OURS, Call
from proxyinit.testing.table import Kind

CONFIG = RedirectConfig(4143, 4140, (2102,))
OTHER = RedirectConfig(4144, 4140, (2102,), inbound_ports_to_ignore=(PortRange(1, 9),))
NATIVE = ("nftables", INET)
RIVAL = """\
table inet istio {
	chain mine {
		type nat hook output priority -100; policy accept;
		meta l4proto tcp counter jump more
	}

	chain more {
		tcp dport 80 redirect to :15001
	}
}
"""


def done(
    kernel: FakeKernel, config: RedirectConfig = CONFIG, **options: object
) -> FakeRun:
    """A run in mode nftables that must succeed."""
    run = run_on(kernel, Options(**{"mode": "nftables", **options}))  # type: ignore[arg-type]
    install(run.session, config)
    return run


def failed(
    kernel: FakeKernel, error: type[ProxyInitError], said: str, **options: object
) -> FakeRun:
    """A run that must fail so, and leave everything as it was."""
    before = kernel.state()
    run = run_on(kernel, Options(**{"mode": "nftables", **options}))  # type: ignore[arg-type]
    with pytest.raises(error) as caught:
        install(run.session, CONFIG)
    assert said in str(caught.value)
    assert kernel.state() == before
    return run


def assert_in_place(
    kernel: FakeKernel, config: RedirectConfig = CONFIG, *, ipv6: bool = True
) -> None:
    """The native table is as the configuration asks, and ours are nowhere else."""
    found = parse(kernel.native.listing(OURS))
    assert found == plan_inet(config, ipv6=ipv6)
    for (kind, _), dump in kernel.state().items():
        assert kind not in KINDS or "PROXY_INIT" not in dump


def programs(kernel: FakeKernel) -> list[str]:
    return [" ".join((call.program, *call.argv[1:])) for call in kernel.calls]


def feed(kernel: FakeKernel, script: str) -> None:
    """As another program that leaves no `Call`."""
    kernel.native.feed(script)


class After(FakeKernel):
    """A kernel where another program feeds a script behind each of ours, at first."""

    def __init__(self, script: str, times: int = 99) -> None:
        super().__init__()
        self.script = script
        self.times = times

    def _nft(self, call: Call) -> Output:
        output = super()._nft(call)
        if call.feeds and self.times:
            self.times -= 1
            feed(self, self.script)
        return output


LIST = "nft -nnn list table inet proxy_init"


# === the straight way ===


def test_first_install() -> None:
    """One transaction for both IP versions, and one reading back; no program more."""
    kernel = FakeKernel()

    run = done(kernel)

    assert_in_place(kernel)
    assert programs(kernel) == ["nft -f -", LIST]
    assert set(kernel.state()) == {NATIVE}
    assert run.said("warning") == []
    assert any("inet: redirect in place (nftables)" in li for li in run.said("info"))


def test_the_transaction_and_the_result_are_logged() -> None:
    """At info: what was fed, and the listing read back."""
    kernel = FakeKernel()

    info = "".join(done(kernel).said("info")).replace("\\n", "\n")
    info = info.replace("\\t", "\t").replace('\\"', '"')

    (script,) = kernel.fed()
    assert script.startswith("# inet: nft -f -\n")
    assert script in info
    assert kernel.native.listing(OURS) in info


def test_nothing_is_written_when_all_is_in_place() -> None:
    """A second run reads, and says that it had nothing to do."""
    kernel = FakeKernel()
    done(kernel)
    kernel.calls.clear()

    run = done(kernel)

    assert programs(kernel) == [LIST]
    assert any("already in place (nftables)" in line for line in run.said("info"))


def test_other_arguments_replace_the_rules() -> None:
    """Nothing of the first configuration is left."""
    kernel = FakeKernel()
    done(kernel)

    done(kernel, OTHER)

    assert_in_place(kernel, OTHER)


def test_ipv4_alone_and_ipv6_again() -> None:
    """The jumps get a condition, and lose it."""
    kernel = FakeKernel()
    done(kernel)

    done(kernel, ipv6=False)
    assert_in_place(kernel, ipv6=False)
    done(kernel)
    assert_in_place(kernel)


def test_a_kernel_without_ipv6() -> None:
    """One warning, and the table is for IPv4."""
    kernel = FakeKernel()
    kernel.ipv6 = False

    (warning,) = done(kernel).said("warning")

    assert "this kernel has no IPv6" in warning
    assert_in_place(kernel, ipv6=False)


@pytest.mark.parametrize("earlier", [None, CONFIG, OTHER], ids=str)
def test_a_simulation_prints_what_is_fed(earlier: RedirectConfig | None) -> None:
    """Byte by byte, and nothing is changed."""
    kernel = FakeKernel()
    if earlier:
        done(kernel, earlier)
    before = kernel.state()
    kernel.calls.clear()

    shown = done(kernel, simulate=True).shown

    assert (kernel.state(), kernel.fed()) == (before, [])
    done(kernel)
    assert shown == kernel.fed()


def test_a_simulation_without_nft() -> None:
    """It shows what would be fed to an empty table, and says that it assumes one."""
    kernel = FakeKernel()
    kernel.programs.clear()

    run = done(kernel, simulate=True)

    assert run.shown[0].startswith("# inet: nft -f -\nadd table inet proxy_init\n")
    assert any("nft is not installed" in line for line in run.said("warning"))


def test_a_silent_kernel_is_asked_by_nft() -> None:
    """Where netlink does not answer us, nft may know; absent is absent."""
    kernel = FakeKernel()
    kernel.silent = {"nftables", "nft", "legacy"}

    done(kernel)

    assert programs(kernel)[:2] == [LIST, "nft -f -"]
    assert_in_place(kernel)


@pytest.mark.parametrize(
    "said",
    ["Error: syntax error", "nft: cannot open shared object file: No such file or dir"],
)
def test_a_listing_that_fails_is_no_empty_table(said: str) -> None:
    """Only the one text says that the table is not there."""
    kernel = FakeKernel()
    done(kernel, OTHER)
    kernel.faults = [Fault("nft", 127, f"{said}\n")]
    run = run_on(kernel, Options(mode="nftables"))

    with pytest.raises(CommandFailed):
        run.session.tables.read(locate(kernel, "nftables", [INET]), [INET])


# === fallback ===


@pytest.mark.parametrize(
    ("condition", "cause"),
    [
        ("no nfnetlink", "the kernel has no nf_tables"),
        ("no nf_tables", "the kernel's nf_tables does not answer"),
        ("no REDIRECT", "nf_tables lacks a part that the rules need"),
        ("no capabilities", "granted to the container"),
    ],
)
def test_fallback_when_the_kernel_lacks_it(condition: str, cause: str) -> None:
    """iptables-nft takes over; one warning has the cause and what nft printed."""
    kernel = FakeKernel()
    kernel.impose(condition, "nft")
    kernel.held = Privileges(65534, 0x3000, 0, no_new_privs=True)

    run = done(kernel)

    assert set(kernel.state()) == {("nft", 4), ("nft", 6)}
    (warning,) = run.said("warning")
    assert "nftables can't be used here: " in warning
    assert cause in warning
    assert "trying iptables-nft" in warning
    assert 'stderr="' in warning


def test_fallback_to_legacy() -> None:
    """Without any nf_tables: iptables-nft is given up as well, then legacy does it."""
    kernel = FakeKernel()
    kernel.impose("no nf_tables")

    run = done(kernel)

    assert set(kernel.state()) == {("legacy", 4), ("legacy", 6)}
    assert [li.partition("trying ")[2][:12] for li in run.said("warning")] == [
        "iptables-nft",
        "iptables-leg",
    ]


def test_fallback_without_nft() -> None:
    """The program that lacks is named."""
    kernel = FakeKernel()
    kernel.programs.discard("nft")

    run = done(kernel)

    assert set(kernel.state()) == {("nft", 4), ("nft", 6)}
    (warning,) = run.said("warning")
    assert "nftables can't be used here: not found: nft; trying iptables-nft" in warning


@pytest.mark.parametrize("mode", ["legacy", "nft", "plain", "auto"])
def test_fallback_to_native(mode: str) -> None:
    """A machine that has nothing but nft redirects all the same."""
    kernel = FakeKernel()
    kernel.programs &= {"nft"}

    run = done(kernel, mode=mode)

    assert_in_place(kernel)
    assert any("trying nftables" in line for line in run.said("warning"))


def test_nothing_is_left_to_try() -> None:
    """Every backend is named with its cause; the advice names each package."""
    kernel = FakeKernel()
    kernel.programs.clear()

    failed(kernel, NoBackend, "nftables can't be used here: not found: nft")
    failed(kernel, NoBackend, "install the nftables package")
    failed(kernel, NoBackend, "install the iptables package")


def test_a_refusal_is_no_reason_to_change_over() -> None:
    """The line at fault is shown, nothing else is tried, nothing has changed."""
    kernel = FakeKernel()
    done(kernel, OTHER)
    kernel.impose("rules refused", "nft")
    kernel.faults[0].program = "nft"
    kernel.silent = {"nftables"}

    failed(kernel, CommandFailed, "nft refused the rules")


# === roll-back ===


def test_a_failure_behind_the_install_puts_back_what_was_there() -> None:
    """Also what was damaged in the table that was found."""
    kernel = FakeKernel()
    done(kernel, OTHER)
    feed(kernel, "table inet proxy_init {\n\tset s {\n\t\ttype ipv4_addr\n\t}\n}\n")
    before = parse(kernel.native.dump())

    class Late(FakeKernel):
        def set_close_wait(self, seconds: int) -> None:
            raise SysctlError(f"not {seconds}")

    late = Late()
    late.native = kernel.native
    run = run_on(late, Options(mode="nftables", close_wait_s=5))
    with pytest.raises(SysctlError, match="not 5"):
        install(run.session, CONFIG)

    assert parse(late.native.dump()) == before
    assert any("inet: put back what was there" in li for li in run.said("warning"))


def test_a_failed_first_install_leaves_no_table() -> None:
    """It was not there before."""
    kernel = After("table inet proxy_init {\n\tchain MINE {\n\t}\n}\n", MAX_WRITES)

    with pytest.raises(NotInPlace) as caught:
        done(kernel)

    assert "inet: chain MINE is not wanted in our table" in str(caught.value)
    assert kernel.state() == {}


def test_a_change_right_after_writing() -> None:
    """What another program spoils before it is read back is mended in the same run."""
    kernel = FakeKernel()
    done(kernel, OTHER)
    kernel.interference = [
        lambda _: None,
        lambda k: feed(k, "flush table inet proxy_init\n"),
    ]
    kernel.calls.clear()

    done(kernel)

    assert_in_place(kernel)


def test_a_program_that_does_nothing_is_found_out() -> None:
    """A script that is taken and not carried out is an error, not a success."""

    kernel = After("add table inet proxy_init\ndelete table inet proxy_init\n")
    with pytest.raises(NotInPlace, match="inet: chain PREROUTING is missing"):
        done(kernel)


def test_a_listing_that_makes_no_sense() -> None:
    """It is not taken for an empty table."""
    kernel = FakeKernel()
    done(kernel, OTHER)
    whole = kernel.native.listing(OURS)
    kernel.native.listing = {OURS: whole[:-2]}.__getitem__  # type: ignore[method-assign,assignment]

    run = run_on(kernel, Options(mode="nftables"))
    with pytest.raises(CommandFailed, match="can't be understood") as caught:
        install(run.session, CONFIG)
    assert "makes no sense: the listing ends within a table" in caught.value.stderr


# === leftovers ===


@pytest.mark.parametrize("mode", KINDS)
def test_leftovers_in_iptables(mode: str) -> None:
    """They go in the same run, after the native redirect stands."""
    kernel = FakeKernel()
    done(kernel, OTHER, mode=mode)
    kernel.calls.clear()

    run = done(kernel)

    assert_in_place(kernel)
    removed = f"removed rules of an earlier run from iptables-{mode}"
    assert sum(removed in line for line in run.said("warning")) == 2
    writes = [call.program for call in kernel.calls if call.feeds]
    assert writes[0] == "nft"


@pytest.mark.parametrize("mode", [*KINDS, "plain"])
def test_a_native_leftover(mode: str) -> None:
    """The native table goes, after the rules in iptables stand."""
    kernel = FakeKernel()
    done(kernel, OTHER)
    kernel.calls.clear()

    run = done(kernel, mode=mode)

    assert NATIVE not in kernel.state()
    (warning,) = run.said("warning")
    assert "inet: removed rules of an earlier run from nftables" in warning
    writes = [call.program for call in kernel.calls if call.feeds]
    assert writes[-1] == "nft"


def test_a_native_leftover_without_nft() -> None:
    """It can't be looked at, and that is said; the install stands."""
    kernel = FakeKernel()
    done(kernel)
    kernel.programs.discard("nft")

    run = done(kernel, mode="legacy")

    assert NATIVE in kernel.state()
    assert any(
        "inet: can't look for rules of ours in nftables: not found: nft" in line
        for line in run.said("warning")
    )


# === others' native tables ===


@pytest.mark.parametrize("mode", ["nftables", *KINDS])
def test_redirections_of_others(mode: str) -> None:
    """Which table the kernel asks first can't be seen: a warning with the rule."""
    kernel = FakeKernel()
    feed(kernel, RIVAL)

    run = done(kernel, mode=mode)

    (warning,) = run.said("warning")
    assert "nftables: table inet istio holds 'more: tcp dport 80" in warning
    assert "redirect to :15001', which may take connections before they" in warning
    assert "inet istio" in kernel.native.tables


@pytest.mark.parametrize(
    "harmless",
    [
        pytest.param(RIVAL.replace("redirect to :15001", "accept"), id="an accept"),
        pytest.param(RIVAL.replace("type nat", "type filter"), id="no nat chain"),
        pytest.param(RIVAL.replace("output", "postrouting"), id="another hook"),
        pytest.param(
            RIVAL.replace("l4proto tcp", "l4proto udp"), id="another protocol"
        ),
        pytest.param(RIVAL.replace("counter jump more", "return"), id="never reached"),
    ],
)
def test_what_takes_no_connection_is_not_mentioned(harmless: str) -> None:
    """Other tables' accepts, filters and other hooks leave ours to be asked."""
    kernel = FakeKernel()
    feed(kernel, harmless)

    assert done(kernel).said("warning") == []


EARLY = RIVAL.replace("priority -100", "priority -150")


@pytest.mark.parametrize("mode", ["nftables", *KINDS])
def test_a_table_that_takes_everything_first_is_refused(mode: str) -> None:
    """It is asked before ours and redirects all of TCP: named, and nothing written."""
    kernel = FakeKernel()
    feed(kernel, EARLY.replace("counter jump more", "redirect to :9"))

    failed(
        kernel,
        Unreachable,
        "table inet istio holds 'mine: meta l4proto tcp counter redirect to :9', "
        "which takes every connection",
        mode=mode,
    )
    failed(kernel, Unreachable, "nft delete table inet istio", mode=mode)


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(EARLY, id="some ports only"),
        pytest.param(
            RIVAL.replace("counter jump more", "redirect to :9"), id="asked with ours"
        ),
        pytest.param(
            EARLY.replace("-150", "-90").replace("counter jump more", "redirect"),
            id="asked after ours",
        ),
    ],
)
def test_a_table_that_may_take_connections_is_a_warning(table: str) -> None:
    """Where it can't be told who comes first, or some connections get through."""
    kernel = FakeKernel()
    feed(kernel, table)

    assert len(done(kernel).said("warning")) == 1
    assert_in_place(kernel)


def test_chains_of_others_by_our_names_are_theirs() -> None:
    """In another table a jump to such a chain is followed like any other."""
    kernel = FakeKernel()
    feed(kernel, RIVAL.replace("more", "PROXY_INIT_OUTPUT"))

    (warning,) = done(kernel).said("warning")

    assert "table inet istio holds 'PROXY_INIT_OUTPUT: tcp dport 80" in warning


def test_tables_that_can_t_be_listed() -> None:
    """Rules of others are no reason to fail."""
    kernel = FakeKernel()
    feed(kernel, RIVAL)
    kernel.native.dump = lambda: "what is this"  # type: ignore[method-assign]

    (warning,) = done(kernel).said("warning")

    assert "can't look at other native nftables rules: expected 'table" in warning


def test_tables_of_others_without_nft() -> None:
    """A machine with iptables alone is not bothered with it."""
    kernel = FakeKernel()
    feed(kernel, RIVAL)
    kernel.programs.discard("nft")

    assert done(kernel, mode="legacy").said("warning") == []


# === auto ===


@pytest.mark.parametrize(
    ("native", "iptables", "chosen"),
    [
        pytest.param(OURS, None, "nftables", id="ours, native"),
        pytest.param(OURS, "legacy", "nftables", id="ours count more than others'"),
        pytest.param("theirs", None, "nftables", id="anybody's, native"),
        pytest.param("theirs", "nft", "nft", id="anybody's in both: nft"),
        pytest.param("", "legacy", "legacy", id="anybody's in legacy"),
        pytest.param("", None, "nft", id="nothing anywhere: nft"),
    ],
)
def test_auto(native: str, iptables: Kind | None, chosen: str) -> None:
    """The backend in use is the one that gets the rules."""
    kernel = FakeKernel()
    if native:
        feed(kernel, RIVAL)
    if native == OURS:
        done(kernel, OTHER)
    if iptables:
        kernel.load(iptables, 6, "-A POSTROUTING -j MASQUERADE")

    done(kernel, mode="auto")

    if chosen == "nftables":
        assert_in_place(kernel)
    else:
        assert "PROXY_INIT" in kernel.state()[chosen, 4]
        assert NATIVE not in kernel.state()


# === cleanup ===


def cleaned(kernel: FakeKernel, **options: object) -> FakeRun:
    run = run_on(kernel, Options(**options))  # type: ignore[arg-type]
    cleanup(run.session)
    return run


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(render(plan_inet(CONFIG, ipv6=True)), id="whole"),
        pytest.param("add table inet proxy_init\n", id="empty"),
        pytest.param(
            "table inet proxy_init {\n\tflags dormant\n\tchain X {\n\t}\n}\n",
            id="changed",
        ),
    ],
)
def test_cleanup(table: str) -> None:
    """The table goes whole, others' stay; a second cleanup finds nothing."""
    kernel = FakeKernel()
    feed(kernel, RIVAL)
    before = kernel.state()
    feed(kernel, table)

    simulated = cleaned(kernel, simulate=True)
    assert kernel.fed() == []
    run = cleaned(kernel)

    assert kernel.state() == before
    assert kernel.fed() == simulated.shown
    assert any("inet: removed the redirect from nftables" in li for li in run.logged)
    assert any("nothing to remove" in line for line in cleaned(kernel).logged)


def test_cleanup_without_nft() -> None:
    """A table that can't be looked at is a failure, with what to install."""
    kernel = FakeKernel()
    done(kernel)
    kernel.programs.discard("nft")

    with pytest.raises(ProgramMissing, match="install the nftables package"):
        cleaned(kernel)


def test_cleanup_goes_on_behind_a_failure() -> None:
    """With the native table out of reach, iptables is cleaned all the same."""
    kernel = FakeKernel()
    for version in VERSIONS:
        kernel.load("nft", version, ":PROXY_INIT_OUTPUT - [0:0]")
    feed(kernel, render(plan_inet(CONFIG, ipv6=True)))
    kernel.faults = [Fault("nft", 1, "Operation not permitted (you must be root)\n")]

    with pytest.raises(CommandFailed, match="nft failed with status 1"):
        cleaned(kernel)

    assert {key for key, dump in kernel.state().items() if "PROXY_" in dump} == {NATIVE}


def test_a_table_that_comes_back() -> None:
    """Another proxy-init that installs meanwhile is named as the suspect."""
    kernel = FakeKernel()
    done(kernel)

    restless = After(render(plan_inet(CONFIG, ipv6=True)))
    restless.native = kernel.native
    with pytest.raises(NotInPlace, match="another proxy-init may be running"):
        cleaned(restless)
