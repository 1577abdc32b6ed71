"""Whatever is written in nft's words is read back, and nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit.config import parse_subnet
from proxyinit.intervals import merge_ports, merge_subnets
from proxyinit.nft_list import parse
from proxyinit.nft_script import render
from proxyinit.rules import (
    INET,
    IPV4,
    IPV6,
    NAT_OUTPUT,
    NAT_PREROUTING,
    RETURN,
    Chain,
    Comment,
    Destinations,
    Family,
    InInterface,
    OutInterface,
    OwnerGid,
    OwnerUid,
    PortRange,
    Rule,
    Ruleset,
    Sources,
    TcpPorts,
)
from tests.nft_words import TCP, UNKNOWN, VERDICTS, words

if TYPE_CHECKING:
    from proxyinit.rules import Match, Version


PROPERTY = settings(deadline=None, max_examples=200)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,14}", fullmatch=True).map(
    lambda name: f"C{name}"
)
comments = st.text(
    st.characters(exclude_characters='"', exclude_categories=["Cs"]), max_size=40
)
some_ports = st.tuples(st.integers(1, 99), st.integers(0, 9)).map(
    lambda pair: PortRange(pair[0], pair[0] + pair[1])
)
ids = st.integers(0, 2**32 - 2)
interfaces = st.from_regex(r"[a-z][a-z0-9.]{0,10}[a-z0-9+]", fullmatch=True)


def subnets_of(version: Version) -> st.SearchStrategy[str]:
    prefixes = st.integers(1, 32 if version == IPV4 else 128)
    addresses = st.ip_addresses(v=4 if version == IPV4 else 6)
    return st.builds("{}/{}".format, addresses, prefixes)


@st.composite
def matches(draw: st.DrawFn) -> tuple[Match, ...]:
    """Matches in the one form that listings are read into."""
    found: list[Match] = []
    flag = st.booleans()
    if draw(flag):
        found.append(Family(draw(st.sampled_from([IPV4, IPV6])), draw(flag)))
    if draw(flag):
        version = draw(st.sampled_from([IPV4, IPV6]))
        texts = draw(st.lists(subnets_of(version), min_size=1, max_size=3))
        merged, no = merge_subnets(map(parse_subnet, texts)), draw(flag)
        if merged[0].prefix:
            sides: list[Match] = [Sources(merged, no), Destinations(merged, no)]
            found.append(draw(st.sampled_from(sides)))
    if draw(flag):
        owner, no = draw(ids), draw(flag)
        owners: list[Match] = [OwnerUid(owner, no), OwnerGid(owner, no)]
        found.append(draw(st.sampled_from(owners)))
    if draw(flag):
        name, no = draw(interfaces), draw(flag)
        ways: list[Match] = [InInterface(name, no), OutInterface(name, no)]
        found.append(draw(st.sampled_from(ways)))
    if draw(flag):
        found.append(TCP)
        if draw(flag):
            ranges = draw(st.lists(some_ports, min_size=1, max_size=5))
            found.append(TcpPorts(merge_ports(ranges), draw(flag)))
    if draw(flag):
        # Behind TCP these words are a match of the model.
        unknown = [text for text in UNKNOWN if text != "th dport 80"]
        found.append(words(draw(st.sampled_from(unknown))))
    if draw(flag):
        found.append(Comment(draw(comments)))
    return tuple(found)


verdicts = st.none() | st.sampled_from(
    # A map of verdicts takes the matches in front of it for its own words.
    [verdict for text, verdict in VERDICTS if "vmap" not in text]
)
rules = st.builds(Rule, matches(), verdicts)
chains = st.builds(
    Chain,
    names,
    st.lists(rules, max_size=4).map(tuple),
    st.none(),
) | st.builds(
    Chain,
    names,
    st.lists(rules, max_size=4).map(tuple),
    st.sampled_from(["ACCEPT", "DROP"]),
    st.sampled_from([NAT_PREROUTING, NAT_OUTPUT]),
)
tables = st.builds(
    Ruleset,
    st.just(INET),
    st.lists(chains, max_size=4).map(tuple),
    st.sampled_from([(), ("flags dormant",), ("set s {\n\t\ttype ipv4_addr\n\t}",)]),
)


@PROPERTY
@given(tables)
def test_what_is_written_is_read_back(table: Ruleset) -> None:
    """Every chain, rule, match, verdict and comment of the model, in order."""
    assert parse(render(table)) == table


@PROPERTY
@given(st.text())
def test_a_comment_can_t_become_a_rule(text: str) -> None:
    """Nothing that a comment holds ends it: one rule is written, one read back."""
    table = Ruleset(INET, (Chain("C", (Rule((Comment(text),), RETURN),)),))

    (chain,) = parse(render(table)).chains

    assert [rule.verdict for rule in chain.rules] == [RETURN]
    assert chain.rules[0].reason == text.replace('"', "'")
