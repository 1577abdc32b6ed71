"""What nft lists, in every version's words: read back, and nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit.config import RedirectConfig, parse_ports, parse_subnet
from proxyinit.intervals import merge_ports, merge_subnets
from proxyinit.iptables_rule import DumpError
from proxyinit.nft_list import parse, parse_tables
from proxyinit.nft_rule import parse_rule, split_words
from proxyinit.nft_script import render, render_rule
from proxyinit.plan import plan_inet
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
    Extension,
    Family,
    InInterface,
    OutInterface,
    OwnerGid,
    OwnerUid,
    PortRange,
    Protocol,
    Rule,
    Ruleset,
    Sources,
    TcpPorts,
    Verdict,
    redirect_to,
)

if TYPE_CHECKING:
    from proxyinit.rules import Match, Version

PROPERTY = settings(deadline=None, max_examples=200)
TCP = Protocol("tcp")


def ports(*texts: str, negated: bool = False) -> TcpPorts:
    return TcpPorts(merge_ports(map(parse_ports, texts)), negated)


def sources(*texts: str, negated: bool = False) -> Sources:
    return Sources(merge_subnets(map(parse_subnet, texts)), negated)


def destinations(*texts: str) -> Destinations:
    return Destinations(merge_subnets(map(parse_subnet, texts)))


def words(text: str) -> Extension:
    return Extension("nft", tuple(split_words(text)))


# === every version's words ===

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


UNKNOWN = [
    "ct state established,related",
    "ct original ip daddr 10.0.0.1",
    "ct status dnat",
    "meta skuid { 0, 2102 }",
    'oif "lo"',
    "tcp dport @ports",
    "tcp dport ssh",
    "ip saddr 10.0.0.1/8",
    "ip saddr 10.0.0.1-10.0.0.0",
    "ip saddr . tcp dport { 10.0.0.1 . 80 }",
    "ip saddr & 255.0.0.255 == 10.0.0.1",
    "ip saddr != 0.0.0.0/0",
    "th dport 80",
    "udp dport 53",
    "meta l4proto . th dport { tcp . 53 }",
    "meta l4proto and 3 == 2",
    "meta l4proto { tcp, udp } th dport 53",
    "meta mark and 0xff == 0x1",
    'fib daddr . iif type local log prefix "accept { drop "',
    "limit rate 10/second burst 5 packets",
    'iifname "eth+"',
    r'iifname "eth\\*"',
    "numgen random mod 2 < 1",
    "meta nfproto 7",
    "socket cgroupv2 level 1 system.slice",
]


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


VERDICTS = [
    ("accept", Verdict("ACCEPT")),
    ("drop", Verdict("DROP")),
    ("return", RETURN),
    ("jump OTHER", Verdict("OTHER")),
    ("goto OTHER", Verdict("OTHER", goto=True)),
    ("redirect", Verdict("REDIRECT")),
    ("redirect to :4143", redirect_to(4143)),
    ("redirect to :1-9", Verdict("REDIRECT", ("redirect", "to", ":1-9"))),
    (
        "redirect to :4143 random",
        Verdict("REDIRECT", ("redirect", "to", ":4143", "random")),
    ),
    ("masquerade", Verdict("MASQUERADE")),
    ("dnat to 10.0.0.1", Verdict("DNAT", ("--to-destination", "10.0.0.1"))),
    ("dnat ip to 10.0.0.1:80", Verdict("DNAT", ("--to-destination", "10.0.0.1:80"))),
    ("dnat ip6 to [fd00::1]:80", Verdict("DNAT", ("--to-destination", "[fd00::1]:80"))),
    ("dnat ip6 to fd00::1", Verdict("DNAT", ("--to-destination", "fd00::1"))),
    (
        "dnat ip to ip saddr map { 1.1.1.1 : 2.2.2.2 }",
        Verdict(
            "DNAT",
            ("dnat", "ip", "to", "ip", "saddr", "map", "{ 1.1.1.1 : 2.2.2.2 }"),
        ),
    ),
    ("snat to 10.0.0.1", Verdict("SNAT", ("snat", "to", "10.0.0.1"))),
    ("queue to 3", Verdict("NFT", ("queue", "to", "3"))),
    ("reject with tcp reset", Verdict("NFT", ("reject", "with", "tcp", "reset"))),
    ("jump ACCEPT", Verdict("NFT", ("jump", "ACCEPT"))),
    ("jump { accept }", Verdict("NFT", ("jump", "{ accept }"))),
    (
        "meta l4proto vmap { udp : accept }",
        Verdict("NFT", ("meta", "l4proto", "vmap", "{ udp : accept }")),
    ),
    (
        "tcp dport vmap { 80 : accept }",
        Verdict("NFT", ("tcp", "dport", "vmap", "{ 80 : accept }")),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "verdict"), VERDICTS)
def test_a_verdict(text: str, verdict: Verdict) -> None:
    """By the names of iptables where it has the same; else kept, never guessed."""
    rule = parse_rule(split_words(f'meta l4proto tcp counter {text} comment "c"'))

    assert rule == Rule((TCP, Comment("c")), verdict)
    assert parse_rule(split_words(render_rule(rule))) == rule


# === tables ===

LISTING = """\
# Warning: table ip nat is managed by iptables-nft, do not touch!
table ip nat { # handle 3
>chain PREROUTING { # handle 1
>>type nat hook prerouting priority dstnat; policy accept;
>>xt match "comment" counter packets 1 bytes 2 xt target "REDIRECT"
>}
}
table inet proxy_init { # handle 4
>flags dormant
>set ports {
>>type inet_service
>>elements = { 80,
>>>90 }
>}

>chain PREROUTING {
>>comment "the chain's own"
>>type nat hook prerouting priority dstnat + 5; policy drop;
>>tcp dport { 1,
>>>2-3 } counter packets 0 bytes 0 return comment "two
lines { of it" # handle 12
>>jump {
>>>accept
>>}
>}

>chain EMPTY {
>}
}
""".replace(">", "\t")


def test_a_whole_listing() -> None:
    """Objects word for word, base chains with hook, number and policy, long sets."""
    assert parse(LISTING) == Ruleset(
        INET,
        (
            Chain(
                "PREROUTING",
                (
                    Rule((TCP, ports("1-3"), Comment("two\nlines { of it")), RETURN),
                    Rule((), Verdict("NFT", ("jump", "{ accept ; }"))),
                ),
                "DROP",
                "type nat hook prerouting priority -95",
            ),
            Chain("EMPTY"),
        ),
        (
            "flags dormant",
            "set ports {\n\t\ttype inet_service\n\t\telements = { 80,\n\t\t\t90 }\n\t}",
        ),
    )


def test_every_table_of_a_ruleset() -> None:
    """Each with its family and name; the version says whose packets it sees."""
    tables = parse_tables(LISTING)

    assert [(t.family, t.name, t.ruleset.version) for t in tables] == [
        ("ip", "nat", IPV4),
        ("inet", "proxy_init", INET),
    ]
    (rule,) = tables[0].ruleset.rules("PREROUTING")
    assert rule == Rule((words('xt match "comment" xt target "REDIRECT"'),), None)


def test_a_listing_without_our_table() -> None:
    """Empty, as when there is none."""
    assert parse("") == parse("table ip proxy_init {\n}\n") == Ruleset(INET)


@pytest.mark.parametrize(
    ("priority", "number"),
    [
        *(("dstnat", -100), ("-100", -100), ("dstnat - 10", -110), ("srcnat", 100)),
        *(("filter", 0), ("mangle + 1", -149), ("raw", -300), ("security", 50)),
    ],
)
def test_priorities(priority: str, number: int) -> None:
    """By name or by number, they are the same."""
    listing = (
        "table inet proxy_init {\n\tchain C {\n"
        f"\t\ttype nat hook prerouting priority {priority}; policy accept;\n\t}}\n}}\n"
    )

    (chain,) = parse(listing).chains

    assert chain.hook == f"type nat hook prerouting priority {number}"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("*nat\nCOMMIT\n", id="a dump of iptables"),
        pytest.param("Error: No such file or directory\n", id="an error's text"),
        pytest.param("table inet proxy_init {\n", id="no closing brace"),
        pytest.param(
            "table inet proxy_init {\n\tchain C {\n\t}\n", id="cut behind a chain"
        ),
        pytest.param(
            'table inet proxy_init {\n\tchain C {\n\t\tcomment "x\n\t}\n}\n',
            id="a quote that is not closed",
        ),
        pytest.param(
            "table inet proxy_init {\n\tchain C {\n\t\ttcp dport { 1,\n", id="in a set"
        ),
    ],
)
def test_no_listing(text: str) -> None:
    """A clear error, with what is wrong; never an empty table."""
    with pytest.raises(DumpError, match=r"expected|ends within|not closed"):
        parse(text)


# === properties ===

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
    addresses = st.ip_addresses(v=4 if version == IPV4 else 6)
    return st.builds("{}/{}".format, addresses, st.integers(1, 32))


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
        unknown = [text for text in UNKNOWN if text != "th dport 80"]
        found.append(words(draw(st.sampled_from(unknown))))
    if draw(flag):
        found.append(Comment(draw(comments)))
    return tuple(found)


verdicts = st.none() | st.sampled_from([verdict for _, verdict in VERDICTS][:-2])
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
@given(st.text() | st.binary().map(lambda data: data.decode("utf-8", "replace")))
def test_any_text(text: str) -> None:
    """It is a listing or a `DumpError`, never another failure."""
    for prefix in ("", "table inet proxy_init {\nchain C {\n", LISTING):
        try:
            parse(prefix + text)
        except DumpError:
            continue


PIECES = [
    *LISTING.split(),
    *('"', "{", "}", "!=", "meta", "tcp", "dport", "ip", "saddr", "\n", "redirect"),
    *("to", "dnat", "jump", "counter", "comment", "-", "/", ",", "0.0.0.0/0", ":"),
]


@PROPERTY
@given(st.lists(st.sampled_from(PIECES), max_size=40))
def test_any_order_of_words(pieces: list[str]) -> None:
    """The words of listings, shaken: a value or a `DumpError`."""
    text = " ".join(pieces)
    try:
        parse(f"table inet proxy_init {{\n\tchain C {{\n\t\t{text}\n\t}}\n}}\n")
        parse(text)
    except DumpError:
        return


@PROPERTY
@given(st.integers(0, 10_000))
def test_a_listing_cut_anywhere(at: int) -> None:
    """Half a table is never taken for a whole one."""
    config = RedirectConfig(4143, 4140, (2102,), (), (), (PortRange(1, 9),))
    whole = render(plan_inet(config, ipv6=True))
    end = at % (len(whole) - 1)

    if whole[:end].strip():
        with pytest.raises(DumpError):
            parse(whole[:end])


@PROPERTY
@given(st.text())
def test_a_comment_can_t_become_a_rule(text: str) -> None:
    """Nothing that a comment holds ends it: one rule is written, one read back."""
    table = Ruleset(INET, (Chain("C", (Rule((Comment(text),), RETURN),)),))

    (chain,) = parse(render(table)).chains

    assert [rule.verdict for rule in chain.rules] == [RETURN]
    assert chain.rules[0].reason == text.replace('"', "'")


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
