"""Tables that nft lists: read whole, or refused; never half of one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit.config import RedirectConfig
from proxyinit.iptables_rule import DumpError
from proxyinit.nft_list import parse, parse_tables
from proxyinit.nft_script import render
from proxyinit.plan import plan_inet
from proxyinit.rules import (
    INET,
    IPV4,
    RETURN,
    Chain,
    Comment,
    PortRange,
    Rule,
    Ruleset,
    Verdict,
)
from tests.nft_words import TCP, ports, words

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


PROPERTY = settings(deadline=None, max_examples=200)


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
