"""What an earlier run left in another backend or family goes, and is reported."""

from __future__ import annotations

import pytest

from proxyinit.testing import KINDS, VERSIONS, FakeKernel
from proxyinit.testing.table import Kind
from tests.fake_runs import FOREIGN, NATIVE, OTHER, both, done, in_place, writes


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
    removed = f"removed rules of an earlier run from iptables-{other}"
    assert sum(removed in line for line in run.said("warning")) == 2


def test_leftovers_of_the_other_family() -> None:
    """IPv6 rules of an earlier run go when IPv6 is not wanted any more."""
    kernel = FakeKernel()
    done(kernel)

    run = done(kernel, ipv6=False)

    assert in_place(kernel) == {("legacy", 4)}
    (warning,) = run.said("warning")
    assert "IPv6: removed rules of an earlier run from iptables-legacy" in warning


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


@pytest.mark.parametrize("mode", KINDS)
def test_leftovers_in_iptables(mode: str) -> None:
    """They go in the same run, after the native redirect stands."""
    kernel = FakeKernel()
    done(kernel, OTHER, mode=mode)
    kernel.calls.clear()

    run = done(kernel, mode="nftables")

    assert in_place(kernel) == {NATIVE}
    removed = f"removed rules of an earlier run from iptables-{mode}"
    assert sum(removed in line for line in run.said("warning")) == 2
    assert writes(kernel)[0] == "nft"


@pytest.mark.parametrize("mode", [*KINDS, "plain"])
def test_a_native_leftover(mode: str) -> None:
    """The native table goes, after the rules in iptables stand."""
    kernel = FakeKernel()
    done(kernel, OTHER, mode="nftables")
    kernel.calls.clear()

    run = done(kernel, mode=mode)

    assert NATIVE not in kernel.state()
    (warning,) = run.said("warning")
    assert "inet: removed rules of an earlier run from nftables" in warning
    assert writes(kernel)[-1] == "nft"


def test_a_native_leftover_without_nft() -> None:
    """It can't be looked at, and that is said; the install stands."""
    kernel = FakeKernel()
    done(kernel, mode="nftables")
    kernel.programs.discard("nft")

    run = done(kernel, mode="legacy")

    assert NATIVE in kernel.state()
    assert any(
        "inet: can't look for rules of ours in nftables: not found: nft" in line
        for line in run.said("warning")
    )
