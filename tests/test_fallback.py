"""A backend that can't be used: another takes over, or it is said why none does."""

from __future__ import annotations

import pytest

from proxyinit.errors import NoBackend
from proxyinit.install import install
from proxyinit.options import Options
from proxyinit.privileges import Privileges
from proxyinit.testing import KINDS, FakeKernel, Fault, run_on
from proxyinit.testing.table import Kind
from tests.fake_runs import CONFIG, FOREIGN, NATIVE, both, done, failed, held, in_place


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
    (warning,) = [line for line in run.said("warning") if "trying" in line]
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
    (warning,) = [line for line in run.said("warning") if "trying" in line]
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
    assert any("put back what was there before" in line for line in run.said("warning"))


def test_plain_falls_back_by_name() -> None:
    """Without plain programs the named ones are tried, nft first."""
    kernel = FakeKernel()
    kernel.programs -= {"iptables-save", "ip6tables-save"}

    done(kernel, mode="plain")

    assert in_place(kernel) == both("nft")


def test_plain_programs_of_two_backends() -> None:
    """Both families get one backend, so plain ones that differ can't be used."""
    kernel = FakeKernel()
    kernel.plain = {4: "legacy", 6: "nft"}

    run = done(kernel, mode="plain")

    assert in_place(kernel) == both("nft")
    (warning,) = run.said("warning")
    assert "iptables is legacy, ip6tables is nft" in warning


def test_plain_programs_that_don_t_say_their_version() -> None:
    """Those are older than the choice: legacy."""
    kernel = FakeKernel(plain="legacy")
    kernel.faults = [Fault("*-save", 2, "unknown option --version\n", times=2)]

    done(kernel, mode="plain")

    assert in_place(kernel) == both("legacy")


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


# === from native, and to it ===


@pytest.mark.parametrize(
    ("condition", "cause"),
    [
        ("no nfnetlink", "the kernel has no nf_tables"),
        ("no nf_tables", "the kernel's nf_tables does not answer"),
        ("no REDIRECT", "nf_tables lacks a part that the rules need"),
        ("no capabilities", "granted to the container"),
    ],
)
def test_fallback_from_native(condition: str, cause: str) -> None:
    """iptables-nft takes over; one warning has the cause and what nft printed."""
    kernel = FakeKernel()
    kernel.impose(condition, "nft")
    kernel.held = Privileges(65534, 0x3000, 0, no_new_privs=True)

    run = done(kernel, mode="nftables")

    assert in_place(kernel) == set(kernel.state()) == both("nft")
    (warning,) = run.said("warning")
    assert "nftables can't be used here: " in warning
    assert cause in warning
    assert "trying iptables-nft" in warning
    assert 'stderr="' in warning


def test_fallback_to_legacy() -> None:
    """Without any nf_tables: iptables-nft is given up as well, then legacy does it."""
    kernel = FakeKernel()
    kernel.impose("no nf_tables")

    run = done(kernel, mode="nftables")

    assert in_place(kernel) == set(kernel.state()) == both("legacy")
    assert [li.partition("trying ")[2][:12] for li in run.said("warning")] == [
        "iptables-nft",
        "iptables-leg",
    ]


def test_fallback_without_nft() -> None:
    """The program that lacks is named."""
    kernel = FakeKernel()
    kernel.programs.discard("nft")

    run = done(kernel, mode="nftables")

    assert in_place(kernel) == set(kernel.state()) == both("nft")
    (warning,) = run.said("warning")
    assert "nftables can't be used here: not found: nft; trying iptables-nft" in warning


@pytest.mark.parametrize("mode", ["legacy", "nft", "plain", "auto"])
def test_fallback_to_native(mode: str) -> None:
    """A machine that has nothing but nft redirects all the same."""
    kernel = FakeKernel()
    kernel.programs &= {"nft"}

    run = done(kernel, mode=mode)

    assert in_place(kernel) == {NATIVE}
    assert any("trying nftables" in line for line in run.said("warning"))


def test_nothing_is_left_to_try_behind_native() -> None:
    """Every backend is named with its cause; the advice names each package."""
    kernel = FakeKernel()
    kernel.programs.clear()

    failed(
        kernel,
        NoBackend,
        "nftables can't be used here: not found: nft",
        mode="nftables",
    )
    failed(kernel, NoBackend, "install the nftables package", mode="nftables")
    failed(kernel, NoBackend, "install the iptables package", mode="nftables")
