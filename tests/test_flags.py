"""Reading a command line with pflag's rules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit import options
from proxyinit.config import (
    MAX_ID,
    RedirectConfig,
    host_bits,
    parse_id,
    parse_port,
    parse_ports,
    parse_subnet,
)
from proxyinit.flags import (
    CLEANUP_FLAGS,
    INSTALL_FLAGS,
    LOG_LEVELS,
    MODES,
)
from proxyinit.pflag import Arguments, Flag, parse
from proxyinit.rules import PortRange, Subnet

PROPERTY = settings(deadline=None, max_examples=200)
BOTH = (
    "--incoming-proxy-port and --outgoing-proxy-port are both 4143: "
    "expected two different ports"
)
NO_PAIR = (
    "--firewall-bin-path 'iptables-nft' and --firewall-save-bin-path "
    "'iptables-save' are not one pair: expected 'iptables-nft-save'"
)
LOOP = (
    "neither --proxy-uid nor --proxy-gid is given: "
    "the proxy's own connections will be redirected to itself"
)
PORTS = ["-p", "4143", "-o", "4140"]


def read(*argv: str) -> Arguments:
    return parse(argv, INSTALL_FLAGS)


def config(*argv: str) -> RedirectConfig:
    arguments = read(*PORTS, *argv)
    assert not arguments.problems
    assert not arguments.words
    return options.redirect_config(arguments)


def chosen(*argv: str) -> options.Options:
    arguments = read(*PORTS, *argv)
    assert [*arguments.problems, *options.problems(arguments), *arguments.words] == []
    return options.options(arguments)


UPSTREAM = {
    "incoming-proxy-port": "p",
    "outgoing-proxy-port": "o",
    "proxy-uid": "u",
    "proxy-gid": "g",
    "ports-to-redirect": "r",
    "inbound-ports-to-ignore": "",
    "outbound-ports-to-ignore": "",
    "subnets-to-ignore": "",
    "simulate": "",
    "netns": "",
    "use-wait-flag": "w",
    "timeout-close-wait-secs": "",
    "log-format": "",
    "log-level": "",
    "iptables-mode": "",
    "ipv6": "",
    "firewall-bin-path": "",
    "firewall-save-bin-path": "",
}
OURS = {
    "inbound-subnets-to-ignore",
    "outbound-subnets-to-ignore",
    "lock-wait-secs",
    "pid",
    "host",
}


def test_the_flags_are_upstreams_and_ours() -> None:
    """Every flag of upstream is there with its short form, and no other but ours."""
    there = {flag.name: flag.short for flag in INSTALL_FLAGS}

    assert there == UPSTREAM | dict.fromkeys(OURS, "")


@pytest.mark.parametrize(
    ("argv", "name", "value"),
    [
        (["--incoming-proxy-port", "4143"], "incoming-proxy-port", 4143),
        (["--outgoing-proxy-port=4140"], "outgoing-proxy-port", 4140),
        (["--proxy-uid", "2102"], "proxy-uid", (2102,)),
        (["--proxy-uid", "0"], "proxy-uid", (0,)),
        (["--proxy-uid=2102,2103"], "proxy-uid", (2102, 2103)),
        (["--proxy-gid", str(MAX_ID)], "proxy-gid", (MAX_ID,)),
        (["--ports-to-redirect", "80,443"], "ports-to-redirect", (80, 443)),
        (
            ["--inbound-ports-to-ignore", "4190,4567-4568"],
            "inbound-ports-to-ignore",
            (PortRange(4190, 4190), PortRange(4567, 4568)),
        ),
        (
            ["--outbound-ports-to-ignore", "1-65535"],
            "outbound-ports-to-ignore",
            (PortRange(1, 65535),),
        ),
        (
            ["--subnets-to-ignore", "10.0.0.0/8,fd00::/8"],
            "subnets-to-ignore",
            (Subnet(4, "10.0.0.0", 8), Subnet(6, "fd00::", 8)),
        ),
        (
            ["--inbound-subnets-to-ignore", "0.0.0.0/0"],
            "inbound-subnets-to-ignore",
            (Subnet(4, "0.0.0.0", 0),),  # noqa: S104  (a subnet, nothing binds)
        ),
        (
            ["--outbound-subnets-to-ignore", "FD00::0:1/128"],
            "outbound-subnets-to-ignore",
            (Subnet(6, "fd00::1", 128),),
        ),
        (["--simulate"], "simulate", True),
        (["--netns", "/run/netns/a"], "netns", "/run/netns/a"),
        (["--pid", "1"], "pid", 1),
        (["--use-wait-flag"], "use-wait-flag", True),
        (["--timeout-close-wait-secs", "3600"], "timeout-close-wait-secs", 3600),
        (["--log-format", "json"], "log-format", "json"),
        (["--log-level", "Debug"], "log-level", "debug"),
        (["--iptables-mode", "nft"], "iptables-mode", "nft"),
        (["--ipv6=false"], "ipv6", False),
        (["--lock-wait-secs", "1"], "lock-wait-secs", 1),
        (
            ["--firewall-bin-path", "/sbin/iptables-nft"],
            "firewall-bin-path",
            "/sbin/iptables-nft",
        ),
        (
            ["--firewall-save-bin-path", "iptables-nft-save"],
            "firewall-save-bin-path",
            "iptables-nft-save",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_value(argv: list[str], name: str, value: object) -> None:
    """Each flag turns its text into the value that the rest works with."""
    arguments = read(*argv)

    assert arguments.problems == ()
    assert arguments.values[name] == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("incoming-proxy-port", None),
        ("proxy-uid", ()),
        ("ports-to-redirect", ()),
        ("simulate", False),
        ("use-wait-flag", False),
        ("ipv6", True),
        ("lock-wait-secs", 5),
        ("timeout-close-wait-secs", 0),
        ("log-format", "plain"),
        ("log-level", "info"),
        ("iptables-mode", None),
    ],
)
def test_default(name: str, value: object) -> None:
    """A flag that is not given has upstream's default."""
    assert read().values[name] == value


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
    found = config(
        *("--inbound-ports-to-ignore", "4190, 4191"),
        "--inbound-ports-to-ignore= 4567-4568 ,80",
    )

    assert [str(p) for p in found.inbound_ports_to_ignore] == [
        *("4190", "4191", "4567:4568", "80")
    ]


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


# === parsers of single values ===


@pytest.mark.parametrize("text", ["1", "80", "65535"])
def test_port(text: str) -> None:
    """Both ends of the range are ports."""
    assert parse_port(text) == int(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "65536",
        "-5",
        "+5",
        "abc",
        "8O",
        "080",
        "00",
        " 80",
        "1_0",
        "٣",
        "1" * 50,
    ],
)
def test_no_port(text: str) -> None:
    """Nothing else is one: no sign, blank, leading zero or other alphabet's digit."""
    with pytest.raises(ValueError, match="expected a port from 1 to 65535"):
        parse_port(text)


@pytest.mark.parametrize("text", ["", "-1", "-2", "4294967295", "root", "0x1", "1.0"])
def test_no_id(text: str) -> None:
    """An id is a number that the kernel takes for somebody."""
    with pytest.raises(ValueError, match="expected a numeric id from 0 to 4294967294"):
        parse_id(text)


@pytest.mark.parametrize(
    "text", ["", "-", "1-", "-1", "0-5", "1-65536", "1-2-3", "a-b"]
)
def test_no_ports(text: str) -> None:
    """A range has two ports."""
    with pytest.raises(ValueError, match="expected a port or a range such as"):
        parse_ports(text)


def test_ports_the_wrong_way_round() -> None:
    """The message shows the right order."""
    with pytest.raises(ValueError, match="expected the lower port first: 70-80"):
        parse_ports("80-70")


@pytest.mark.parametrize(
    ("text", "expected", "bits"),
    [
        ("10.0.0.0/8", "10.0.0.0/8", False),
        ("10.0.0.1/8", "10.0.0.0/8", True),
        ("1.2.3.4/32", "1.2.3.4/32", False),
        ("1.2.3.4/0", "0.0.0.0/0", True),
        ("::/0", "::/0", False),
        ("FD00:0:0::1/64", "fd00::/64", True),
        ("::ffff:1.2.3.4/128", "::ffff:1.2.3.4/128", False),
    ],
)
def test_subnet(text: str, expected: str, bits: bool) -> None:  # noqa: FBT001
    """Written as the kernel's tools write it, host bits cleared and reported."""
    subnet = parse_subnet(text)

    assert str(subnet) == expected
    assert host_bits(text, subnet) is bits


@pytest.mark.parametrize(
    "text",
    [
        *("", "/", "/8", "10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "fd00::/129"),
        *(
            "10.0.0.0/-1",
            "10.0.0.0/255.0.0.0",
            "10.0.0/8",
            "010.0.0.0/8",
            "10.0.0.0/08",
        ),
        *("example.com", "example.com/8", "fe80::1%eth0/64", "10.0.0.0/8/8", "x\0/8"),
        *(
            "10.0.0.0/8\n",
            " 10.0.0.0/8",
            "10.0.0.0/ 8",
            "\ud800/8",
            "10.0.0.0/" + "1" * 30,
        ),
    ],
    ids=repr,
)
def test_no_subnet(text: str) -> None:
    """Nothing but an address, a slash and a prefix length of its family."""
    with pytest.raises(ValueError, match="expected a CIDR such as"):
        parse_subnet(text)


# === options ===


@pytest.mark.parametrize(
    ("argv", "mode", "folder"),
    [
        ([], "legacy", ""),
        (
            [
                *("--firewall-bin-path", "iptables-nft"),
                *("--firewall-save-bin-path", "iptables-nft-save"),
            ],
            "nft",
            "",
        ),
        (["--firewall-bin-path", "iptables-legacy"], "legacy", ""),
        (["--firewall-bin-path", "iptables"], "plain", ""),
        (["--firewall-bin-path", "/opt/bin/iptables-nft"], "nft", "/opt/bin/"),
        (["--firewall-save-bin-path", "iptables-nft-save"], "nft", ""),
        (["--firewall-save-bin-path", "/x/iptables-save"], "plain", "/x/"),
        *((["--iptables-mode", mode], mode, "") for mode in MODES),
        (
            ["--iptables-mode=auto", "--firewall-bin-path=/x/iptables-nft"],
            "auto",
            "/x/",
        ),
        (
            [
                *("--iptables-mode=nft", "--firewall-bin-path=/x/iptables"),
                "--firewall-save-bin-path=/y/iptables-nft-save",
            ],
            "nft",
            "/x/",
        ),
    ],
    ids=str,
)
def test_backend(argv: list[str], mode: str, folder: str) -> None:
    """The mode decides, else the program's name, and a path names the folder."""
    found = chosen(*argv)

    assert (found.mode, found.bin_dir) == (mode, folder)


def test_options() -> None:
    """The rest of the options is what was said."""
    assert chosen(
        *("--ipv6=false", "--simulate", "--lock-wait-secs=9", "--netns=/n"),
        "--timeout-close-wait-secs=60",
    ) == options.Options(
        mode="legacy",
        ipv6=False,
        netns="/n",
        simulate=True,
        lock_wait_s=9,
        close_wait_s=60,
    )
    assert chosen("--pid", "42").netns == "/proc/42/ns/net"
    assert options.options(parse([], CLEANUP_FLAGS)) == options.Options()


def test_both_names_of_inbound_subnets_add_up() -> None:
    """Upstream's name and ours fill the same list."""
    found = config(
        "--inbound-subnets-to-ignore=10.0.0.0/8", "--subnets-to-ignore=fd00::/8"
    )

    assert [str(s) for s in found.inbound_subnets_to_ignore] == [
        *("fd00::/8", "10.0.0.0/8")
    ]


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (
            ["-o", "1"],
            "--incoming-proxy-port is missing: the proxy's port, such as 4143",
        ),
        (
            ["-p", "1"],
            "--outgoing-proxy-port is missing: the proxy's port, such as 4143",
        ),
        (
            ["-p", "4143", "-o", "4143"],
            BOTH,
        ),
        (
            [*PORTS, "--netns", "/n", "--pid", "1"],
            "--netns and --pid both name a namespace: give one of them",
        ),
        (
            [
                *(*PORTS, "--firewall-bin-path=iptables-nft"),
                "--firewall-save-bin-path=iptables-save",
            ],
            NO_PAIR,
        ),
    ],
    ids=str,
)
def test_problem_of_flags_together(argv: list[str], problem: str) -> None:
    """Flags that are right alone and wrong together."""
    assert list(options.problems(read(*argv))) == [problem]


def test_warnings() -> None:
    """Host bits and a proxy without an owner are accepted and said."""
    assert list(options.warnings(read(*PORTS, "--subnets-to-ignore=10.0.0.1/8"))) == [
        "--subnets-to-ignore 10.0.0.1/8 has host bits set: taken as 10.0.0.0/8",
        LOOP,
    ]
    assert not list(
        options.warnings(read(*PORTS, "-g0", "--outbound-subnets-to-ignore=::/0"))
    )


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


@PROPERTY
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


ports = st.integers(1, 65535)
ranges = st.tuples(ports, ports).map(lambda pair: PortRange(*sorted(pair)))
ids = st.integers(0, MAX_ID)
networks4 = st.ip_addresses(v=4)
networks6 = st.ip_addresses(v=6)
subnets = st.one_of(
    st.tuples(networks4, st.integers(0, 32)),
    st.tuples(networks6, st.integers(0, 128)),
).map(lambda pair: parse_subnet(f"{pair[0]}/{pair[1]}"))


@st.composite
def configs(draw: st.DrawFn) -> RedirectConfig:
    """Any valid configuration."""

    def several(items: st.SearchStrategy[object]) -> tuple[object, ...]:
        return tuple(draw(st.lists(items, max_size=4)))

    inbound, outbound = draw(st.lists(ports, min_size=2, max_size=2, unique=True))
    return RedirectConfig(
        inbound,
        outbound,
        *map(several, (ids, ids, ports, ranges, ranges, subnets, subnets)),  # type: ignore[arg-type]
    )


@st.composite
def command_lines(draw: st.DrawFn, config: RedirectConfig) -> list[str]:
    """One of the many ways to say a configuration."""

    def spell(name: str, text: str) -> list[str]:
        spellings = [[f"--{name}", text], [f"--{name}={text}"]]
        if short := flags[name].short:
            spellings += [
                [f"-{short}", text],
                [f"-{short}{text}"],
                [f"-{short}={text}"],
            ]
            spellings += [[f"-w{short}", text], [f"-w{short}{text}"]]
        return draw(st.sampled_from(spellings))

    flags = {flag.name: flag for flag in INSTALL_FLAGS}
    said: list[tuple[str, list[str]]] = []
    inbound = "inbound-subnets-to-ignore"
    for name, items in (
        ("incoming-proxy-port", (config.inbound_port,)),
        ("outgoing-proxy-port", (config.outbound_port,)),
        ("proxy-uid", config.proxy_uids),
        ("proxy-gid", config.proxy_gids),
        ("ports-to-redirect", config.ports_to_redirect),
        ("inbound-ports-to-ignore", config.inbound_ports_to_ignore),
        ("outbound-ports-to-ignore", config.outbound_ports_to_ignore),
        (
            draw(st.sampled_from(["subnets-to-ignore", inbound])),
            config.inbound_subnets_to_ignore,
        ),
        ("outbound-subnets-to-ignore", config.outbound_subnets_to_ignore),
    ):
        texts = [str(item).replace(":", "-") for item in items]
        if "subnets" in name:
            texts = list(map(str, items))
        cut = draw(st.integers(0, len(texts)))
        blank = draw(st.sampled_from(["", " "]))
        said += [
            (name, spell(name, f",{blank}".join(part)))
            for part in (texts[:cut], texts[cut:])
            if part
        ]
    # The order of one flag's own occurrences matters, all other order does not.
    turns = draw(st.permutations([name for name, _ in said]))
    rest = {name: [w for n, w in said if n == name] for name in turns}
    return [word for name in turns for word in rest[name].pop(0)]


@PROPERTY
@given(st.data())
def test_every_spelling_says_the_same(data: st.DataObject) -> None:
    """A configuration, said in any of the spellings, is read back as it was."""
    wanted = data.draw(configs())
    argv = data.draw(command_lines(wanted))

    arguments = parse(argv, INSTALL_FLAGS)

    assert arguments.problems == ()
    assert arguments.words == ()
    assert list(options.problems(arguments)) == []
    assert options.redirect_config(arguments) == wanted


@pytest.mark.parametrize("flag", INSTALL_FLAGS, ids=lambda flag: flag.name)
def test_declaration(flag: Flag) -> None:
    """Each flag has a help text of a sentence, and a placeholder unless a switch."""
    assert flag.help.endswith(".")
    assert flag.is_bool or flag.metavar


def test_log_levels_are_ordered() -> None:
    """From the most severe to the least; the threshold is a place in this list."""
    assert (
        LOG_LEVELS.index("error") < LOG_LEVELS.index("warn") < LOG_LEVELS.index("info")
    )
