"""What `testing.FakeKernel` and a real kernel have to agree on when nft is used.

A test plays each of `NATIVE_CASES` where there is no table, here and there, as those
of `cases`; `native_outcome` must be the one that the case names. Texts are those of
nft 1.0.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxyinit.errors import CommandFailed

if TYPE_CHECKING:
    from proxyinit.runner import Runner


@dataclass(frozen=True)
class NativeCase:
    """Scripts fed to nft one after the other, and what follows.

    `status` is the last exit code that is not 0, `listing` what our table holds in
    the end, line by line without blanks around them; None when it is not there.
    `said` is a part of the last standard error.
    """

    name: str
    scripts: tuple[str, ...]
    listing: tuple[str, ...] | None
    status: int = 0
    said: str = ""


_IN = "type nat hook prerouting priority -100; policy accept;"
_RULE = 'meta l4proto tcp counter redirect to :4143 comment "why { not"'
_LISTED = (
    'meta l4proto 6 counter packets 0 bytes 0 redirect to :4143 comment "why { not"'
)


def _native(*blocks: tuple[str, ...]) -> str:
    """A script that adds to our table, one block of lines for each chain."""
    lines = ["table inet proxy_init {"]
    for name, *inside in blocks:
        lines += [f"\tchain {name} {{", *(f"\t\t{line}" for line in inside), "\t}"]
    return "\n".join([*lines, "}", ""])


_WHOLE = _native(("PREROUTING", _IN, "counter jump OURS"), ("OURS", _RULE))
_WHOLE_LISTED = (
    *("chain PREROUTING {", _IN, "counter packets 0 bytes 0 jump OURS", "}"),
    *("chain OURS {", _LISTED, "}"),
)
_NO_SUCH = "Could not process rule: No such file or directory"

NATIVE_CASES = (
    NativeCase("chains and rules are made", (_WHOLE,), _WHOLE_LISTED),
    NativeCase(
        "what is added twice stands there twice",
        (_WHOLE, _native(("OURS", _RULE))),
        (*_WHOLE_LISTED[:-1], _LISTED, "}"),
    ),
    NativeCase(
        "a flush empties every chain and keeps them",
        (_WHOLE, "flush table inet proxy_init\n"),
        ("chain PREROUTING {", _IN, "}", "chain OURS {", "}"),
    ),
    NativeCase(
        "a table is replaced in one script",
        (_WHOLE, f"add table inet proxy_init\nflush table inet proxy_init\n{_WHOLE}"),
        _WHOLE_LISTED,
    ),
    NativeCase(
        "a table is made and flushed in one script",
        (f"add table inet proxy_init\nflush table inet proxy_init\n{_WHOLE}",),
        _WHOLE_LISTED,
    ),
    NativeCase(
        "a table is deleted and made again in one script",
        (
            _native(("PREROUTING", _IN.replace("-100", "-90")), ("OTHER",)),
            f"add table inet proxy_init\ndelete table inet proxy_init\n{_WHOLE}",
        ),
        _WHOLE_LISTED,
    ),
    NativeCase(
        "adding and deleting is no error where there is none",
        ("add table inet proxy_init\ndelete table inet proxy_init\n",),
        None,
    ),
    NativeCase(
        "a comment begins no rule", ("# table inet x {\n" + _WHOLE,), _WHOLE_LISTED
    ),
    NativeCase(
        "a policy is changed in place",
        (_WHOLE, _native(("PREROUTING", _IN.replace("accept", "drop")))),
        tuple(line.replace("accept", "drop") for line in _WHOLE_LISTED),
    ),
    NativeCase(
        "deleting a table that is not there is refused",
        ("delete table inet proxy_init\n",),
        None,
        1,
        _NO_SUCH,
    ),
    NativeCase(
        "flushing a table that is not there is refused",
        ("flush table inet proxy_init\n",),
        None,
        1,
        _NO_SUCH,
    ),
    NativeCase(
        "a jump to no chain undoes all",
        (_native(("OURS", _RULE, "counter jump NOWHERE")),),
        None,
        1,
        _NO_SUCH,
    ),
    NativeCase(
        "another hook for a chain that is there is refused",
        (_WHOLE, _native(("PREROUTING", _IN.replace("prerouting", "output")))),
        _WHOLE_LISTED,
        1,
        "Could not process rule: Operation not supported",
    ),
    NativeCase(
        "another priority for a chain that is there is refused",
        (_WHOLE, _native(("PREROUTING", _IN.replace("-100", "-90")))),
        _WHOLE_LISTED,
        1,
        "Could not process rule: Operation not supported",
    ),
    NativeCase(
        "a hook for a chain that has none is refused",
        (_WHOLE, _native(("OURS", _IN))),
        _WHOLE_LISTED,
        1,
        "Could not process rule: Operation not supported",
    ),
    NativeCase("a stray word is refused", ("stray\n",), None, 1, "Error: syntax error"),
)


@dataclass(frozen=True)
class NativeOutcome:
    """What a case came to: exit code, error text, and our table's lines if any."""

    status: int
    stderr: str
    listing: tuple[str, ...] | None


def native_outcome(case: NativeCase, runner: Runner) -> NativeOutcome:
    """Play a case where there is no table of ours; the runner's nft does it."""
    nft = runner.find("nft") or ""
    status, stderr = 0, ""
    for script in case.scripts:
        try:
            runner.run([nft, "-f", "-"], script)
        except CommandFailed as error:
            status, stderr = error.status, error.stderr
    try:
        listing = [nft, "-nnn", "list", "table", "inet", "proxy_init"]
        text = runner.run(listing).stdout
    except CommandFailed:
        return NativeOutcome(status, stderr, None)
    lines = [line.strip() for line in text.splitlines()[1:-1]]
    return NativeOutcome(status, stderr, tuple(line for line in lines if line))
