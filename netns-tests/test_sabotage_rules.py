"""Whatever is done to a redirect, verify names it and proxy-init mends it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from damages import DAMAGES, Damage
from installed import PROGRAM
from saboteur import Saboteur

from proxyinit.config import RedirectConfig, parse_subnet
from proxyinit.lab import Namespace
from proxyinit.rules import PortRange
from proxyinit.verify import discover
from proxyinit.verify.checks import FAIL
from proxyinit.verify.node import Question, Report, examine
from proxyinit.verify.readback import Wanted

ARGUMENTS = (
    *("-p", "4143", "-o", "4140", "-u", "2102"),
    *("--inbound-ports-to-ignore", "4190", "--outbound-ports-to-ignore", "4567"),
    *("--outbound-subnets-to-ignore", "10.0.0.0/8,fd00::/8"),
)
WANTED = Wanted(
    RedirectConfig(
        4143,
        4140,
        (2102,),
        inbound_ports_to_ignore=(PortRange(4190, 4190),),
        outbound_ports_to_ignore=(PortRange(4567, 4567),),
        outbound_subnets_to_ignore=(
            parse_subnet("10.0.0.0/8"),
            parse_subnet("fd00::/8"),
        ),
    ),
    ipv6=True,
)


@pytest.fixture(scope="module")
def worker() -> Iterator[ProcessPoolExecutor]:
    """A process that examines namespaces from inside, as those of `verify --all`."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        yield pool


def install(namespace: Namespace, mode: str) -> tuple[int, str]:
    done = namespace.exec([PROGRAM, *ARGUMENTS, "--iptables-mode", mode])
    return done.returncode, done.stderr


def look(
    worker: ProcessPoolExecutor, namespace: Namespace, given: Wanted | None
) -> Report:
    target = discover.target(namespace.path)
    report = worker.submit(examine, Question(given=given), target).result()
    assert report
    return report


def named(report: Report, damage: Damage, mode: str) -> bool:
    native = damage.native_cause if mode == "nftables" else ""
    return any(
        (check.name, check.state) == (damage.check, damage.state)
        and re.search(native or damage.cause, check.found)
        and check.advice
        for check in report.judgement.checks
    )


def faults(report: Report) -> list[str]:
    return [
        f"{check.state} {check.name}: {check.found}"
        for check in report.faults
        if not check.name.endswith("proxy")  # none runs here
    ]


@pytest.mark.parametrize(
    ("mode", "damage"),
    [
        pytest.param(mode, damage, id=f"{mode}: {damage.name}")
        for damage in DAMAGES
        for mode in damage.modes
    ],
)
def test_damage_is_named_and_mended(
    namespace: Namespace, worker: ProcessPoolExecutor, mode: str, damage: Damage
) -> None:
    """Verify says what is wrong; proxy-init mends it, or leaves what is not its own."""
    code, said = install(namespace, mode)
    assert code == 0, said
    assert faults(look(worker, namespace, WANTED)) == []
    assert faults(look(worker, namespace, None)) == []

    damage.do(Saboteur(namespace, mode))

    for given in (WANTED,) if damage.blind else (WANTED, None):
        report = look(worker, namespace, given)
        assert named(report, damage, mode), faults(report)
        assert report.verdict == ("differs" if damage.state == FAIL else "intercepted")
    code, said = install(namespace, mode)
    after = look(worker, namespace, WANTED)
    if mode in damage.mended:
        assert code == 0, said
        assert faults(after) == []
    else:
        assert code == 1 or "level=warning" in said
        assert any(
            re.search(damage.left or damage.cause, fault) for fault in faults(after)
        )
