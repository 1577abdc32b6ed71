"""Mode auto: the backend that is in use gets the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proxyinit.testing import VERSIONS, FakeKernel
from proxyinit.testing.table import Kind
from tests.fake_runs import NATIVE, OTHER, OURS, RIVAL, both, done, feed, in_place

if TYPE_CHECKING:
    from proxyinit.rules import Version


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


@pytest.mark.parametrize(
    ("native", "iptables", "chosen"),
    [
        pytest.param("ours", None, "nftables", id="ours, native"),
        pytest.param("ours", "legacy", "nftables", id="ours count more than others'"),
        pytest.param("theirs", None, "nftables", id="anybody's, native"),
        pytest.param("theirs", "nft", "nft", id="anybody's in both: nft"),
        pytest.param("", "legacy", "legacy", id="anybody's in legacy"),
        pytest.param("", None, "nft", id="nothing anywhere: nft"),
    ],
)
def test_auto_with_native_tables(
    native: str, iptables: Kind | None, chosen: str
) -> None:
    """The backend in use is the one that gets the rules."""
    kernel = FakeKernel()
    if native:
        feed(kernel, RIVAL)
    if native == "ours":
        done(kernel, OTHER, mode="nftables")
    if iptables:
        kernel.load(iptables, 6, "-A POSTROUTING -j MASQUERADE")

    done(kernel, mode="auto")

    assert in_place(kernel) == ({NATIVE} if chosen == "nftables" else both(chosen))
