"""The install on a kernel in memory: what is run and written, and nothing more."""

from __future__ import annotations

import pytest

from proxyinit.errors import CommandFailed, SysctlError
from proxyinit.testing import KINDS, VERSIONS, FakeKernel
from proxyinit.testing.table import Kind
from tests.fake_runs import FOREIGN, JUMP, OTHER, both, done, failed, in_place, writes


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
    assert run.said("warning") == []
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

    restores = [call.argv[1:] for call in kernel.calls if call.feeds]
    assert restores == [("--noflush", "--wait=7")] * 2


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

    texts = [*kernel.fed(), *kernel.state().values()]
    assert len(texts) == 4
    for text in texts:
        assert text in info


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
    (warning,) = run.said("warning")
    assert "this kernel has no IPv6" in warning


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
