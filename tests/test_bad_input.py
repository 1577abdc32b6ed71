"""Bad input through the real program: exit 2, every mistake told, nothing run.

The programs are found in a folder that holds nothing but recorders; a run that
starts any of them leaves a trace there. Nothing here needs root.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit import options
from proxyinit.flags import INSTALL_FLAGS
from proxyinit.pflag import parse
from proxyinit.plan import plan
from proxyinit.reconcile import install_script
from proxyinit.rules import IPV4, IPV6, Ruleset

PROGRAM = Path(sys.executable).with_name("proxy-init")
PORTS = ("--incoming-proxy-port", "4143", "--outgoing-proxy-port", "4140")
RECORDER = '#!/bin/sh\necho "$0 $*" >>"${0%/*}/runs"\n'


@pytest.fixture(name="folder")
def folder_of_recorders(tmp_path: Path) -> Path:
    """A folder for PATH whose iptables only leave a trace of being run."""
    for six in ("", "6"):
        for variant in ("", "-legacy", "-nft"):
            for action in ("", "-save", "-restore"):
                program = tmp_path / f"ip{six}tables{variant}{action}"
                program.write_text(RECORDER)
                program.chmod(0o755)
    for name in ("nft", "sysctl", "nsenter"):
        (tmp_path / name).write_text(RECORDER)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def run(folder: Path, *argv: str | bytes) -> subprocess.CompletedProcess[str]:
    """Run the installed program with recorders in front of all other programs."""
    command: list[str | bytes] = [str(PROGRAM), *argv]
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(
        command,
        env=environment,
        capture_output=True,
        check=False,
        encoding="utf-8",
        errors="surrogateescape",
    )


def test_the_recorders_would_be_run(folder: Path) -> None:
    """The proof can fail: a valid command line leaves its trace."""
    result = run(folder, *PORTS, "--proxy-uid=2102")

    assert result.returncode == 1
    assert "iptables-legacy-save -t nat" in (folder / "runs").read_text()


REGULAR_FILE = "/etc/passwd"
PORT = "expected a port from 1 to 65535"
RANGE = "expected a port or a range such as 4567-4568, from 1 to 65535"
CIDR = "expected a CIDR such as 10.0.0.0/8 or fd00::/8"
ID = "expected a numeric id from 0 to 4294967294"
PATH = "expected a path, without line breaks or control characters"
LISTS = ("--inbound-ports-to-ignore", "--outbound-ports-to-ignore")
SUBNETS = (
    "--subnets-to-ignore",
    "--inbound-subnets-to-ignore",
    "--outbound-subnets-to-ignore",
)

MISTAKES: list[tuple[tuple[str, ...], str]] = [
    (("--incoming-proxy-port", "0"), f"--incoming-proxy-port '0': {PORT}"),
    (("--outgoing-proxy-port", "65536"), f"--outgoing-proxy-port '65536': {PORT}"),
    (("--incoming-proxy-port", "-5"), f"--incoming-proxy-port '-5': {PORT}"),
    (("--ports-to-redirect", "80-70"), f"--ports-to-redirect '80-70': {PORT}"),
    (("-r", "80,abc"), f"--ports-to-redirect 'abc': {PORT}"),
    (("-r", "80,,443"), f"--ports-to-redirect '': {PORT}"),
    (("--inbound-ports-to-ignore", "0"), f"--inbound-ports-to-ignore '0': {RANGE}"),
    (("--outbound-ports-to-ignore", "1,65536"), f"'65536': {RANGE}"),
    (("--inbound-ports-to-ignore", "-5"), f"'-5': {RANGE}"),
    (("--inbound-ports-to-ignore", "abc"), f"'abc': {RANGE}"),
    (("--outbound-ports-to-ignore", "80-70"), "expected the lower port first: 70-80"),
    (("--outbound-ports-to-ignore", "4190,"), f"'': {RANGE}"),
    (("--inbound-ports-to-ignore", ""), f"'': {RANGE}"),
    (("-o", "4143"), "--outgoing-proxy-port are both 4143"),
    (("--subnets-to-ignore", "10.0.0.0/33"), f"'10.0.0.0/33': {CIDR}"),
    (("--inbound-subnets-to-ignore", "fd00::/129"), f"'fd00::/129': {CIDR}"),
    (("--outbound-subnets-to-ignore", "example.com"), f"'example.com': {CIDR}"),
    (("--proxy-uid", "-2"), f"--proxy-uid '-2': {ID}"),
    (("--proxy-uid", "4294967295"), f"--proxy-uid '4294967295': {ID}"),
    (("--proxy-gid", "root"), f"--proxy-gid 'root': {ID}"),
    (("--proxy-uids=1",), "unknown flag --proxy-uids: did you mean --proxy-uid?"),
    (("-x",), "unknown flag -x in '-x'"),
    (("stray",), "unexpected word 'stray': expected flags only"),
    (("cleanup",), "command 'cleanup' has to come first: proxy-init cleanup [flags]"),
    (("--ipv6", "false"), "values of switches need '=', as in "),
    (("--", "--simulate"), "unexpected word '--simulate': expected flags only"),
    (("--iptables-mode", "xtables"), "--iptables-mode 'xtables': expected one of"),
    (("--log-format", "xml"), "--log-format 'xml': expected one of plain, json"),
    (("--netns", "/nowhere"), "--netns '/nowhere': expected a network namespace"),
    (("--netns", "/etc/passwd"), "'/etc/passwd' is no network namespace"),
    (("--netns", "/proc/self/ns/mnt"), "'/proc/self/ns/mnt' is no network namespace"),
    (("--inbound-ports-to-ignore", "80\n443"), f"'80\\n443': {RANGE}"),
    (("--proxy-uid", "0' -j ACCEPT"), f'"0\' -j ACCEPT": {ID}'),
    (("--subnets-to-ignore", '"10.0.0.0/8"'), f"'\"10.0.0.0/8\"': {CIDR}"),
    (("--netns", "/a\nb"), f"--netns '/a\\nb': {PATH}"),
    (("--iptables-mode", "nft\n"), "--iptables-mode 'nft\\n': expected one of"),
    (("--firewall-bin-path", "/bin/sh"), "--firewall-bin-path '/bin/sh': expected"),
]
"""Arguments behind the two ports, and a part of what is said of them."""


@pytest.mark.parametrize(("argv", "said"), MISTAKES, ids=repr)
def test_the_program_refuses(folder: Path, argv: tuple[str, ...], said: str) -> None:
    """Exit code 2, the mistake told on standard error, and no program was run."""
    result = run(folder, *PORTS, *argv)

    assert result.returncode == 2
    assert said in result.stderr
    assert "1 mistake, nothing was changed:" in result.stderr
    assert result.stdout == ""
    assert not (folder / "runs").exists()


PORT_TEXTS = ("", " 80", "80\n", "8'0", '"80"', "80;", "-1", "99999999999999999999")
RANGE_TEXTS = (" ", "0-5", "1-65536", "80\n", r"80\n", "80'", '80"', "80;81", "http")
CIDR_TEXTS = ("", "10.0.0.0", "localhost/8", "10.0.0.0/8\n-j ACCEPT", "0/0'", "::/0 ::")
ID_TEXTS = ("", "2102\n", "2102 -j ACCEPT", "'0'", "1-2", "+1", "٢")
MORE: list[tuple[str, str, str]] = [
    *(("incoming-proxy-port", text, PORT) for text in PORT_TEXTS),
    *(("outgoing-proxy-port", text, PORT) for text in PORT_TEXTS),
    *(("inbound-ports-to-ignore", text, RANGE) for text in RANGE_TEXTS),
    *(("outbound-ports-to-ignore", text, RANGE) for text in RANGE_TEXTS),
    *(("subnets-to-ignore", text, CIDR) for text in CIDR_TEXTS),
    *(("inbound-subnets-to-ignore", text, CIDR) for text in CIDR_TEXTS),
    *(("outbound-subnets-to-ignore", text, CIDR) for text in CIDR_TEXTS),
    *(("proxy-uid", text, ID) for text in ID_TEXTS),
    *(("proxy-gid", text, ID) for text in ID_TEXTS),
    ("ports-to-redirect", "80-90", PORT),
    ("netns", "", PATH),
    ("pid", "0", "expected a process id from 1 to 4194304"),
    ("pid", "self", "expected a process id from 1 to 4194304"),
    ("lock-wait-secs", "0", "expected seconds from 1 to 3600"),
    ("lock-wait-secs", "-1", "expected seconds from 1 to 3600"),
    ("timeout-close-wait-secs", "-1", "expected seconds from 0 to 2147483"),
    ("timeout-close-wait-secs", "1h", "expected seconds from 0 to 2147483"),
    ("log-level", "loud", "expected one of panic, fatal, error, warn"),
    ("firewall-bin-path", "iptables-save", "expected iptables-legacy, iptables-nft"),
    ("firewall-bin-path", "iptables\n", PATH),
    ("firewall-save-bin-path", "iptables", "expected iptables-legacy-save, "),
    ("simulate", "yes", "expected true or false"),
]
"""Flags without dashes, texts, and a part of what is said of them."""


@pytest.mark.parametrize(("name", "text", "said"), MORE, ids=repr)
def test_the_parser_refuses(name: str, text: str, said: str) -> None:
    """The one problem shows the flag, the text and what was expected."""
    (problem,) = parse([f"--{name}={text}"], INSTALL_FLAGS).problems

    assert problem.startswith(f"--{name} {text.strip(' ')!r}: ") or text == " 80"
    assert said in problem


def test_all_mistakes_at_once(folder: Path) -> None:
    """A person who made ten mistakes learns of ten, one is what was left out."""
    result = run(
        folder,
        *("-p", "0", "-u", "root,-2", "--inbound-ports-to-ignore", "80-70,,x"),
        *("--netns", "/nowhere", "--nothing", "stray"),
    )

    assert result.returncode == 2
    assert "10 mistakes, nothing was changed:" in result.stderr
    for said in (
        *("'0'", "'root'", "'-2'", "70-80", "''", "'x'", "'/nowhere'", "--nothing"),
        *("'stray'", "--outgoing-proxy-port is missing"),
    ):
        assert said in result.stderr


def test_missing_ports_are_a_mistake(folder: Path) -> None:
    """Bare proxy-init says what it needs, and does nothing."""
    result = run(folder)

    assert result.returncode == 2
    assert "--incoming-proxy-port is missing" in result.stderr
    assert "--outgoing-proxy-port is missing" in result.stderr
    assert not (folder / "runs").exists()


def test_a_process_that_has_ended(folder: Path) -> None:
    """A pid that nobody has leads to no namespace."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    result = run(folder, *PORTS, "--pid", str(process.pid))

    assert result.returncode == 2
    assert f"--pid '{process.pid}': expected a network namespace at" in result.stderr
    assert not (folder / "runs").exists()


def test_bytes_that_are_no_text(folder: Path) -> None:
    """Arguments that are no UTF-8 are refused like any other."""
    result = run(folder, *PORTS, "--proxy-uid", b"\xff\xfe")

    assert result.returncode == 2
    assert ID in result.stderr


def test_cleanup_refuses_too(folder: Path) -> None:
    """The other command is as strict."""
    result = run(folder, "cleanup", "--lock-wait-secs=x", "--proxy-uid=1", "now")

    assert result.returncode == 2
    assert "3 mistakes, nothing was changed:" in result.stderr
    assert not (folder / "runs").exists()


def test_host_bits_are_accepted_and_said(folder: Path) -> None:
    """A network with host bits is what people paste: warned of, and normalised."""
    result = run(folder, *PORTS, "-u0", "--simulate", "--subnets-to-ignore=10.0.0.1/8")

    assert result.returncode == 0
    assert "10.0.0.1/8 has host bits set: taken as 10.0.0.0/8" in result.stderr
    assert "-A PROXY_INIT_REDIRECT -s 10.0.0.0/8 " in result.stdout


def test_uid_0_is_honoured(folder: Path) -> None:
    """Root is a user like others; a proxy that runs as root must not loop."""
    result = run(folder, *PORTS, "--proxy-uid=0", "--proxy-gid=0", "--simulate")

    assert "-m owner --uid-owner 0 " in result.stdout
    assert "-m owner --gid-owner 0 " in result.stdout


# === no value gets a line of its own ===

RULE = re.compile(
    r"""-A\ (PROXY_INIT_REDIRECT|PROXY_INIT_OUTPUT|PREROUTING|OUTPUT)
    (\ -[sd]\ [0-9a-f:.]+/[0-9]+)?(\ -o\ lo)?(\ -p\ tcp)?
    (\ -m\ tcp\ --dport\ [0-9]+)?(\ -m\ multiport\ --dports\ [0-9,:]+)?
    (\ -m\ owner\ --[ug]id-owner\ [0-9]+)?
    \ -m\ comment\ --comment\ "proxy-init/[0-9a-z:.,/-]+"
    \ -j\ (RETURN|PROXY_INIT_(REDIRECT|OUTPUT)|REDIRECT\ --to-ports\ [0-9]+)""",
    re.VERBOSE,
)
FRAME = ("*nat", ":PROXY_INIT_REDIRECT - [0:0]", ":PROXY_INIT_OUTPUT - [0:0]", "COMMIT")

pieces = st.sampled_from(
    [
        *("0", "1", "80", "65535", "4294967294", "-", ",", "/", ":", ".", " ", "\t"),
        *(
            "\n",
            "\r",
            "\x0b",
            "\x85",
            "\u2028",
            "\0",
            '"',
            "'",
            "\\",
            "#",
            "*",
            "!",
            "+",
        ),
        *(
            "10.0.0.0/8",
            "fd00::/8",
            "COMMIT",
            "-j ACCEPT",
            "-A OUTPUT",
            "٣",
            "%eth0",
            "=",
        ),
    ]
)
texts = st.one_of(
    st.text(max_size=20),
    st.lists(pieces, max_size=8).map("".join),
    st.lists(st.sampled_from(["80", "1-2", "::/0", "0.0.0.0/0", "7"])).map(",".join),
)
lines = st.lists(
    st.tuples(st.sampled_from([flag.name for flag in INSTALL_FLAGS]), texts), max_size=5
)


@settings(deadline=None, max_examples=500)
@given(lines)
def test_no_value_injects_a_line(flags: list[tuple[str, str]]) -> None:
    """Any text for any flag is refused, or the transaction has known lines only."""
    argv = [*PORTS, *(f"--{name}={text}" for name, text in flags)]
    arguments = parse(argv, INSTALL_FLAGS)
    if arguments.problems or list(options.problems(arguments)):
        return

    config = options.redirect_config(arguments)
    for version in (IPV4, IPV6):
        script = install_script(plan(config, version), Ruleset(version))
        for line in script.removesuffix("\n").split("\n"):
            assert line in FRAME or RULE.fullmatch(line), line
            assert line.isascii()
            assert line.isprintable()
