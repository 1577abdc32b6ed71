"""Where a rule can't be decided both ways are gone, each with what it supposes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from proxyinit.explain.walk import MAX_FORKS
from proxyinit.iptables_save import parse
from proxyinit.rules import IPV4
from tests.one_table import OUT, ends, table, told

DUMPS = Path(__file__).with_name("dumps")


def test_both_ways_are_shown_where_it_can_not_be_known() -> None:
    """Each with the rules that it alone tries."""
    rules = table(
        "-A PREROUTING -m set --match-set a src -j ACCEPT",
        "-A PREROUTING -j REDIRECT --to-ports 5",
    )
    explanation = told(rules)

    assert not explanation.decided
    assert explanation.doubts == ("what the set a holds is not known",)
    assert explanation.sentence == (
        "undecided: not redirected, goes to 10.1.0.2:8080 as it is; or redirected to "
        "port 5, original destination 10.1.0.2:8080 preserved"
    )


def test_ways_that_fare_the_same_are_one_answer() -> None:
    """What is not known makes no difference then."""
    rules = table(
        "-A PREROUTING -m set --match-set a src -j REDIRECT --to-ports 5",
        "-A PREROUTING -j REDIRECT --to-ports 5",
    )
    explanation = told(rules)

    assert explanation.decided
    assert explanation.doubts


def test_a_question_has_one_answer_on_a_way() -> None:
    """Istio asks for its proxy's user again and again."""
    rules = parse((DUMPS / "istio.txt").read_text(encoding="utf-8"), IPV4)
    packet = replace(OUT, uid=None, gid=5, destination="127.0.0.1", interface=None)

    explanation = told(rules, packet)

    assert explanation.decided
    assert len(list(explanation.passages[0].trace.reasons())) == 1


@pytest.mark.parametrize("uid", [1337, 1338])
def test_an_owner_that_was_supposed_is_no_other(uid: int) -> None:
    """Who is user 5 is neither another nor outside 4 to 6."""
    rules = table(
        "-A OUTPUT -m owner --uid-owner 5 -j A",
        "-A OUTPUT -j REDIRECT --to-ports 1",
        f"-A A -m owner --uid-owner {uid} -j ACCEPT",
        "-A A -m owner ! --uid-owner 4-6 -j ACCEPT",
        "-A A -j REDIRECT --to-ports 2",
        heads=":A - [0:0]",
    )

    assert ends(rules, replace(OUT, uid=None)) == (
        ("redirected", "A", 3),
        ("redirected", "OUTPUT", 2),
    )


def test_an_owner_that_was_ruled_out_stays_so() -> None:
    """Who is none of 4 to 6 is not user 5."""
    rules = table(
        "-A OUTPUT -m owner --uid-owner 4-6 -j ACCEPT",
        "-A OUTPUT -m owner --uid-owner 5 -j DROP",
        "-A OUTPUT -j REDIRECT",
    )

    kinds = [kind for kind, _, _ in ends(rules, replace(OUT, uid=None))]
    assert kinds == ["untouched", "redirected"]


def test_whether_an_address_is_own_is_one_question() -> None:
    """If it is, packets to it leave by lo."""
    rules = table(
        "-A OUTPUT -m addrtype --dst-type LOCAL -j A",
        "-A OUTPUT -j REDIRECT --to-ports 1",
        "-A A -o lo -j ACCEPT",
        "-A A -j DROP",
        heads=":A - [0:0]",
    )
    packet = replace(OUT, interface=None, own=None, destination="10.3.3.3")

    assert [kind for kind, _, _ in ends(rules, packet)] == ["untouched", "redirected"]


def test_a_negated_option_of_several_is_no_negated_match() -> None:
    """If not both hold, it may be for the other one."""
    rules = table(
        "-A PREROUTING -m odd ! --one x --two y -j ACCEPT",
        "-A PREROUTING -m odd --one x --two y -j DROP",
        "-A PREROUTING -j REDIRECT",
    )

    assert [kind for kind, _, _ in ends(rules)] == [
        *("untouched", "dropped", "redirected"),
    ]


@pytest.mark.parametrize(
    ("between", "kinds"),
    [
        pytest.param("-j LOG", ["untouched"], id="it was not in the set"),
        pytest.param(
            "-j SET --add-set a src", ["untouched", "redirected"], id="it may be now"
        ),
        pytest.param(
            "-m limit --limit 1/sec -j SET --add-set a src",
            ["untouched", "redirected"],
            id="it may be by chance",
        ),
    ],
)
def test_a_set_is_asked_again_when_it_was_changed(
    between: str, kinds: list[str]
) -> None:
    """What was supposed of it holds until then."""
    rules = table(
        "-A PREROUTING -m set --match-set a src -j ACCEPT",
        f"-A PREROUTING {between}",
        "-A PREROUTING -m set --match-set a src -j REDIRECT",
    )

    assert sorted({kind for kind, _, _ in ends(rules)}) == sorted(kinds)


def test_what_is_random_is_asked_each_time() -> None:
    """Two coins, three outcomes."""
    coin = "-m statistic --mode random --probability 0.5"
    rules = table(*(f"-A PREROUTING {coin} -j REDIRECT --to-ports {n}" for n in (1, 2)))

    assert [kind for kind, _, _ in ends(rules)] == [
        *("redirected", "redirected", "untouched"),
    ]


def test_forks_are_bounded() -> None:
    """A thousand unknown sets are told as too many."""
    rules = [f"-A PREROUTING -m set --match-set s{n} src -j A" for n in range(1000)]

    explanation = told(table(*rules, "-A A -p udp", heads=":A - [0:0]"))

    assert not explanation.decided
    assert f"more than {MAX_FORKS} forks" in " ".join(explanation.doubts)


def test_unknown_targets_are_bounded_as_well() -> None:
    """Each may let the packet go on."""
    rules = table(*["-A PREROUTING -j NOSUCH"] * 1000)

    assert not told(rules).decided
