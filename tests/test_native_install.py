"""Native nftables on a kernel in memory: what is run and written, or shown."""

from __future__ import annotations

import pytest

from proxyinit.config import RedirectConfig
from proxyinit.testing import FakeKernel
from proxyinit.testing.kernel import OURS as OUR_TABLE
from tests.fake_runs import CONFIG, NATIVE, OTHER, done, in_place

LIST = "nft -nnn list table inet proxy_init"


def programs(kernel: FakeKernel) -> list[str]:
    return [" ".join((call.program, *call.argv[1:])) for call in kernel.calls]


def test_first_install() -> None:
    """One transaction for both IP versions, and one reading back; no program more."""
    kernel = FakeKernel()

    run = done(kernel, mode="nftables")

    assert in_place(kernel) == {NATIVE}
    assert programs(kernel) == ["nft -f -", LIST]
    assert set(kernel.state()) == {NATIVE}
    assert run.said("warning") == []
    assert any("inet: redirect in place (nftables)" in li for li in run.said("info"))


def test_the_transaction_and_the_result_are_logged() -> None:
    """At info: what was fed, and the listing read back."""
    kernel = FakeKernel()

    info = "".join(done(kernel, mode="nftables").said("info")).replace("\\n", "\n")
    info = info.replace("\\t", "\t").replace('\\"', '"')

    (script,) = kernel.fed()
    assert script.startswith("# inet: nft -f -\n")
    assert script in info
    assert kernel.native.listing(OUR_TABLE) in info


def test_nothing_is_written_when_all_is_in_place() -> None:
    """A second run reads, and says that it had nothing to do."""
    kernel = FakeKernel()
    done(kernel, mode="nftables")
    kernel.calls.clear()

    run = done(kernel, mode="nftables")

    assert programs(kernel) == [LIST]
    assert any("already in place (nftables)" in line for line in run.said("info"))


def test_other_arguments_replace_the_rules() -> None:
    """Nothing of the first configuration is left."""
    kernel = FakeKernel()
    done(kernel, mode="nftables")

    done(kernel, OTHER, mode="nftables")

    assert in_place(kernel, OTHER) == {NATIVE}


def test_ipv4_alone_and_ipv6_again() -> None:
    """The jumps get a condition, and lose it."""
    kernel = FakeKernel()
    done(kernel, mode="nftables")

    done(kernel, mode="nftables", ipv6=False)
    assert in_place(kernel, ipv6=False) == {NATIVE}
    done(kernel, mode="nftables")
    assert in_place(kernel) == {NATIVE}


def test_a_kernel_without_ipv6() -> None:
    """One warning, and the table is for IPv4."""
    kernel = FakeKernel()
    kernel.ipv6 = False

    (warning,) = done(kernel, mode="nftables").said("warning")

    assert "this kernel has no IPv6" in warning
    assert in_place(kernel, ipv6=False) == {NATIVE}


@pytest.mark.parametrize("earlier", [None, CONFIG, OTHER], ids=str)
def test_a_simulation_prints_what_is_fed(earlier: RedirectConfig | None) -> None:
    """Byte by byte, and nothing is changed."""
    kernel = FakeKernel()
    if earlier:
        done(kernel, earlier, mode="nftables")
    before = kernel.state()
    kernel.calls.clear()

    shown = done(kernel, mode="nftables", simulate=True).shown

    assert (kernel.state(), kernel.fed()) == (before, [])
    done(kernel, mode="nftables")
    assert shown == kernel.fed()


def test_a_simulation_without_nft() -> None:
    """It shows what would be fed to an empty table, and says that it assumes one."""
    kernel = FakeKernel()
    kernel.programs.clear()

    run = done(kernel, mode="nftables", simulate=True)

    assert run.shown[0].startswith("# inet: nft -f -\nadd table inet proxy_init\n")
    assert any("nft is not installed" in line for line in run.said("warning"))


def test_a_silent_kernel_is_asked_by_nft() -> None:
    """Where netlink does not answer us, nft may know; absent is absent."""
    kernel = FakeKernel()
    kernel.silent = {"nftables", "nft", "legacy"}

    done(kernel, mode="nftables")

    assert programs(kernel)[:2] == [LIST, "nft -f -"]
    assert in_place(kernel) == {NATIVE}
