"""Reading a command line with pflag's rules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit import options
from proxyinit.flags import CLEANUP_FLAGS, INSTALL_FLAGS
from proxyinit.pflag import Arguments, parse
from proxyinit.rules import PortRange


def read(*argv: str) -> Arguments:
    return parse(argv, INSTALL_FLAGS)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        pytest.param(["-p", "4143"], 4143, id="short, space"),
        pytest.param(["-p=4143"], 4143, id="short, equals sign"),
        pytest.param(["-p4143"], 4143, id="short, attached"),
        pytest.param(["-wp", "4143"], 4143, id="behind a switch, space"),
        pytest.param(["-wp4143"], 4143, id="behind a switch, attached"),
        pytest.param(["-ww", "-p=1"], 1, id="switches twice"),
        pytest.param(["-w=false", "-p=1"], 1, id="a short switch with a value"),
        pytest.param(["-p", "1", "-p", "4143"], 4143, id="the last one counts"),
    ],
)
def test_spelling_of_short_flags(argv: list[str], expected: int) -> None:
    """Short flags take their value attached, behind = or as the next word."""
    arguments = read(*argv)

    assert arguments.problems == ()
    assert arguments.values["incoming-proxy-port"] == expected


@pytest.mark.parametrize("text", ["1", "t", "T", "true", "TRUE", "True"])
def test_true(text: str) -> None:
    """The words that Go's ParseBool takes for true."""
    assert read(f"--simulate={text}").values["simulate"] is True


@pytest.mark.parametrize("text", ["0", "f", "F", "false", "FALSE", "False"])
def test_false(text: str) -> None:
    """The words that Go's ParseBool takes for false."""
    assert read(f"--ipv6={text}", "-w=0").values["ipv6"] is False


def test_a_switch_takes_no_word_behind_it() -> None:
    """As with pflag, ``--ipv6 false`` is the switch and a stray word."""
    arguments = read("--ipv6", "false")

    assert arguments.values["ipv6"] is True
    assert arguments.words == ("false",)


def test_lists_by_comma_and_repetition() -> None:
    """Items add up in the order given, and blanks around them don't count."""
    found = read(
        *("--inbound-ports-to-ignore", "4190, 4191"),
        "--inbound-ports-to-ignore= 4567-4568 ,80",
    )

    assert found.values["inbound-ports-to-ignore"] == (
        *(PortRange(4190, 4190), PortRange(4191, 4191)),
        *(PortRange(4567, 4568), PortRange(80, 80)),
    )


def test_words_and_flags_in_any_order() -> None:
    """Words are kept apart wherever they stand, and ``--`` ends the flags."""
    arguments = read("a", "-p", "1", "b", "-", "--", "-o", "--nothing")

    assert arguments.values["incoming-proxy-port"] == 1
    assert arguments.words == ("a", "b", "-", "-o", "--nothing")
    assert arguments.problems == ()


@pytest.mark.parametrize("argv", [["-h"], ["--help"], ["-wh"], ["x", "--help"]])
def test_help(argv: list[str]) -> None:
    """Help is asked for by either spelling, anywhere."""
    assert read(*argv).help


@pytest.mark.parametrize("argv", [[], ["--", "--help"], ["-p", "-h"]])
def test_no_help(argv: list[str]) -> None:
    """A word behind ``--`` and a value are no flags."""
    assert not read(*argv).help


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--nothing"], "unknown flag --nothing"),
        (["--nothing=1"], "unknown flag --nothing"),
        (["-x"], "unknown flag -x in '-x'"),
        (["-wxp"], "unknown flag -x in '-xp'"),
        (["--=1"], "unknown flag --"),
        (["-p"], "--incoming-proxy-port needs a value: PORT"),
        (["--proxy-uid"], "--proxy-uid needs a value: UID,..."),
        (["--ipv6=maybe"], "--ipv6 'maybe': expected true or false"),
        (["-w=", "-p1"], "--use-wait-flag '': expected true or false"),
    ],
    ids=str,
)
def test_problem(argv: list[str], problem: str) -> None:
    """What can't be read is said in one sentence that shows it."""
    assert read(*argv).problems == (problem,)


def test_cleanup_knows_no_ports() -> None:
    """Flags of the install are unknown to cleanup, not silently ignored."""
    assert parse(["-p", "1"], CLEANUP_FLAGS).problems == ("unknown flag -p in '-p'",)


# === properties ===


tokens = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [f"--{flag.name}" for flag in INSTALL_FLAGS]
        + [f"-{flag.short}" for flag in INSTALL_FLAGS if flag.short]
        + [f"--{flag.name}=" for flag in INSTALL_FLAGS]
        + ["--", "-", "--help", "-h", "4143", "4140", "1-2", "10.0.0.0/8", "a,b", ","]
    ),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(tokens | st.tuples(tokens, tokens).map("".join), max_size=8))
def test_any_argument_vector_is_read(argv: list[str]) -> None:
    """No command line raises; whatever is wrong with it is a sentence."""
    arguments = parse(argv, INSTALL_FLAGS)

    found = [*arguments.problems, *options.problems(arguments)]
    options.options(arguments)
    if not found:
        list(options.warnings(arguments))
        options.redirect_config(arguments)
    assert all(found)
