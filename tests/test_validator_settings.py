"""The flags of network-validator: what is taken, what is not, what it means."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit.pflag import parse
from proxyinit.validator.addresses import Address, parse_address
from proxyinit.validator.duration import Duration
from proxyinit.validator.settings import FLAGS, Settings, problems
from proxyinit.validator.settings import settings as read_settings
from proxyinit.validator.tracing import LEVELS, TARGET, parse_filter

PROPERTY = settings(deadline=None, max_examples=300)
WILDCARDS = parse_address("0.0.0.0:4140"), Address("::", 4140)
FILTER_EXPECTED = (
    "expected one of off, error, warn, info, debug, trace, or TARGET=LEVEL,..."
)


def chosen(*argv: str, environment: dict[str, str] | None = None) -> Settings:
    arguments = parse(argv, FLAGS)
    assert [*problems(arguments, environment or {}), *arguments.words] == []
    return read_settings(arguments, environment or {})


def mistakes(*argv: str, environment: dict[str, str] | None = None) -> list[str]:
    return list(problems(parse(argv, FLAGS), environment or {}))


@pytest.mark.parametrize(
    ("text", "level"),
    [
        *((level, level) for level in LEVELS),
        *(("INFO", "info"), ("Warning", "warn"), ("3", "info"), ("5", "trace")),
        ("warn,linkerd=debug", "debug"),
        ("linkerd=debug,warn", "debug"),
        ("linkerd=debug,linkerd_network_validator=error", "error"),
        ("linkerd_network_validator=error,linkerd=debug", "error"),
        ("kube=trace", "off"),
        ("kube=trace,info", "info"),
        ("[conn]=trace,info", "info"),
        ("info,debug", "debug"),
        ("", "error"),
        (",", "error"),
    ],
)
def test_log_level(text: str, level: str) -> None:
    """A level, or the directives that tracing's filters are made of."""
    assert parse_filter(text) == level


@pytest.mark.parametrize("text", ["inof", "6", "linkerd=inof", "=info", "a=b=c"])
def test_no_log_level(text: str) -> None:
    """Upstream takes a misspelt level for a target, and then says nothing at all."""
    with pytest.raises(ValueError, match="expected one of off, error"):
        parse_filter(text)


@PROPERTY
@given(st.lists(st.sampled_from(LEVELS), min_size=1))
def test_the_longest_target_decides(levels: list[str]) -> None:
    """Whatever the order, the one that says most about us."""
    ours = [f"{TARGET[: n + 1]}={level}" for n, level in enumerate(levels)]
    deepest = levels[: len(TARGET)][-1]
    assert parse_filter(",".join(ours[: len(TARGET)])) == deepest
    assert parse_filter(",".join(reversed(ours[: len(TARGET)]))) == deepest


# === all together ===


def test_defaults() -> None:
    """Upstream's."""
    assert chosen() == Settings(
        listen=WILDCARDS[:1],
        connect=(Address("192.0.2.2", 1404),),
        timeout=Duration(10_000),
        log_format="plain",
        log_level="info",
    )


@pytest.mark.parametrize("glue", ["=", " "], ids=["--flag=value", "--flag value"])
def test_arguments_of_the_chart(glue: str) -> None:
    """As Linkerd's pod spec has them, IPv6 and IPv4."""
    text = "--log-format_json --log-level_debug --connect-addr_[fd00::1]:20001 "
    text += "--listen-addr_[::]:4140 --timeout_30s"
    argv = [part for word in text.split() for part in word.replace("_", glue).split()]
    assert chosen(*argv) == Settings(
        listen=(Address("::", 4140),),
        connect=(Address("fd00::1", 20001),),
        timeout=Duration(30_000),
        log_format="json",
        log_level="debug",
    )


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param(["--connect-addr=1.2.3.4:5,[::5]:5"], id="list"),
        pytest.param(
            ["--connect-addr=1.2.3.4:5", "--connect-addr", "[::5]:5"], id="repeated"
        ),
        pytest.param(
            ["--connect-addr=1.2.3.4:5, [::5]:5,1.2.3.4:5"], id="blanks and doubles"
        ),
    ],
)
def test_both_versions(argv: list[str]) -> None:
    """Each address once, in order; it is listened for both where nothing is said."""
    found = chosen(*argv)
    assert found.connect == (Address("1.2.3.4", 5), Address("::5", 5))
    assert found.listen == WILDCARDS


@pytest.mark.parametrize(
    ("argv", "listen"),
    [
        pytest.param("--connect-addr=1.2.3.4:5", "0.0.0.0:4140", id="IPv4"),
        pytest.param("--connect-addr=[::5]:5", "0.0.0.0:4140 [::]:4140", id="IPv6"),
        pytest.param("--listen-addr=[::]:1", "[::]:1", id="both, by one"),
        pytest.param(
            "--listen-addr=0.0.0.0:1,[::]:1", "0.0.0.0:1 [::]:1", id="one for each"
        ),
    ],
)
def test_listeners(argv: str, listen: str) -> None:
    """What is said is done; the default follows what there is to hear."""
    assert " ".join(map(str, chosen(argv).listen)) == listen


UNHEARD_6 = (
    "--connect-addr '[::5]:5': nothing listens for IPv6 on --listen-addr "
    "0.0.0.0:1: expected [::]:PORT beside it"
)
UNHEARD_4 = (
    "--connect-addr '192.0.2.2:1404': nothing listens for IPv4 on --listen-addr "
    "[::1]:1: expected 0.0.0.0:PORT beside it"
)


def test_nothing_would_hear_it() -> None:
    """A redirect keeps the IP version, so these could never be validated."""
    argv = ["--listen-addr=0.0.0.0:1", "--connect-addr=[::5]:5"]
    assert mistakes(*argv) == [UNHEARD_6]
    assert mistakes("--listen-addr=[::1]:1") == [UNHEARD_4]


def test_environment() -> None:
    """Upstream's variables, which flags override; an empty one says nothing."""
    name = "LINKERD_NETWORK_VALIDATOR_LOG"
    given_both = {f"{name}_LEVEL": "debug", f"{name}_FORMAT": "json"}
    found = chosen(environment=given_both)
    assert (found.log_level, found.log_format) == ("debug", "json")
    found = chosen("--log-level=warn", "--log-format=plain", environment=given_both)
    assert (found.log_level, found.log_format) == ("warn", "plain")
    empty = dict.fromkeys(given_both, "")
    assert chosen(environment=empty) == Settings()


def test_all_mistakes_are_told_at_once() -> None:
    """Those of the environment too, and only where it counts."""
    variables = {
        "LINKERD_NETWORK_VALIDATOR_LOG_LEVEL": "loud",
        "LINKERD_NETWORK_VALIDATOR_LOG_FORMAT": "xml",
    }
    argv = ["--timeout=5", "--listen-addr=4140", "--connect-addr=a,b", "--log-format"]
    assert mistakes(*argv, "text", "--quiet", environment=variables) == [
        "unknown flag --quiet",
        "--timeout '5': expected a unit: ms, s, m, h, d, as in 10s",
        *(
            f"--{flag}-addr {text!r}: expected an IP address and a port from 1 to "
            "65535, such as 192.0.2.2:1404 or [2001:db8::2]:1404"
            for flag, text in (("listen", "4140"), ("connect", "a"), ("connect", "b"))
        ),
        "--log-format 'text': expected plain or json",
        f"LINKERD_NETWORK_VALIDATOR_LOG_LEVEL 'loud': {FILTER_EXPECTED}",
    ]


WORDS = st.sampled_from([f"--{flag.name}" for flag in FLAGS]) | st.text(max_size=20)


@PROPERTY
@given(st.lists(WORDS | WORDS.map(lambda word: f"{word}=[::]:1,x"), max_size=6))
def test_any_command_line_is_read(argv: list[str]) -> None:
    """Mistakes are told, never raised; without any, there are settings."""
    arguments = parse(argv, FLAGS)
    if not list(problems(arguments, {})):
        assert read_settings(arguments, {}).connect
