"""What verify says where one table could not be read: of that table nothing else."""

from __future__ import annotations

import pytest

from proxyinit.config import RedirectConfig
from proxyinit.plan import plan
from proxyinit.rules import IPV4, IPV6
from proxyinit.verify.checks import COULD_NOT_TELL, FAIL, OK, UNKNOWN
from proxyinit.verify.facts import UNSEEN, Facts, Survey
from proxyinit.verify.readback import Wanted
from proxyinit.verify.verdict import Judgement, judge

CONFIG = RedirectConfig(4143, 4140, (2102,))
WANTED = Wanted(CONFIG, ipv6=True)


def without(version: int, given: Wanted | None, said: str = "broken") -> Judgement:
    """What is said where one IP version's table can't be read, the other is well."""
    tables = {("nft", v): plan(CONFIG, v) for v in (IPV4, IPV6) if v != version}
    problems = {("nft", v): said for v in (IPV4, IPV6) if v == version}
    addresses = ("10.1.0.2", "fd00:1::2")
    return judge(Facts(survey=Survey(tables, problems), addresses=addresses), given)


@pytest.mark.parametrize("given", [None, WANTED], ids=["unasked", "as asked"])
@pytest.mark.parametrize("version", [IPV4, IPV6])
def test_no_rule_of_it_is_said_to_be_missing(
    version: int, given: Wanted | None
) -> None:
    """Nobody is sent to repair what was not seen; nor is it called intercepted."""
    judgement = without(version, given)
    states = {check.name: check.state for check in judgement.checks}

    assert [check for check in judgement.checks if check.state == FAIL] == []
    assert judgement.exit_code == COULD_NOT_TELL
    assert (states["readable"], states["rules"]) == (UNKNOWN, OK)
    assert states["IPv6"] == (UNKNOWN if version == IPV6 else OK)


def test_flags_are_not_read_from_one_half() -> None:
    """Subnets of the other IP version may be missing among them: none are shown."""
    assert without(IPV4, None).live is None
    assert without(IPV4, WANTED).live is None


def test_nothing_is_said_of_rules_when_none_could_be_read() -> None:
    """What is wanted of IPv4 alone can't be judged by what IPv6 holds."""
    judgement = without(IPV4, Wanted(CONFIG, ipv6=False))
    named = {check.name for check in judgement.checks}

    assert judgement.exit_code == COULD_NOT_TELL
    assert named.isdisjoint({"chains", "jumps", "rules", "owner bypass"})


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        pytest.param(UNSEEN, "run as root", id="a right is missing"),
        pytest.param(
            "not found: ip6tables-nft-save, ip6tables-nft-restore",
            "install the iptables package",
            id="a program is missing",
        ),
        pytest.param(
            "iptables-nft-save -t nat failed with status 3: Error: unknown ipv4 meta "
            "key\niptables-nft-save v1.8.9 (nf_tables): Parsing nftables rule failed",
            "remove them (nft list table ip nat; nft list table ip6 nat), or use "
            "--iptables-mode legacy",
            id="native rules between those of iptables-nft",
        ),
    ],
)
def test_the_next_step_is_that_of_the_cause(said: str, advice: str) -> None:
    """Nobody is sent to a program's stderr that was never started."""
    (check,) = (c for c in without(IPV6, None, said).checks if c.name == "readable")

    assert (check.state, check.advice) == (UNKNOWN, advice)
