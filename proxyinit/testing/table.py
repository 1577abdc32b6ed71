"""A nat table in memory, and the language of iptables-restore that changes it.

For `testing.FakeKernel`. It reads transactions by itself and shares no code with
the rest of the package, so that one can't cover up for the other. Rules are kept
as they were fed: the real kernel brings them to one form, so only rules that
iptables-save would print in the same words behave the same here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["legacy", "nft"]
"""The kernel interface that a frontend drives."""

BUILTIN = ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING")
TARGETS = frozenset(
    (
        *("ACCEPT", "DROP", "RETURN", "QUEUE", "REDIRECT", "DNAT", "SNAT"),
        *("MASQUERADE", "NETMAP", "LOG", "NFLOG", "MARK", "CONNMARK", "TRACE"),
    )
)


@dataclass
class FakeChain:
    """Rules as text, without ``-A CHAIN``; `policy` is None for a chain of users."""

    policy: str | None = None
    rules: list[str] = field(default_factory=list)


class Refused(Exception):
    """What iptables-restore does not take: each frontend's exit code and text."""

    def __init__(self, legacy: tuple[int, str], nft: tuple[int, str]) -> None:
        super().__init__(nft[1])
        self.said: dict[Kind, tuple[int, str]] = {"legacy": legacy, "nft": nft}


@dataclass
class FakeTable:
    """The nat table of one kernel interface and IP version."""

    chains: dict[str, FakeChain] = field(
        default_factory=lambda: {name: FakeChain("ACCEPT") for name in BUILTIN}
    )

    def lines(self) -> list[str]:
        """The rules as ``-A CHAIN ...``, chain by chain."""
        return [f"-A {n} {r}" for n, chain in self.chains.items() for r in chain.rules]

    def dump(self) -> str:
        """The table as iptables-save prints it, without its dated comments."""
        heads = [f":{n} {c.policy or '-'} [0:0]" for n, c in self.chains.items()]
        return "\n".join(["*nat", *heads, *self.lines(), "COMMIT", ""])

    def feed(self, script: str) -> None:
        """Take one transaction for nat; raises `Refused`, then nothing is as before.

        The caller keeps a copy: `FakeKernel` swaps only what went through.
        """
        committed = True
        number = 0
        for number, line in enumerate(script.splitlines(keepends=True), start=1):
            text = line.rstrip("\n")
            if not text or text.startswith("#"):
                continue
            if text == "*nat" and committed:
                committed = False
            elif text == "COMMIT" and not committed:
                committed = True
            elif committed:
                raise _failed(number, "unexpected line")
            elif text.startswith(":"):
                self._declare(text[1:].split())
            else:
                self._command(number, line)
        if not committed:
            said = 1, f"COMMIT expected at line {number + 1}"
            raise Refused(said, said)

    def _declare(self, words: list[str]) -> None:
        """With --noflush: a chain of users is made or emptied, builtins stay."""
        name, policy = words[0], words[1]
        if name not in BUILTIN:
            self.chains[name] = FakeChain()
        elif policy != "-":
            self.chains[name].policy = policy

    def _command(self, number: int, line: str) -> None:
        words, still_open = _words(line)
        if words[0] not in ("-A", "-D", "-I", "-F", "-N", "-X") or len(words) < 2:
            raise _usage(number, f"Bad argument `{words[0]}'")
        command, name = words[:2]
        if (name in self.chains) == (command == "-N"):
            known = "Chain already exists." if command == "-N" else _NO_SUCH
            raise _failed(number, known)
        if command == "-N":
            self.chains[name] = FakeChain()
        elif command == "-F":
            self.chains[name].rules.clear()
        elif command == "-X":
            self._remove_chain(number, name)
        else:
            text = line.split(None, 2)[2] if len(words) > 2 else ""
            self._change(number, command, name, f'{text}"' if still_open else text)

    def _change(self, number: int, command: str, name: str, text: str) -> None:
        rules, rule = self.chains[name].rules, text.rstrip(" \n")
        first, _, behind = rule.partition(" ")
        index = int(first) if first.isdigit() else None
        if command == "-D" and index is None:
            same = [n for n, r in enumerate(rules, 1) if _words(r) == _words(rule)]
            if not same:
                bad = "Bad rule (does a matching rule exist in that chain?)."
                raise _failed(number, bad)
            index = same[0]
        if index is not None and not 0 < index <= len(rules) + (command == "-I"):
            verb = "deletion" if command == "-D" else "insertion"
            raise _failed(number, f"Index of {verb} too big.")
        if command == "-D":
            del rules[(index or 1) - 1]
            return
        rule = rule if index is None else behind
        self._check(number, _words(rule)[0])
        rules.insert(len(rules) if command == "-A" else (index or 1) - 1, rule)

    def _check(self, number: int, words: list[str]) -> None:
        target = _after(words, "-j") or _after(words, "-g")
        if target and target not in TARGETS and target not in self.chains:
            raise _usage(
                number,
                f"Couldn't load target `{target}':No such file or directory\n",
                f"Chain '{target}' does not exist",
            )
        if len(_after(words, "--dports").replace(":", ",").split(",")) > 15:
            raise _usage(number, "too many ports specified")

    def _remove_chain(self, number: int, name: str) -> None:
        rules = [_words(r)[0] for c in self.chains.values() for r in c.rules]
        used = any(name in (_after(r, "-j"), _after(r, "-g")) for r in rules)
        if used or self.chains[name].rules or name in BUILTIN:
            busy = f"CHAIN_DEL failed (Device or resource busy): chain {name}"
            raise Refused((1, f"line {number} failed"), (4, f"line {number}: {busy}"))
        del self.chains[name]


_NO_SUCH = "No chain/target/match by that name."


def _failed(number: int, reason: str) -> Refused:
    """The kernel, or its copy in the program, says no: only nft says why."""
    said = f"line {number} failed"
    return Refused((1, said), (1, f"{said}: {reason}"))


def _usage(number: int, legacy: str, nft: str = "") -> Refused:
    """The line can't be understood."""
    where = f"\nError occurred at line: {number}"
    return Refused((2, legacy + where), (2, (nft or legacy) + where))


def _words(line: str) -> tuple[list[str], bool]:
    """The words of a line, and whether its last quote was never closed.

    As in xshared.c: within quotes a backslash takes the next character as it is,
    a closing quote ends the word, and an open one goes on to the line's end.
    """
    words: list[str] = []
    word, quoted, escaped = "", False, False
    for char in line:
        if quoted and escaped:
            word, escaped = word + char, False
        elif quoted and char == "\\":
            escaped = True
        elif quoted and char != '"':
            word += char
        elif char == '"' and not quoted:
            quoted = True
        elif char in '" \t\n':
            if word or quoted:
                words.append(word)
            word, quoted = "", False
        else:
            word += char
    return ([*words, word] if word or quoted else words), quoted


def _after(words: list[str], option: str) -> str:
    """The word after an option; a comment's text is no option."""
    for at, word in enumerate(words[:-1]):
        if word == option and words[at - 1] != "--comment":
            return words[at + 1]
    return ""
