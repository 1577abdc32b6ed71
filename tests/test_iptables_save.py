"""The language of iptables-save: what is written is read back, and nothing is lost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit.config import parse_subnet
from proxyinit.iptables_rule import (
    DumpError,
    parse_rule,
    quote,
    render_rule,
    split_words,
)
from proxyinit.iptables_save import parse, render
from proxyinit.rules import (
    IPV4,
    IPV6,
    RETURN,
    Chain,
    Comment,
    Destination,
    Extension,
    InInterface,
    OutInterface,
    OwnerGid,
    OwnerUid,
    PortRange,
    Protocol,
    Rule,
    Ruleset,
    Source,
    Subnet,
    TcpPort,
    TcpPorts,
    Verdict,
    redirect_to,
)

if TYPE_CHECKING:
    from proxyinit.rules import Match

DUMPS = sorted(Path(__file__).with_name("dumps").glob("*.txt"))
PROPERTY = settings(deadline=None, max_examples=150)

# === strategies ===

names = st.from_regex(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,27}", fullmatch=True)
texts = st.text(max_size=20) | st.sampled_from(
    [
        *(
            '"',
            "'",
            "\\",
            '\\"',
            '"" ',
            "a\nb",
            "-j X",
            "-m",
            "--comment",
            "",
            " ",
            "\xa0",
        ),
        *(
            "x\\",
            "\n-A OUTPUT -j DROP",
            "*nat",
            "COMMIT",
            "\t",
            "\x85",
            "a\\\nb",
            '\\\\"',
        ),
    ]
)
# A bare word that spells an option of the frame is one; iptables quotes no words.
words = texts.filter(lambda text: text not in ("-m", "-j", "-g", "--comment"))
negated = st.booleans()
numbers = st.integers(0, 2**32 - 2)
ports = st.integers(0, 65535)
ranges = st.tuples(ports, ports).map(lambda pair: PortRange(*sorted(pair)))
subnets = st.one_of(
    st.builds("{}/{}".format, st.ip_addresses(v=4), st.integers(0, 32)),
    st.builds("{}/{}".format, st.ip_addresses(v=6), st.integers(0, 128)),
).map(parse_subnet)
options = st.from_regex(r"--[a-z][a-z-]{1,9}", fullmatch=True).filter(
    lambda option: option not in ("--comment", "--dport", "--dports")
)
arguments = st.lists(
    st.one_of(
        options.map(lambda option: (option,)),
        st.tuples(options, words),
        st.tuples(st.just("!"), options, words),
    ),
    max_size=3,
).map(lambda groups: tuple(word for group in groups for word in group))
# iptables-save prints its own options in front of all matches.
own_matches: st.SearchStrategy[Match] = st.one_of(
    st.builds(Protocol, names, negated),
    st.builds(Source, subnets, negated),
    st.builds(Destination, subnets, negated),
    st.builds(InInterface, names | texts, negated),
    st.builds(OutInterface, names | texts, negated),
    st.sampled_from([Extension("", ("-f",)), Extension("", ("!", "-f"))]),
)
matches: st.SearchStrategy[Match] = st.one_of(
    st.builds(TcpPort, ranges, negated),
    st.builds(TcpPorts, st.lists(ranges, min_size=1).map(tuple), negated),
    st.builds(OwnerUid, numbers, negated),
    st.builds(OwnerGid, numbers, negated),
    st.builds(Comment, texts),
    st.builds(Extension, names.filter(lambda n: n != "owner"), arguments),
)
verdicts = st.none() | st.builds(
    Verdict, names, st.lists(texts, max_size=3).map(tuple), st.booleans()
)
rules = st.builds(
    lambda own, others, verdict: Rule((*own, *others), verdict),
    st.lists(own_matches, max_size=3),
    st.lists(matches, max_size=3),
    verdicts,
)
chains = st.builds(
    Chain,
    names,
    st.lists(rules, max_size=3).map(tuple),
    st.sampled_from([None, "ACCEPT", "DROP"]),
)
rulesets = st.builds(
    Ruleset,
    st.sampled_from([IPV4, IPV6]),
    st.lists(chains, max_size=4, unique_by=lambda chain: chain.name).map(tuple),
)


# === round trips ===


@PROPERTY
@given(rules)
def test_a_rule_is_read_back(rule: Rule) -> None:
    """Words and options of any rule of the model spell that rule again."""
    assert parse_rule(split_words(render_rule(rule))) == rule


@PROPERTY
@given(rulesets)
def test_a_table_is_read_back(table: Ruleset) -> None:
    """Chains, policies, rules and their order survive, whatever comments say."""
    assert parse(render(table), table.version) == table


@PROPERTY
@given(rulesets)
def test_a_table_is_read_back_from_its_text_alone(table: Ruleset) -> None:
    """What was rendered before does not help: every line is one not seen yet."""
    text = render(table)
    unseen = "".join(
        f"-A  {line.removeprefix('-A ')}" if line.startswith("-A ") else line
        for line in re.split(r"(?m)^(?=-A [\w.-]+ ?)", text)
    )
    if unseen.count("-A  ") != sum(len(chain.rules) for chain in table.chains):
        return  # a comment holds a line that looks like a rule

    assert parse(unseen, table.version) == table


@PROPERTY
@given(texts)
def test_quoting(text: str) -> None:
    """Any text is one word in quotes."""
    assert split_words(quote(text)) == [text]


def test_quoting_is_that_of_iptables() -> None:
    """Bare when it may be, else with all three quoting characters escaped."""
    assert quote("a-Z_0") == "a-Z_0"
    assert quote("a.b") == '"a.b"'
    assert quote("") == '""'
    assert quote("it's \"\\") == r'"it\'s \"\\"'


@pytest.mark.parametrize("file", DUMPS, ids=lambda file: file.stem)
def test_dump_of_another_program(file: Path) -> None:
    """What others put into nat comes back character by character."""
    dump = file.read_text()
    nat = dump[dump.index("*nat") : dump.rindex("COMMIT")] + "COMMIT\n"
    plain = re.sub(r"(?m)^(:\S+ \S+) \[\d+:\d+\]$", r"\1 [0:0]", nat)

    assert render(parse(dump, IPV4)) == plain


def test_counters_are_dropped() -> None:
    """A dump with counters, of iptables-save -c, means the same."""
    table = parse(
        "*nat\n:OUTPUT ACCEPT [9:8]\n[5:6] -A OUTPUT -j RETURN\nCOMMIT\n", IPV4
    )

    assert table == Ruleset(IPV4, (Chain("OUTPUT", (Rule((), RETURN),), "ACCEPT"),))


def test_another_table_is_not_ours() -> None:
    """Of a whole dump only the table asked for is read."""
    dump = (
        "*filter\n:INPUT DROP [0:0]\n-A INPUT nonsense\nCOMMIT\n"
        "*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n*raw\n:OUTPUT ACCEPT [0:0]\n"
    )

    assert parse(dump, IPV4) == Ruleset(IPV4, (Chain("OUTPUT", (), "ACCEPT"),))
    assert parse(dump, IPV4, "mangle") == Ruleset(IPV4)
    assert parse("", IPV6) == Ruleset(IPV6)


# === forms of single matches ===


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-p tcp", Protocol("tcp")),
        ("! -p 132", Protocol("132", negated=True)),
        ("-s 10.0.0.0/8", Source(Subnet(IPV4, "10.0.0.0", 8))),
        ("-s 10.0.0.1", Source(Subnet(IPV4, "10.0.0.1", 32))),
        ("! -d ::1", Destination(Subnet(IPV6, "::1", 128), negated=True)),
        ("-s 10.0.0.0/255.0.255.0", Extension("", ("-s", "10.0.0.0/255.0.255.0"))),
        ("-i eth+", InInterface("eth+")),
        ("! -o lo", OutInterface("lo", negated=True)),
        ("-m tcp --dport 80", TcpPort(PortRange(80, 80))),
        ("-m tcp ! --dport 0:80", TcpPort(PortRange(0, 80), negated=True)),
        ("-m udp --dport 80", Extension("udp", ("--dport", "80"))),
        ("-m tcp --sport 80", Extension("tcp", ("--sport", "80"))),
        ("-m tcp", Extension("tcp", ())),
        (
            "-m tcp --dport 80 --tcp-flags SYN SYN",
            Extension("tcp", ("--dport", "80", "--tcp-flags", "SYN", "SYN")),
        ),
        ("-m tcp --dport http", Extension("tcp", ("--dport", "http"))),
        (
            "-m multiport --dports 1,2:3",
            TcpPorts((PortRange(1, 1), PortRange(2, 3))),
        ),
        ("-m multiport --ports 1,2", Extension("multiport", ("--ports", "1,2"))),
        ("-m owner --uid-owner 0", OwnerUid(0)),
        ("-m owner ! --gid-owner 7", OwnerGid(7, negated=True)),
        ("-m owner --uid-owner 0-9", Extension("owner", ("--uid-owner", "0-9"))),
        ("-m owner --uid-owner ٣", Extension("owner", ("--uid-owner", "٣"))),
        ("-m comment --comment x", Comment("x")),
        ('-m comment --comment "-j DROP"', Comment("-j DROP")),
        ('-m comment --comment "-j"', Comment("-j")),
        ("-f", Extension("", ("-f",))),
        ('-m string --string "-m"', Extension("string", ("--string", "-m"))),
        ('-i "a b"', InInterface("a b")),
    ],
)
def test_match(text: str, expected: Match) -> None:
    """A form of the model becomes a value, any other is kept word for word."""
    rule = parse_rule(split_words(text))

    assert rule == Rule((expected,), None)


def test_verdicts() -> None:
    """A target with its arguments, a goto, and a rule that only counts."""
    assert parse_rule(split_words("-j REDIRECT --to-ports 4143")) == Rule(
        (), redirect_to(4143)
    )
    assert parse_rule(["-g", "KUBE"]) == Rule((), Verdict("KUBE", (), goto=True))
    assert parse_rule([]) == Rule((), None)


def test_reason() -> None:
    """The first comment is why a rule is there."""
    rule = Rule((Protocol("tcp"), Comment("a"), Comment("b")), None)

    assert rule.reason == "a"
    assert Rule((), None).reason == ""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a b\tc  d ", ["a", "b", "c", "d"]),
        ('a "b c" d', ["a", "b c", "d"]),
        ('"a"', ["a"]),
        ('""', [""]),
        (r'"a \"b\" \\ \'c\'"', ["a \"b\" \\ 'c'"]),
        ("it's a\\b", ["it's", "a\\b"]),
        ("a\xa0b\x85c", ["a\xa0b\x85c"]),
        ('x "a\xa0b" c\x1fd', ["x", "a\xa0b", "c\x1fd"]),
        ("", []),
    ],
    ids=repr,
)
def test_words(line: str, expected: list[str]) -> None:
    """Blanks and tabs separate, quotes join, backslashes escape within quotes only."""
    assert split_words(line) == expected


# === what no iptables-save prints ===


@pytest.mark.parametrize(
    ("dump", "said"),
    [
        ("*nat\n", "the dump ends within table nat, before COMMIT"),
        ("*nat\n:OUTPUT\nCOMMIT\n", "expected ':CHAIN POLICY"),
        ("*nat\n:\nCOMMIT\n", "expected ':CHAIN POLICY"),
        (
            "*nat\nnonsense\nCOMMIT\n",
            "expected a rule, '-A CHAIN ...', found 'nonsense'",
        ),
        ("*nat\n-A\nCOMMIT\n", "expected a rule, '-A CHAIN ...', found '-A'"),
        ("*nat\n-D OUTPUT -j X\nCOMMIT\n", "expected a rule, '-A CHAIN ...'"),
        ("*nat\n-A OUTPUT -j\nCOMMIT\n", "-j names no target in '-A OUTPUT -j'"),
        ("*nat\n-A OUTPUT -m\nCOMMIT\n", "-m names no match in '-A OUTPUT -m'"),
        ('*nat\n-A OUTPUT --comment "x\nCOMMIT\n', "a quote is not closed in"),
        ('*nat\n[0:0] -A OUTPUT --comment "x\nCOMMIT\n', "a quote is not closed in"),
    ],
    ids=repr,
)
def test_no_dump(dump: str, said: str) -> None:
    """Text that is no dump is refused, with the line at fault."""
    with pytest.raises(DumpError, match=re.escape(said)):
        parse(dump, IPV4)


def test_a_line_of_another_command_is_no_rule() -> None:
    """Not even when it ends in a rule that was written before."""
    jump = render_rule(Rule((Protocol("tcp"), Comment("seen")), RETURN))

    with pytest.raises(DumpError, match="expected a rule"):
        parse(f"*nat\n-D OUTPUT -A OUTPUT {jump}\nCOMMIT\n", IPV4)


damage = st.lists(
    st.sampled_from(
        [
            *(
                "*nat\n",
                "COMMIT\n",
                "-A OUTPUT ",
                ":X - ",
                '"',
                "\\",
                "\n",
                "! ",
                "-m ",
            ),
            *("--comment ", "tcp ", "--dport ", "80 ", "[1:2] ", "-g ", "-j ", "# "),
        ]
    )
    | st.text(max_size=5),
    max_size=30,
).map("".join)


@PROPERTY
@given(damage | damage.map(lambda text: f"*nat\n{text}\nCOMMIT\n"))
def test_any_text_is_read_or_refused(dump: str) -> None:
    """No text makes anything but an answer or a `DumpError`."""
    try:
        table = parse(dump, IPV4)
    except DumpError:
        return
    render(table)
