"""From any live table to the one wanted: scripts played by an independent reader.

`testing.table.FakeTable` takes the scripts; it shares no code with what writes them.
Tables are built and judged as text, so parsing can't hide a mistake of rendering.
"""

from __future__ import annotations

import copy
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit.config import RedirectConfig
from proxyinit.iptables_rule import render_rule
from proxyinit.iptables_save import parse
from proxyinit.plan import plan
from proxyinit.reconcile import (
    differences,
    install_script,
    is_jump,
    jumps,
    ours,
    removal_script,
    restore_script,
    result,
)
from proxyinit.rules import (
    IPV4,
    OUR_CHAINS,
    OUTPUT_CHAIN,
    REDIRECT_CHAIN,
    Chain,
    PortRange,
    Protocol,
    Rule,
    Ruleset,
    Verdict,
)
from proxyinit.testing.table import BUILTIN, FakeTable

PROPERTY = settings(deadline=None, max_examples=150)
Lines: TypeAlias = dict[str, list[str]]

CONFIG = RedirectConfig(
    4143, 4140, (2102,), inbound_ports_to_ignore=(PortRange(4190, 4191),)
)
WANTED = plan(CONFIG, IPV4)
PLANNED: Lines = {
    chain.name: list(map(render_rule, chain.rules)) for chain in WANTED.chains
}
(JUMP_IN,), (JUMP_OUT,) = PLANNED["PREROUTING"], PLANNED["OUTPUT"]
RIGHT = {"PREROUTING": JUMP_IN, "OUTPUT": JUMP_OUT}

FOREIGN = (
    "-p tcp -m tcp --dport 22 -j ACCEPT",
    "-m addrtype --dst-type LOCAL -j DOCKER",
    "-p udp -j RETURN",
    "-j PROXY_INIT_OUTPUT_OLD",
    "! -p tcp",
    '-m comment --comment "PROXY_INIT_REDIRECT" -j RETURN',
    r'-m comment --comment "a \"b\" \\ -j PROXY_INIT_OUTPUT" -j RETURN',
    '-m comment --comment "proxy-init/install-proxy-init-output" -j RETURN',
)
JUMPS = (
    JUMP_IN,
    JUMP_OUT,
    f"-j {REDIRECT_CHAIN}",
    f"-g {OUTPUT_CHAIN}",
    f"-i eth9 -j {REDIRECT_CHAIN}",
    f"-p tcp {JUMP_OUT}",
    f'-m comment --comment "it\\\'s \\"other\\"" -j {OUTPUT_CHAIN}',
)
# No script can say a line break: such a jump is found by its number alone.
BROKEN = f'-m comment --comment "a\nb -j X" -j {OUTPUT_CHAIN}'
STRAY = ("-p tcp -j ACCEPT", "-j RETURN", f"-p udp -j {OUTPUT_CHAIN}")


def leads_to_us(line: str) -> bool:
    option, target = line.split()[-2:]
    return option in ("-j", "-g") and target in OUR_CHAINS


def contents(*more: str) -> st.SearchStrategy[list[str]]:
    ours_too = JUMPS + (JUMP_IN, JUMP_OUT) * 3 + more
    rules = st.sampled_from(FOREIGN) | st.sampled_from(ours_too)
    return st.lists(rules, max_size=6)


@st.composite
def own_rules(draw: st.DrawFn, name: str) -> list[str] | None:
    """Our chain as it may be found: absent, right, or damaged in any way."""
    if draw(st.integers(0, 4)) == 0:
        return None
    rules = list(PLANNED[name])
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(rules)))
        match draw(st.sampled_from(["lose", "double", "add", "swap"])):
            case "lose":
                del rules[at : at + 1]
            case "double":
                rules[at:at] = rules[:1]
            case "add" if name == REDIRECT_CHAIN:
                rules.insert(at, draw(st.sampled_from(STRAY)))
            case _:
                rules.reverse()
    return rules


@st.composite
def tables(draw: st.DrawFn, foreign: Lines | None = None) -> FakeTable:
    """A live nat table; with `foreign`, what is not ours in it is just that."""
    own = {name: draw(own_rules(name)) for name in OUR_CHAINS}
    table = FakeTable()
    table.feed("*nat\n:DOCKER - [0:0]\n:PROXY_INIT_OUTPUT_OLD - [0:0]\nCOMMIT\n")
    for name, rules in own.items():
        if rules is not None:
            table.feed(f"*nat\n:{name} - [0:0]\nCOMMIT\n")
    known = [name for name in OUR_CHAINS if own[name] is not None]
    for name in ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING", "DOCKER"):
        lines = draw(contents(BROKEN))
        if foreign is not None:
            places = [line for line in lines if leads_to_us(line)]
            lines = list(foreign[name])
            for line in places:
                lines.insert(draw(st.integers(0, len(lines))), line)
        # A chain that is not there can't be jumped to, nor can a chain lead to itself.
        add(table, name, [ln for ln in lines if may_stand(ln, name, known)])
    for name, rules in own.items():
        add(table, name, [ln for ln in rules or () if may_stand(ln, name, known)])
    return table


def may_stand(line: str, chain: str, known: list[str]) -> bool:
    if leads_to_us(line):
        return line.rpartition(" ")[2] in known
    return not (chain == "DOCKER" and line.endswith("DOCKER"))


def add(table: FakeTable, chain: str, rules: list[str]) -> None:
    for rule in rules:
        if "\n" in rule:
            table.chains[chain].rules.append(rule)
        else:
            table.feed(f"*nat\n-A {chain} {rule}\nCOMMIT\n")


def rest(table: FakeTable) -> Lines:
    """Everything that is not ours, in its order."""
    return {
        name: [rule for rule in chain.rules if not leads_to_us(rule)]
        for name, chain in table.chains.items()
        if name not in OUR_CHAINS
    }


def played(script: str, table: FakeTable) -> FakeTable:
    after = copy.deepcopy(table)
    after.feed(script)
    return after


def read(table: FakeTable) -> Ruleset:
    return parse(table.dump(), IPV4)


@PROPERTY
@given(tables())
def test_install(live: FakeTable) -> None:
    """Ours is as planned, each jump once and in place, and nothing else is touched."""
    script = install_script(WANTED, read(live))
    after = played(script, live) if script else live

    assert rest(after) == rest(live)
    for name in OUR_CHAINS:
        assert after.chains[name].rules == PLANNED[name]
    for name, chain in after.chains.items():
        found = [rule for rule in chain.rules if leads_to_us(rule)]
        if name not in OUR_CHAINS:
            assert found == ([RIGHT[name]] if name in RIGHT else [])
    assert differences(WANTED, read(after)) == []
    assert ours(read(after)).rules("OUTPUT") == WANTED.rules("OUTPUT")


@PROPERTY
@given(tables())
def test_a_right_jump_keeps_its_place(live: FakeTable) -> None:
    """What others put behind it stays behind it; a missing one goes to the end."""
    after = played(install_script(WANTED, read(live)) or "*nat\nCOMMIT\n", live)

    for name, right in RIGHT.items():
        before = live.chains[name].rules
        last = max((n for n, r in enumerate(before) if r == right), default=None)
        kept = [r for n, r in enumerate(before) if n == last or not leads_to_us(r)]
        expected = kept if last is not None else [*kept, right]
        assert after.chains[name].rules == expected


@PROPERTY
@given(tables())
def test_a_second_install_writes_nothing(live: FakeTable) -> None:
    """What was just made differs in nothing from what is wanted."""
    after = played(install_script(WANTED, read(live)) or "*nat\nCOMMIT\n", live)

    assert install_script(WANTED, read(after)) == ""


@PROPERTY
@given(tables())
def test_the_result_is_foreseen(live: FakeTable) -> None:
    """Reachability is judged on the very table that the script leaves behind."""
    after = played(install_script(WANTED, read(live)) or "*nat\nCOMMIT\n", live)
    foreseen = result(WANTED, read(live))

    for chain in read(after).chains:
        assert foreseen.rules(chain.name) == chain.rules, chain.name


@PROPERTY
@given(tables())
def test_removal(live: FakeTable) -> None:
    """Exactly ours goes, and a second removal finds nothing."""
    script = removal_script(read(live))
    after = played(script, live) if script else live

    assert {name: chain.rules for name, chain in after.chains.items()} == rest(live)
    assert removal_script(read(after)) == ""


@PROPERTY
@given(st.data())
def test_rolling_back(data: st.DataObject) -> None:
    """Ours becomes what it was before, rule for rule and place for place."""
    before = data.draw(tables())
    live = data.draw(tables(rest(before)))

    script = restore_script(read(before), read(live))
    after = played(script, live) if script else live

    # A line break in a comment of ours is all that can't be put back.
    assert {n: c.rules for n, c in after.chains.items()} == {
        n: [rule.replace("\n", " ") for rule in c.rules]
        for n, c in before.chains.items()
    }


@PROPERTY
@given(st.data())
def test_rolling_back_when_others_changed_theirs(data: st.DataObject) -> None:
    """What others removed meanwhile stays removed, and ours comes back all the same."""
    before = data.draw(tables())
    fewer = {
        name: [rule for rule in rules if data.draw(st.booleans())]
        for name, rules in rest(before).items()
    }
    live = data.draw(tables(fewer))

    after = played(restore_script(read(before), read(live)), live)

    assert rest(after) == rest(live)
    for name, chain in before.chains.items():
        if name in OUR_CHAINS:
            assert after.chains[name].rules == chain.rules
        kept = [rule for rule in after.chains[name].rules if leads_to_us(rule)]
        assert kept == [
            rule.replace("\n", " ") for rule in chain.rules if leads_to_us(rule)
        ]


def test_rolling_back_when_a_chain_is_gone() -> None:
    """A jump of ours in a chain that others removed has no place to go back to."""
    before, live = FakeTable(), FakeTable()
    for table in (before, live):
        table.feed(f"*nat\n:{OUTPUT_CHAIN} - [0:0]\n-A OUTPUT {JUMP_OUT}\nCOMMIT\n")
    before.feed(f"*nat\n:DOCKER - [0:0]\n-A DOCKER -j {OUTPUT_CHAIN}\nCOMMIT\n")

    after = played(restore_script(read(before), read(live)), live)

    assert after == live


def test_rolling_back_to_a_builtin_chain_that_no_dump_shows() -> None:
    """Of a table that is not there, builtin chains are taken to exist."""
    script = restore_script(WANTED, Ruleset(IPV4))

    assert played(script, FakeTable()).chains["OUTPUT"].rules == [JUMP_OUT]


def test_fresh_table() -> None:
    """The whole script of a first install."""
    assert install_script(WANTED, Ruleset(IPV4)).splitlines() == [
        "*nat",
        f":{REDIRECT_CHAIN} - [0:0]",
        f":{OUTPUT_CHAIN} - [0:0]",
        *(f"-A {REDIRECT_CHAIN} {rule}" for rule in PLANNED[REDIRECT_CHAIN]),
        *(f"-A {OUTPUT_CHAIN} {rule}" for rule in PLANNED[OUTPUT_CHAIN]),
        f"-A PREROUTING {JUMP_IN}",
        f"-A OUTPUT {JUMP_OUT}",
        "COMMIT",
    ]


def changed(chain: str, *rules: Rule) -> Ruleset:
    """What is wanted, but for one chain."""
    chains = [Chain(c.name, rules) if c.name == chain else c for c in WANTED.chains]
    return Ruleset(IPV4, tuple(chains))


def differs(number: int, expected: str, found: str) -> str:
    return f"rule {number} of {REDIRECT_CHAIN}: expected {expected}, found {found}"


IN = WANTED.rules(REDIRECT_CHAIN)
(JUMP,) = WANTED.rules("OUTPUT")
WRONG = Rule((Protocol("tcp"),), Verdict(OUTPUT_CHAIN))


@pytest.mark.parametrize(
    ("live", "said"),
    [
        pytest.param(WANTED, [], id="nothing differs"),
        pytest.param(
            Ruleset(IPV4),
            [
                f"chain {REDIRECT_CHAIN} is missing",
                f"chain {OUTPUT_CHAIN} is missing",
                f"the jump of PREROUTING, '{JUMP_IN}', is missing",
                f"the jump of OUTPUT, '{JUMP_OUT}', is missing",
            ],
            id="nothing is there",
        ),
        pytest.param(
            changed(REDIRECT_CHAIN, IN[1]),
            [
                differs(1, f"'{render_rule(IN[0])}'", f"'{render_rule(IN[1])}'"),
                differs(2, f"'{render_rule(IN[1])}'", "none"),
            ],
            id="a rule is missing",
        ),
        pytest.param(
            changed(REDIRECT_CHAIN, *IN, IN[0]),
            [differs(3, "none", f"'{render_rule(IN[0])}'")],
            id="a rule too many",
        ),
        pytest.param(
            changed("OUTPUT", JUMP, JUMP),
            [f"the jump of OUTPUT, '{JUMP_OUT}', stands there 2 times"],
            id="a jump is doubled",
        ),
        pytest.param(
            changed("OUTPUT", WRONG),
            [
                f"the jump of OUTPUT, '{JUMP_OUT}', is missing",
                f"OUTPUT has the jump '-p tcp -j {OUTPUT_CHAIN}', which is not wanted",
            ],
            id="a jump with another condition",
        ),
    ],
)
def test_differences(live: Ruleset, said: list[str]) -> None:
    """Each difference is one sentence for people, and order counts."""
    assert differences(WANTED, live) == said
    assert bool(install_script(WANTED, live)) == bool(said)


def test_what_is_ours() -> None:
    """A rule is ours by where it leads, not by what its comment says."""
    assert is_jump(JUMP)
    assert not is_jump(Rule((), None))
    assert not is_jump(Rule((), Verdict("PROXY_INIT_OUTPUT_OLD")))
    assert list(jumps(WANTED)) == [
        ("PREROUTING", WANTED.rules("PREROUTING")[0]),
        ("OUTPUT", JUMP),
    ]
    assert set(BUILTIN) >= {name for name, _ in jumps(WANTED)}
