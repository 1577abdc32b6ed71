"""What `testing.FakeKernel` and a real kernel have to agree on, case by case.

A test plays each of `CASES` on an empty nat table, through `testing.FakeKernel`
or, in a network namespace of its own, through `runner.SystemRunner`; `outcome`
must be the one that the case names. Texts are those of iptables 1.8.9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxyinit.errors import CommandFailed

if TYPE_CHECKING:
    from proxyinit.rules import Version
    from proxyinit.runner import Runner
    from proxyinit.testing.table import Kind


@dataclass(frozen=True)
class Case:
    """Transactions fed one after the other to an empty table, and what follows.

    `statuses` are the restore program's exit codes, legacy's and nft's; `lines` the
    rules that are there afterwards; `said` a part of the last standard error,
    legacy's and nft's.
    """

    name: str
    scripts: tuple[tuple[str, ...], ...]
    lines: tuple[str, ...]
    statuses: tuple[int, int] = (0, 0)
    said: tuple[str, str] = ("", "")


_JUMP = '-A OUTPUT -m comment --comment "ours/jump" -j OURS'
_TWO = (":OURS - [0:0]", "-A OURS -o lo -j RETURN", _JUMP)
_TWO_LINES = (_JUMP, "-A OURS -o lo -j RETURN")
_PORTS = ",".join(map(str, range(1, 17)))
_SIXTEEN = f"-A OUTPUT -p tcp -m multiport --dports {_PORTS} -j RETURN"
_FAILED = ("line 2 failed", "line 2 failed: ")

CASES = (
    Case("chains and rules are made", (_TWO,), _TWO_LINES),
    Case("a declared chain is emptied", (_TWO, _TWO[:1]), (_JUMP,)),
    Case(
        "a builtin chain is not emptied",
        (_TWO, (":OUTPUT ACCEPT [0:0]",)),
        _TWO_LINES,
    ),
    Case("an appended rule is doubled", (_TWO, (_JUMP,)), (_JUMP, *_TWO_LINES)),
    Case(
        "of equal rules the first is deleted",
        (
            (*_TWO, "-A OUTPUT -p tcp -j ACCEPT", _JUMP),
            (_JUMP.replace("-A", "-D"),),
        ),
        ("-A OUTPUT -p tcp -j ACCEPT", *_TWO_LINES),
    ),
    Case(
        "a rule is inserted in front",
        (_TWO, ("-I OUTPUT -p tcp -j ACCEPT",)),
        ("-A OUTPUT -p tcp -j ACCEPT", *_TWO_LINES),
    ),
    Case(
        "a rule is inserted at its number",
        (_TWO, ("-I OUTPUT 2 -p tcp -j ACCEPT", "-I OUTPUT 2 -p udp -j ACCEPT")),
        (
            _JUMP,
            "-A OUTPUT -p udp -j ACCEPT",
            "-A OUTPUT -p tcp -j ACCEPT",
            "-A OURS -o lo -j RETURN",
        ),
    ),
    Case(
        "a rule is deleted by its number",
        ((*_TWO, "-A OUTPUT -p tcp -j ACCEPT"), ("-D OUTPUT 1",)),
        ("-A OUTPUT -p tcp -j ACCEPT", "-A OURS -o lo -j RETURN"),
    ),
    Case(
        "a number beyond the end is no place",
        (_TWO, ("-I OUTPUT 3 -p tcp -j ACCEPT",)),
        _TWO_LINES,
        (1, 1),
        ("line 2 failed", "line 2 failed: Index of insertion too big."),
    ),
    Case(
        "a number beyond the end is no rule",
        (_TWO, ("-D OUTPUT 2",)),
        _TWO_LINES,
        (1, 1),
        ("line 2 failed", "line 2 failed: Index of deletion too big."),
    ),
    Case(
        "everything of ours is removed",
        (_TWO, (_JUMP.replace("-A", "-D"), "-F OURS", "-X OURS")),
        (),
    ),
    Case(
        "a jump can move within one transaction",
        (
            (*_TWO, "-A OUTPUT -p tcp -j ACCEPT"),
            (_JUMP.replace("-A", "-D"), ":OURS - [0:0]", _JUMP),
        ),
        ("-A OUTPUT -p tcp -j ACCEPT", _JUMP),
    ),
    Case(
        "a comment keeps quotes, backslashes and options",
        ((r'-A OUTPUT -m comment --comment "a \"b\" \\ -j \'X\'" -j RETURN',),),
        (r'-A OUTPUT -m comment --comment "a \"b\" \\ -j \'X\'" -j RETURN',),
    ),
    Case(
        "deleting a rule that is not there undoes all",
        (_TWO, ("-D OUTPUT -j RETURN", "-A OUTPUT -p tcp -j ACCEPT")),
        _TWO_LINES,
        (1, 1),
        ("line 2 failed", "Bad rule (does a matching rule exist in that chain?)."),
    ),
    Case(
        "emptying a chain that is not there is refused",
        (("-F NONE",),),
        (),
        (1, 1),
        _FAILED,
    ),
    Case(
        "removing a chain that is not there is refused",
        (("-X NONE",),),
        (),
        (1, 1),
        _FAILED,
    ),
    Case(
        "removing a chain that is jumped to is refused",
        (_TWO, ("-F OURS", "-X OURS")),
        _TWO_LINES,
        (1, 4),
        ("line 3 failed", "CHAIN_DEL failed (Device or resource busy): chain OURS"),
    ),
    Case(
        "removing a chain with rules is refused",
        ((":OURS - [0:0]", "-A OURS -o lo -j RETURN", "-X OURS"),),
        (),
        (1, 4),
        ("line 4 failed", "CHAIN_DEL failed (Device or resource busy): chain OURS"),
    ),
    Case(
        "making a chain twice is refused",
        (("-N OURS", "-N OURS"),),
        (),
        (1, 1),
        ("line 3 failed", "Chain already exists."),
    ),
    Case(
        "appending to no chain is refused",
        (("-A NONE -j RETURN",),),
        (),
        (1, 1),
        ("line 2 failed", "No chain/target/match by that name."),
    ),
    Case(
        "an unknown target is refused",
        (("-A OUTPUT -j NOSUCH",),),
        (),
        (2, 2),
        ("Couldn't load target `NOSUCH'", "Chain 'NOSUCH' does not exist"),
    ),
    Case(
        "sixteen ports are refused",
        ((_SIXTEEN,),),
        (),
        (2, 2),
        ("too many ports specified", "too many ports specified"),
    ),
    Case("a stray word is refused", (("stray",),), (), (2, 2), ("Bad arg", "Bad arg")),
)


@dataclass(frozen=True)
class Outcome:
    """What a case came to: the last exit code and error text, the rules left."""

    status: int
    stderr: str
    lines: tuple[str, ...]


def outcome(case: Case, runner: Runner, kind: Kind, version: Version) -> Outcome:
    """Play a case on a nat table that is empty; the runner's programs do it."""
    family = f"ip{'6' if version == 6 else ''}tables-{kind}"
    restore = runner.find(f"{family}-restore") or ""
    save = runner.find(f"{family}-save") or ""
    status, stderr = 0, ""
    for script in case.scripts:
        text = "\n".join(["*nat", *script, "COMMIT", ""])
        try:
            runner.run([restore, "--noflush", "--wait=5"], text)
        except CommandFailed as error:
            status, stderr = error.status, error.stderr
    dump = runner.run([save, "-t", "nat"]).stdout
    rules = tuple(line for line in dump.splitlines() if line.startswith("-A"))
    return Outcome(status, stderr, rules)
