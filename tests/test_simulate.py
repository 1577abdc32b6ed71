"""The simulation: the very bytes of a real run, and no trace of having looked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxyinit.config import RedirectConfig
from proxyinit.errors import Unreachable
from proxyinit.install import install
from proxyinit.options import Options
from proxyinit.rules import PortRange
from proxyinit.testing import KINDS, VERSIONS, FakeKernel, FakeRun, run_on
from proxyinit.testing.table import Kind

CONFIG = RedirectConfig(4143, 4140, (2102,))
OTHER = RedirectConfig(1, 2, (3,), inbound_ports_to_ignore=(PortRange(4, 5),))
PROGRAM = Path(sys.executable).with_name("proxy-init")


def simulated(kernel: FakeKernel, **options: object) -> FakeRun:
    """A simulation, which must leave every table, and which exist, as they were."""
    before = kernel.state()
    run = run_on(kernel, Options(simulate=True, **options))  # type: ignore[arg-type]
    install(run.session, CONFIG)
    assert kernel.state() == before
    assert kernel.fed() == []
    assert kernel.close_wait is None
    return run


def fed(kernel: FakeKernel, **options: object) -> list[str]:
    """What a real run feeds."""
    install(run_on(kernel, Options(**options)).session, CONFIG)  # type: ignore[arg-type]
    return kernel.fed()


@pytest.mark.parametrize("mode", [*KINDS, "plain", "auto"])
def test_a_first_install(mode: str) -> None:
    """On a machine without rules, byte by byte what is fed afterwards."""
    kernel = FakeKernel()

    assert simulated(kernel, mode=mode).shown == fed(kernel, mode=mode)


@pytest.mark.parametrize("mode", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_a_change(mode: Kind, other: Kind) -> None:
    """With an earlier install, here or in the other backend, and rules of others."""
    kernel = FakeKernel()
    install(run_on(kernel, Options(mode=other)).session, OTHER)
    for version in VERSIONS:
        kernel.load(mode, version, "-A OUTPUT -p udp -j ACCEPT")
    kernel.load(other, 4, "-A OUTPUT -j PROXY_INIT_OUTPUT")
    kernel.calls.clear()

    run = simulated(kernel, mode=mode)

    assert run.shown == fed(kernel, mode=mode)
    assert run.shown


def test_nothing_to_change() -> None:
    """A plan of nothing prints nothing."""
    kernel = FakeKernel()
    install(run_on(kernel, Options()).session, CONFIG)
    kernel.calls.clear()

    assert simulated(kernel).shown == []


def test_a_fallback() -> None:
    """The plan is that of the backend which a real run would change over to."""
    kernel = FakeKernel()
    kernel.programs.discard("iptables-legacy-restore")

    run = simulated(kernel)

    assert run.shown == fed(kernel)
    assert run.shown[0].startswith("# IPv4: iptables-nft-restore ")


def test_the_sysctl_is_a_comment() -> None:
    """It is neither checked nor set; the restore program would skip the line."""
    kernel = FakeKernel()
    kernel.sysctl_fault = "must not be asked"

    run = simulated(kernel, close_wait_s=3600)

    assert run.shown[-1] == (
        "# sysctl -w net.netfilter.nf_conntrack_tcp_timeout_close_wait=3600\n"
    )
    assert run.shown[:-1] == fed(FakeKernel())


def test_programs_that_are_not_there() -> None:
    """An empty table is assumed, which is said, and the whole plan is printed."""
    with_programs, without = FakeKernel(), FakeKernel()
    without.programs.clear()

    run = simulated(without)

    assert run.shown == fed(with_programs)
    assert sum("assuming it is empty" in line for line in run.said("warning")) == 2


def test_a_user_who_may_not_look() -> None:
    """Legacy is not read when only root may know of it; nft says that it may not."""
    kernel = FakeKernel()
    kernel.silent = {"legacy", "nft"}
    kernel.impose("no capabilities")

    for mode in KINDS:
        run = simulated(kernel, mode=mode)
        assert run.shown == fed(FakeKernel(), mode=mode)
        assumed = [li for li in run.said("warning") if "assuming it is empty" in li]
        assert len(assumed) == 2


def test_a_rule_in_the_way_is_an_error_here_too() -> None:
    """A plan that would not be carried out is not printed."""
    kernel = FakeKernel()
    kernel.load("legacy", 4, "-A PREROUTING -p tcp -j ACCEPT")
    run = run_on(kernel, Options(simulate=True))

    with pytest.raises(Unreachable, match="rule 1 of PREROUTING"):
        install(run.session, CONFIG)

    assert run.shown == []


def test_the_program_without_privileges(tmp_path: Path) -> None:
    """Where nothing may be read it prints the whole transaction, and exits with 0."""
    for kind in KINDS:
        program = tmp_path / f"iptables-{kind}-save"
        program.write_text("#!/bin/sh\necho 'you must be root' >&2\nexit 4\n")
        program.chmod(0o755)

    result = subprocess.run(
        [PROGRAM, "-p4143", "-o4140", "-u2102", "--ipv6=false", "--simulate"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        check=True,
        text=True,
    )

    assert result.stdout == "".join(fed(FakeKernel(), ipv6=False))
