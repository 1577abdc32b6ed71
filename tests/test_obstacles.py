"""Rules of others in front of ours: refused by name, or a warning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proxyinit.errors import Unreachable
from proxyinit.testing import KINDS, VERSIONS, FakeKernel
from proxyinit.testing.table import Kind
from tests.fake_runs import OTHER, both, done, failed, in_place, writes

if TYPE_CHECKING:
    from proxyinit.rules import Version


ACCEPT = "-A PREROUTING -p tcp -m tcp --dport 80 -j ACCEPT"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_rule_in_front_that_ends_connections(kind: Kind, version: Version) -> None:
    """It is named with its number and how to delete it, and nothing is written."""
    kernel = FakeKernel()
    kernel.load(kind, version, "-A PREROUTING -p udp -j ACCEPT", ACCEPT)

    failed(
        kernel,
        Unreachable,
        "rule 2 of PREROUTING, '-p tcp -m tcp --dport 80 -j ACCEPT', stands in front",
        mode=kind,
    )

    assert writes(kernel) == []


def test_a_rule_behind_the_jump_is_no_obstacle() -> None:
    """Order counts: the same rule behind our jump takes nothing away."""
    kernel = FakeKernel()
    done(kernel)
    kernel.load("legacy", 4, ACCEPT)

    done(kernel, OTHER)

    assert in_place(kernel, OTHER) == both("legacy")


def test_a_chain_of_others_that_takes_some_connections() -> None:
    """It may be meant, as with services of Kubernetes: a warning, once, and install."""
    kernel = FakeKernel()
    kernel.load(
        *("legacy", 4, ":KUBE - [0:0]", "-A OUTPUT -j KUBE"),
        "-A KUBE -d 10.96.0.1/32 -p tcp -j DNAT --to-destination 10.0.0.7:6443",
    )

    run = done(kernel)

    assert in_place(kernel) == both("legacy")
    (warning,) = run.said("warning")
    assert "rule 1 of OUTPUT, '-j KUBE', stands in front" in warning
    assert (
        "(through chain KUBE); connections that it takes are not redirected" in warning
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_policy_that_drops_what_is_left_alone(version: Version) -> None:
    """The proxy itself could not connect: refused, with the command that mends it."""
    kernel = FakeKernel()
    done(kernel, mode="nft")
    kernel.load("nft", version, ":OUTPUT DROP [0:0]")
    program = "iptables-nft" if version == 4 else "ip6tables-nft"

    failed(
        kernel,
        Unreachable,
        "the policy of OUTPUT is DROP, so connections that are not redirected",
        mode="nft",
    )
    failed(kernel, Unreachable, f"{program} -t nat -P OUTPUT ACCEPT", mode="nft")


def test_a_table_that_is_put_to_sleep() -> None:
    """Rules that stand and that nothing asks are no redirect."""
    kernel = FakeKernel()
    done(kernel, mode="nft")
    kernel.asleep = {6}

    failed(kernel, Unreachable, "IPv6: table ip6 nat is dormant", mode="nft")
    failed(kernel, Unreachable, "wake it: nft add table ip6 nat", mode="nft")
    done(kernel, mode="legacy")


def test_a_stray_jump_of_ours_is_no_obstacle() -> None:
    """A jump of ours in a foreign chain goes in the same transaction."""
    kernel = FakeKernel()
    done(kernel)
    kernel.load(
        *("legacy", 4, ":DOCKER - [0:0]", "-A DOCKER -j PROXY_INIT_REDIRECT"),
        *("-F PREROUTING", "-A PREROUTING -j DOCKER"),
    )

    done(kernel)

    assert in_place(kernel) == both("legacy")
    assert kernel.table("legacy", 4).chains["DOCKER"].rules == []


def test_rivals_in_the_other_backend() -> None:
    """Which of two backends the kernel asks first can't be seen: a warning."""
    kernel = FakeKernel()
    kernel.load("nft", 6, "-A OUTPUT -p tcp -j REDIRECT --to-ports 15001")

    run = done(kernel)

    assert in_place(kernel) == both("legacy")
    (warning,) = run.said("warning")
    assert (
        "IPv6: iptables-nft holds '-A OUTPUT -p tcp -j REDIRECT --to-ports" in warning
    )
