"""An install that fails: nothing else is tried, and what was there is put back."""

from __future__ import annotations

import pytest

from proxyinit import nft_list
from proxyinit.config import RedirectConfig
from proxyinit.converge import MAX_WRITES
from proxyinit.errors import CommandFailed, NotInPlace, SysctlError
from proxyinit.install import install
from proxyinit.options import Options
from proxyinit.privileges import LockHolder
from proxyinit.testing import KINDS, FakeKernel, run_on
from proxyinit.testing.table import Kind
from tests.fake_runs import (
    CONFIG,
    FOREIGN,
    OTHER,
    OURS,
    After,
    done,
    failed,
    feed,
    held,
    writes,
)


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

    assert run.said("warning") == []


def test_a_refusal_of_native_rules() -> None:
    """What nft said is shown, nothing else is tried, nothing has changed."""
    kernel = FakeKernel()
    kernel.impose("rules refused", "nft")

    run = failed(kernel, CommandFailed, "nft refused the rules", mode="nftables")

    assert [call.program for call in kernel.calls] == ["nft"]
    assert run.said("warning") == []


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
    assert any(
        "IPv4: put back what was there before" in line for line in run.said("warning")
    )


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


def test_a_failure_behind_the_install_puts_back_what_was_there() -> None:
    """Also what was damaged in the table that was found."""
    kernel = FakeKernel()
    done(kernel, OTHER, mode="nftables")
    feed(kernel, "table inet proxy_init {\n\tset s {\n\t\ttype ipv4_addr\n\t}\n}\n")
    before = nft_list.parse(kernel.native.dump())

    class Late(FakeKernel):
        def set_close_wait(self, seconds: int) -> None:
            raise SysctlError(f"not {seconds}")

    late = Late()
    late.native = kernel.native
    run = run_on(late, Options(mode="nftables", close_wait_s=5))
    with pytest.raises(SysctlError, match="not 5"):
        install(run.session, CONFIG)

    assert nft_list.parse(late.native.dump()) == before
    assert any("inet: put back what was there" in li for li in run.said("warning"))


def test_a_failed_first_install_leaves_no_table() -> None:
    """It was not there before."""
    kernel = After("table inet proxy_init {\n\tchain MINE {\n\t}\n}\n", MAX_WRITES)

    with pytest.raises(NotInPlace) as caught:
        done(kernel, mode="nftables")

    assert "inet: chain MINE is not wanted in our table" in str(caught.value)
    assert kernel.state() == {}
