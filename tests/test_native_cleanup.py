"""The cleanup of the native table: it goes whole, and others' stay."""

from __future__ import annotations

import pytest

from proxyinit.errors import CommandFailed, NotInPlace, ProgramMissing
from proxyinit.nft_script import render
from proxyinit.plan import plan_inet
from proxyinit.testing import VERSIONS, FakeKernel, Fault
from tests.fake_runs import CONFIG, NATIVE, RIVAL, After, cleaned, done, feed


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
    done(kernel, mode="nftables")
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
    done(kernel, mode="nftables")

    restless = After(render(plan_inet(CONFIG, ipv6=True)))
    restless.native = kernel.native
    with pytest.raises(NotInPlace, match="another proxy-init may be running"):
        cleaned(restless)
