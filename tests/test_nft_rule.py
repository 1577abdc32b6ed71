"""One rule as nft lists it, in every version's words, and as it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proxyinit.config import parse_subnet
from proxyinit.intervals import merge_subnets
from proxyinit.nft_rule import parse_rule, split_words
from proxyinit.nft_script import render_rule
from proxyinit.rules import (
    IPV4,
    IPV6,
    RETURN,
    Comment,
    Destinations,
    Extension,
    Family,
    InInterface,
    OutInterface,
    OwnerGid,
    OwnerUid,
    Protocol,
    Rule,
    Sources,
    Verdict,
)
from tests.nft_words import TCP, UNKNOWN, VERDICTS, ports, words

if TYPE_CHECKING:
    from proxyinit.rules import Match


def sources(*texts: str, negated: bool = False) -> Sources:
    return Sources(merge_subnets(map(parse_subnet, texts)), negated)


def destinations(*texts: str) -> Destinations:
    return Destinations(merge_subnets(map(parse_subnet, texts)))


MATCHES: list[tuple[str, tuple[Match, ...]]] = [
    ("meta l4proto tcp", (TCP,)),
    ("meta l4proto 6", (TCP,)),
    ("l4proto tcp", (TCP,)),
    ("meta l4proto != udp", (Protocol("udp", negated=True),)),
    ("ip protocol tcp", (Family(IPV4), TCP)),
    ("tcp dport 80", (TCP, ports("80"))),
    ("tcp dport { 80 }", (TCP, ports("80"))),
    ("tcp dport { 80, 81, 90-99 }", (TCP, ports("80-81", "90-99"))),
    ("tcp dport 80-90", (TCP, ports("80-90"))),
    ("tcp dport != 80", (TCP, ports("80", negated=True))),
    ("tcp dport != { 80, 90 }", (TCP, ports("80", "90", negated=True))),
    ("meta l4proto tcp tcp dport 80", (TCP, ports("80"))),
    ("meta l4proto tcp th dport 80", (TCP, ports("80"))),
    ("meta nfproto ipv4", (Family(IPV4),)),
    ("meta nfproto 10", (Family(IPV6),)),
    ("meta nfproto != ipv6", (Family(IPV6, negated=True),)),
    ("ip saddr 10.0.0.0/8", (sources("10.0.0.0/8"),)),
    ("ip saddr 1.2.3.4", (sources("1.2.3.4/32"),)),
    ("ip saddr { 2.0.0.0/8, 1.0.0.0/8 }", (sources("1.0.0.0/8", "2.0.0.0/8"),)),
    ("ip saddr { 1.0.0.0-2.255.255.255 }", (sources("1.0.0.0/8", "2.0.0.0/8"),)),
    ("ip saddr != 10.0.0.0/8", (sources("10.0.0.0/8", negated=True),)),
    ("ip6 daddr { ::1, fd00::/8 }", (destinations("::1/128", "fd00::/8"),)),
    ("ip6 daddr fd00::-fd00::3", (destinations("fd00::/126"),)),
    ("ip daddr { 0.0.0.0/1, 128.0.0.0/1 }", (Family(IPV4),)),
    ("meta skuid 2102", (OwnerUid(2102),)),
    ("skuid 2102", (OwnerUid(2102),)),
    ("meta skgid != 0", (OwnerGid(0, negated=True),)),
    ('oifname "lo"', (OutInterface("lo"),)),
    ('meta iifname "eth*"', (InInterface("eth+"),)),
    ('iifname != "eth0"', (InInterface("eth0", negated=True),)),
]


@pytest.mark.parametrize(
    ("text", "expected"), [pytest.param(*case, id=case[0]) for case in MATCHES]
)
@pytest.mark.parametrize(
    "counter", ["", "counter", "counter packets 12 bytes 900"], ids=len
)
def test_a_match(text: str, expected: tuple[Match, ...], counter: str) -> None:
    """One meaning, one value, whatever words a version has for it."""
    line = f'{text} {counter} return comment "why" # handle 7'

    rule = parse_rule(split_words(line))

    assert rule == Rule((*expected, Comment("why")), RETURN)
    assert parse_rule(split_words(render_rule(rule))) == rule


@pytest.mark.parametrize("text", UNKNOWN)
def test_what_the_model_lacks_is_kept_word_for_word(text: str) -> None:
    """As one match, with the verdict behind it seen all the same."""
    rule = parse_rule(split_words(f'meta nfproto ipv4 {text} accept comment "c"'))

    kept = [match for match in rule.matches if isinstance(match, Extension)]
    assert [" ".join(match.args) for match in kept] == [text]
    assert rule.matches[-1] == Comment("c")
    assert rule.verdict == Verdict("ACCEPT")
    assert parse_rule(split_words(render_rule(rule))) == rule


def test_a_match_behind_an_unknown_one_belongs_to_it() -> None:
    """Whether its words mean what they seem to can't be known."""
    rule = parse_rule(split_words("ct mark 1 tcp dport 80 counter return"))

    assert rule == Rule((words("ct mark 1 tcp dport 80"),), RETURN)


@pytest.mark.parametrize(("text", "verdict"), VERDICTS)
def test_a_verdict(text: str, verdict: Verdict) -> None:
    """By the names of iptables where it has the same; else kept, never guessed."""
    rule = parse_rule(split_words(f'meta l4proto tcp counter {text} comment "c"'))

    assert rule == Rule((TCP, Comment("c")), verdict)
    assert parse_rule(split_words(render_rule(rule))) == rule


@pytest.mark.parametrize(
    "rule",
    [
        Rule((Protocol("tcp; flush ruleset"),), RETURN),
        Rule((), Verdict("X; flush ruleset")),
        Rule((), Verdict("DNAT", ("--to-destination", "1.1.1.1; flush ruleset"))),
        Rule((), Verdict("")),
    ],
)
def test_words_that_nft_could_take_for_more_are_refused(rule: Rule) -> None:
    """What stands without quotes is letters and digits, or nothing is written."""
    with pytest.raises(ValueError, match="expected letters, digits"):
        render_rule(rule)


def test_a_match_of_iptables_alone_has_no_words() -> None:
    """It is refused, as the name says, and not left out."""
    with pytest.raises(ValueError, match="no words for the iptables match 'recent'"):
        render_rule(Rule((Extension("recent", ("--set",)),), RETURN))
