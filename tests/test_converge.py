"""Other programs at the tables meanwhile, and what only seems to be in place."""

from __future__ import annotations

import pytest

from proxyinit.backend import locate
from proxyinit.converge import MAX_WRITES
from proxyinit.errors import CommandFailed, NotInPlace
from proxyinit.install import install
from proxyinit.options import Options
from proxyinit.rules import INET
from proxyinit.testing import FakeKernel, Fault, run_on
from proxyinit.testing.kernel import OURS as OUR_TABLE
from tests.fake_runs import (
    CONFIG,
    JUMP,
    NATIVE,
    OTHER,
    OURS,
    After,
    both,
    done,
    feed,
    held,
    in_place,
    writes,
)


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
    """After some tries the run gives up, says what differs, and puts back the rest."""
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
    assert writes(kernel).count("iptables-legacy-restore") == MAX_WRITES + 1
    assert held(kernel).keys() == {("legacy", 4)}


def test_a_change_right_after_writing_natively() -> None:
    """What another program spoils before it is read back is mended in the same run."""
    kernel = FakeKernel()
    done(kernel, OTHER, mode="nftables")
    kernel.interference = [
        lambda _: None,
        lambda k: feed(k, "flush table inet proxy_init\n"),
    ]
    kernel.calls.clear()

    done(kernel, mode="nftables")

    assert in_place(kernel) == {NATIVE}


def test_a_program_that_does_nothing_is_found_out() -> None:
    """A script that is taken and not carried out is an error, not a success."""

    kernel = After("add table inet proxy_init\ndelete table inet proxy_init\n")
    with pytest.raises(NotInPlace, match="inet: chain PREROUTING is missing"):
        done(kernel, mode="nftables")


def test_a_listing_that_makes_no_sense() -> None:
    """It is not taken for an empty table."""
    kernel = FakeKernel()
    done(kernel, OTHER, mode="nftables")
    whole = kernel.native.listing(OUR_TABLE)
    kernel.native.listing = {OUR_TABLE: whole[:-2]}.__getitem__  # type: ignore[method-assign,assignment]

    run = run_on(kernel, Options(mode="nftables"))
    with pytest.raises(CommandFailed, match="can't be understood") as caught:
        install(run.session, CONFIG)
    assert "makes no sense: the listing ends within a table" in caught.value.stderr


@pytest.mark.parametrize(
    "said",
    ["Error: syntax error", "nft: cannot open shared object file: No such file or dir"],
)
def test_a_listing_that_fails_is_no_empty_table(said: str) -> None:
    """Only the one text says that the table is not there."""
    kernel = FakeKernel()
    done(kernel, OTHER, mode="nftables")
    kernel.faults = [Fault("nft", 127, f"{said}\n")]
    run = run_on(kernel, Options(mode="nftables"))

    with pytest.raises(CommandFailed):
        run.session.tables.read(locate(kernel, "nftables", [INET]), [INET])
