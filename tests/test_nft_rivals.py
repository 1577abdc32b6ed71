"""Native tables of others: whether they take connections before ours."""

from __future__ import annotations

import pytest

from proxyinit.errors import Unreachable
from proxyinit.testing import KINDS, FakeKernel
from tests.fake_runs import NATIVE, RIVAL, done, failed, feed, in_place


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

    assert done(kernel, mode="nftables").said("warning") == []


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

    assert len(done(kernel, mode="nftables").said("warning")) == 1
    assert in_place(kernel) == {NATIVE}


def test_chains_of_others_by_our_names_are_theirs() -> None:
    """In another table a jump to such a chain is followed like any other."""
    kernel = FakeKernel()
    feed(kernel, RIVAL.replace("more", "PROXY_INIT_OUTPUT"))

    (warning,) = done(kernel, mode="nftables").said("warning")

    assert "table inet istio holds 'PROXY_INIT_OUTPUT: tcp dport 80" in warning


def test_tables_that_can_t_be_listed() -> None:
    """Rules of others are no reason to fail."""
    kernel = FakeKernel()
    feed(kernel, RIVAL)
    kernel.native.dump = lambda: "what is this"  # type: ignore[method-assign]

    (warning,) = done(kernel, mode="nftables").said("warning")

    assert "can't look at other native nftables rules: expected 'table" in warning


def test_tables_of_others_without_nft() -> None:
    """A machine with iptables alone is not bothered with it."""
    kernel = FakeKernel()
    feed(kernel, RIVAL)
    kernel.programs.discard("nft")

    assert done(kernel, mode="legacy").said("warning") == []
