"""The plan, whole: golden files, the seed's dump, and how ports are packed.

To renew the golden files after a change that is meant, and look at the difference:
``REFRESH_GOLDEN=1 .venv/bin/pytest tests/test_plan.py; git diff tests/golden``.
"""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit import options
from proxyinit.flags import INSTALL_FLAGS
from proxyinit.iptables_save import render
from proxyinit.nft_script import render as render_native
from proxyinit.pflag import parse
from proxyinit.plan import (
    MAX_COMMENT,
    MULTIPORT_SLOTS,
    pack_multiport,
    plan,
    plan_inet,
)
from proxyinit.reach import shadows
from proxyinit.rules import IPV4, IPV6, OUR_CHAINS, Family, PortRange, Ruleset

if TYPE_CHECKING:
    from proxyinit.rules import Version

GOLDEN = Path(__file__).with_name("golden")
SEED = (
    *("--incoming-proxy-port", "4143", "--outgoing-proxy-port", "4140"),
    *("--proxy-uid", "2102", "--inbound-ports-to-ignore", "4190,4191,4567,4568"),
    *("--outbound-ports-to-ignore", "4567,4568", "--ipv6=false"),
)
SIXTEEN = ",".join(map(str, range(8001, 8017)))
CASES = {
    "seed": SEED,
    "bare": ("-p4143", "-o4140"),
    "chart-defaults": (
        *("-p4143", "-o4140", "--proxy-uid=2102"),
        "--inbound-ports-to-ignore=4190,4191,4567,4568",
        "--outbound-ports-to-ignore=4567,4568",
    ),
    "sixteen-ports": (
        *("-p4143", "-o4140", "-u2102"),
        *(f"--inbound-ports-to-ignore={SIXTEEN}",),
        *(f"--outbound-ports-to-ignore={SIXTEEN}",),
    ),
    "fourteen-ports-and-a-range": (
        *("-p4143", "-o4140", "-u2102"),
        "--inbound-ports-to-ignore=1,2,3,4,5,6,7,8,9,10,11,12,13,14,20-30,40",
    ),
    "ports-to-redirect": (
        *("-p4143", "-o4140", "-u2102", "-r80", "-r443,9090"),
        "--inbound-ports-to-ignore=443",
    ),
    "owners": ("-p4143", "-o4140", "--proxy-uid=2102,0,4294967294", "-g0", "-g2102"),
    "subnets": (
        *("-p4143", "-o4140", "-u2102", "--inbound-ports-to-ignore=4190"),
        "--subnets-to-ignore=10.0.0.1/8,fd00::/8",
        "--inbound-subnets-to-ignore=192.168.0.0/16",
        "--outbound-subnets-to-ignore=169.254.0.0/16,fe80::/10,::ffff:1.2.3.4/128",
    ),
    "every-subnet": (
        *("-p4143", "-o4140", "-u2102", "--subnets-to-ignore=0.0.0.0/0"),
        "--outbound-subnets-to-ignore=::/0",
    ),
}


def planned(argv: tuple[str, ...], version: Version) -> Ruleset:
    arguments = parse(argv, INSTALL_FLAGS)
    assert arguments.problems == ()
    return plan(options.redirect_config(arguments), version)


def planned_inet(argv: tuple[str, ...]) -> Ruleset:
    arguments = parse(argv, INSTALL_FLAGS)
    config = options.redirect_config(arguments)
    return plan_inet(config, ipv6=options.options(arguments).ipv6)


@pytest.mark.parametrize(("version", "program"), [(4, "iptables"), (6, "ip6tables")])
@pytest.mark.parametrize("case", CASES)
def test_golden(case: str, version: Version, program: str) -> None:
    """The whole table, character by character, as it was read and approved."""
    file = GOLDEN / f"{case}.{program}.txt"
    text = render(planned(CASES[case], version))
    if "REFRESH_GOLDEN" in os.environ:
        file.write_text(text)

    assert text == file.read_text()


@pytest.mark.parametrize("case", CASES)
def test_golden_native(case: str) -> None:
    """The native table, as ``nft list table`` prints it once it is loaded."""
    file = GOLDEN / f"{case}.nft.txt"
    text = render_native(planned_inet(CASES[case]))
    if "REFRESH_GOLDEN" in os.environ:
        file.write_text(text)

    assert text == file.read_text()


def test_there_is_no_golden_file_too_many() -> None:
    """A file that no case compares would only look like a proof."""
    for kind in ("iptables", "ip6tables", "nft"):
        files = GOLDEN.glob(f"*.{kind}.txt")
        assert {file.name.partition(".")[0] for file in files} == set(CASES)


def test_the_seed_rule_for_rule() -> None:
    """What upstream's own iptables-legacy-save printed, chain by chain, in order."""
    dump = (GOLDEN / "seed-dump.txt").read_text().splitlines()

    lines = render(planned(SEED, IPV4)).splitlines()

    for name in (*OUR_CHAINS, "PREROUTING", "OUTPUT"):
        rules = [line for line in lines if line.startswith(f"-A {name} ")]
        assert rules
        assert rules == [line for line in dump if line.startswith(f"-A {name} ")]
    assert sorted(li for li in lines if li[0] == "-") == sorted(
        li for li in dump if li[0] == "-"
    )


@pytest.mark.parametrize("case", CASES)
def test_no_planned_rule_stands_in_the_way(case: str) -> None:
    """The plan alone lets every connection get to its own jumps."""
    for version in (IPV4, IPV6):
        assert list(shadows(planned(CASES[case], version))) == []


def port(low: int) -> PortRange:
    return PortRange(low, low)


PORTS = tuple(map(port, range(1, 40)))
WIDE = PortRange(100, 200)


@pytest.mark.parametrize(
    ("ranges", "sizes"),
    [
        pytest.param((), [], id="nothing makes no rule"),
        pytest.param(PORTS[:15], [15], id="fifteen ports fill a rule"),
        pytest.param(PORTS[:16], [15, 1], id="the sixteenth starts another"),
        pytest.param(PORTS[:31], [15, 15, 1], id="and so on"),
        pytest.param((WIDE,) * 7, [7], id="seven ranges leave a slot free"),
        pytest.param((WIDE,) * 8, [7, 1], id="a range does not fit in one slot"),
        pytest.param((*PORTS[:13], WIDE), [14], id="thirteen and a range fit"),
        pytest.param((*PORTS[:14], WIDE), [14, 1], id="fourteen and a range don't"),
        pytest.param(
            (*PORTS[:14], WIDE, PORTS[20]),
            [14, 2],
            id="a later port does not fill the gap: order is kept",
        ),
        pytest.param((WIDE, *PORTS[:14]), [14, 1], id="a range in front counts too"),
    ],
)
def test_packing(ranges: tuple[PortRange, ...], sizes: list[int]) -> None:
    """A multiport match takes fifteen slots, and a range needs two of them."""
    assert [len(group) for group in pack_multiport(ranges)] == sizes


@settings(deadline=None)
@given(st.lists(st.sampled_from((*PORTS, WIDE))))
def test_packing_loses_nothing(ranges: list[PortRange]) -> None:
    """Every range once and in order, no group empty, too full or closed too early."""
    groups = list(pack_multiport(ranges))

    assert list(chain.from_iterable(groups)) == ranges
    used = [sum(1 + (r.low != r.high) for r in group) for group in groups]
    assert all(0 < slots <= MULTIPORT_SLOTS for slots in used)
    for slots, following in zip(used, groups[1:], strict=False):
        assert slots + 1 + (following[0].low != following[0].high) > MULTIPORT_SLOTS


def test_subnets_are_split_by_family() -> None:
    """No IPv6 subnet gets into an IPv4 table, nor the other way round."""
    table4 = render(planned(CASES["subnets"], IPV4))
    table6 = render(planned(CASES["subnets"], IPV6))

    assert "fd00" not in table4
    assert "fe80" not in table4
    assert "10.0.0.0" not in table6
    assert "169.254" not in table6


# === the native table ===


MANY = "--inbound-ports-to-ignore=" + ",".join(map(str, range(1, 999, 2)))
NETS = "--outbound-subnets-to-ignore=" + ",".join(f"10.{n}.0.0/17" for n in range(200))


@pytest.mark.parametrize("case", [*CASES.values(), (*CASES["bare"], MANY, NETS)])
def test_comments_of_the_native_table_are_short_enough(case: tuple[str, ...]) -> None:
    """nft takes no longer ones; a list that does not fit is counted instead."""
    table = planned_inet(case)

    for chain_ in table.chains:
        for rule in chain_.rules:
            assert len(rule.reason) <= MAX_COMMENT


def test_a_list_of_any_length_is_one_rule() -> None:
    """Where multiport needs 34 rules, a set needs one; the rule says how many."""
    table = planned_inet((*CASES["bare"], MANY, NETS))

    reasons = [rule.reason for name in OUR_CHAINS for rule in table.rules(name)]
    assert "proxy-init/ignore-499-port-ranges" in reasons
    assert "proxy-init/ignore-200-subnets" in reasons


def test_without_ipv6_the_native_jumps_are_for_ipv4() -> None:
    """And nothing of IPv6 is in the table."""
    table = planned_inet((*CASES["subnets"], "--ipv6=false"))

    for name in ("PREROUTING", "OUTPUT"):
        (jump,) = table.rules(name)
        assert jump.matches[0] == Family(IPV4)
    assert "ip6" not in render_native(table)


def test_with_ipv6_the_native_jumps_are_for_both() -> None:
    """One rule for either version."""
    for name in ("PREROUTING", "OUTPUT"):
        (jump,) = planned_inet(CASES["subnets"]).rules(name)
        assert len(jump.matches) == 1  # the comment
