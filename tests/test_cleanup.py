"""The cleanup on a kernel in memory: exactly ours goes, wherever it is."""

from __future__ import annotations

import pytest

from proxyinit.cleanup import cleanup
from proxyinit.config import RedirectConfig
from proxyinit.errors import CommandFailed, NotInPlace, ProgramMissing
from proxyinit.install import install
from proxyinit.options import Options
from proxyinit.privileges import LockHolder
from proxyinit.testing import KINDS, VERSIONS, FakeKernel, run_on
from tests.fake_runs import cleaned

FOREIGN = (
    *(":DOCKER - [0:0]", "-A DOCKER -i docker0 -j RETURN"),
    "-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER",
    '-A OUTPUT -m comment --comment "not PROXY_INIT_OUTPUT" -p tcp -j RETURN',
)


def loaded() -> FakeKernel:
    """A kernel with rules of others in every table."""
    kernel = FakeKernel()
    for kind in KINDS:
        for version in VERSIONS:
            kernel.load(kind, version, *FOREIGN)
    return kernel


def redirect(kernel: FakeKernel) -> None:
    """Ours in every table, the second install's leftovers put back by hand."""
    for kind in KINDS:
        fresh = FakeKernel()
        install(run_on(fresh, Options(mode=kind)).session, RedirectConfig(1, 2))
        for version in VERSIONS:
            lines = fresh.table(kind, version).lines()
            chains = (":PROXY_INIT_REDIRECT - [0:0]", ":PROXY_INIT_OUTPUT - [0:0]")
            kernel.load(kind, version, *chains, *lines)


def test_everything_of_ours_goes() -> None:
    """In both backends and families; the rest is as it was, byte for byte."""
    kernel = loaded()
    before = kernel.state()
    redirect(kernel)
    assert kernel.state() != before

    run = cleaned(kernel)

    assert kernel.state() == before
    assert sum("removed the redirect" in line for line in run.said("info")) == 4


def test_damaged_rules_go_too() -> None:
    """Doubled jumps, jumps of other chains, a chain without a jump."""
    kernel = loaded()
    before = kernel.state()
    redirect(kernel)
    kernel.load("nft", 4, *["-A INPUT -j PROXY_INIT_REDIRECT"] * 2)
    kernel.load("nft", 6, "-A DOCKER -i x -g PROXY_INIT_OUTPUT")
    kernel.load("legacy", 4, "-F OUTPUT", *FOREIGN[3:])

    cleaned(kernel)

    assert kernel.state() == before


def test_nothing_was_there() -> None:
    """That is fine, is said, and makes no table."""
    kernel = FakeKernel()

    run = cleaned(kernel)

    assert kernel.calls == []
    assert any("nothing to remove" in line for line in run.said("info"))


def test_only_others_were_there() -> None:
    """Tables without anything of ours are read and left alone."""
    kernel = loaded()
    before = kernel.state()

    cleaned(kernel)

    assert kernel.state() == before
    assert kernel.fed() == []


def test_a_second_cleanup_finds_nothing() -> None:
    """The first one was complete."""
    kernel = loaded()
    redirect(kernel)
    cleaned(kernel)
    kernel.calls.clear()

    cleaned(kernel)

    assert kernel.fed() == []


def test_what_the_kernel_can_t_do_it_does_not_hold() -> None:
    """A backend that the kernel lacks is no failure of the cleanup."""
    kernel = FakeKernel()
    kernel.silent = {"legacy", "nft"}
    kernel.impose("no legacy nat table")
    kernel.impose("no nf_tables")

    cleaned(kernel)

    assert kernel.state() == {}


def test_missing_programs_are_a_failure_only_where_a_table_is() -> None:
    """Rules that can't be looked at may be ours; a table that is not there can't."""
    kernel = FakeKernel()
    kernel.programs.clear()
    cleaned(kernel)

    kernel.table("nft", 6)
    with pytest.raises(ProgramMissing, match="IPv6: a nft nat table may hold rules"):
        cleaned(kernel)


def test_one_failure_does_not_keep_the_rest() -> None:
    """All other tables are cleaned, then the failure is raised with its cause."""
    kernel = loaded()
    before = kernel.state()
    redirect(kernel)
    dirty = kernel.state()["legacy", 4]
    kernel.impose("held lock", "iptables-*")
    kernel.holders = [LockHolder(7, "x")]

    with pytest.raises(CommandFailed, match=r"held by process 7 \(x\)"):
        cleaned(kernel)

    assert kernel.state() == before | {("legacy", 4): dirty}


def test_more_failures_are_all_told() -> None:
    """The first is raised, the others are logged with what the program said."""
    kernel = loaded()
    redirect(kernel)
    kernel.impose("held lock")

    run = run_on(kernel, Options())
    with pytest.raises(CommandFailed, match="iptables-legacy-restore failed"):
        cleanup(run.session)

    (line,) = run.said("error")
    assert "ip6tables-legacy-restore failed" in line
    assert "Another app is currently holding the xtables lock" in line


def test_a_table_that_can_t_be_read() -> None:
    """Not permitted is a failure: there may be something of ours."""
    kernel = loaded()
    kernel.impose("no capabilities", "iptables-legacy-*")

    with pytest.raises(CommandFailed, match="iptables-legacy-save failed"):
        cleaned(kernel)


def test_rules_that_come_back() -> None:
    """Another proxy-init that installs meanwhile is named as the suspect."""
    kernel = FakeKernel()
    kernel.load("nft", 4, ":PROXY_INIT_OUTPUT - [0:0]")
    kernel.interference = [lambda k: k.load("nft", 4, ":PROXY_INIT_REDIRECT - [0:0]")]

    with pytest.raises(NotInPlace, match="another proxy-init may be running"):
        cleaned(kernel)


@pytest.mark.parametrize("kind", KINDS)
def test_a_simulated_cleanup_changes_nothing(kind: str) -> None:
    """It prints what a real one would feed."""
    kernel = loaded()
    redirect(kernel)
    before = kernel.state()

    run = cleaned(kernel, simulate=True)

    assert kernel.state() == before
    assert kernel.fed() == []
    cleaned(kernel)
    assert run.shown == kernel.fed()
    assert any(f"-{kind}-restore" in text for text in run.shown)
