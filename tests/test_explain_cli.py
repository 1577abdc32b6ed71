"""``proxy-init explain`` from outside: sources, directions, mistakes, exit codes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from proxyinit.explain.flags import EXPLAIN_FLAGS

PROGRAM = str(Path(sys.executable).with_name("proxy-init"))
DUMPS = Path(__file__).with_name("dumps")
PLANNED = ("-p", "4143", "-o", "4140", "-u", "2102")
INBOUND = ("--from", "10.0.0.5", "--to", "10.0.0.7:8080", "--inbound")
OUTBOUND = ("--from", "10.0.0.7", "--to", "10.9.0.1:443", "--uid", "1000")


def run(*argv: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """One run of the command."""
    return subprocess.run(
        [PROGRAM, "explain", *argv],
        input=stdin,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        check=False,
    )


def answer(*argv: str, stdin: bytes = b"", status: int = 0) -> str:
    """The last line of a run, which is the answer."""
    done = run(*argv, stdin=stdin)
    assert (done.returncode, done.stderr) == (status, b"")
    return done.stdout.decode().splitlines()[-1]


def mistakes(*argv: str) -> list[str]:
    """What a run with mistakes says, one by one; it must look at nothing."""
    done = run(*argv)
    assert (done.returncode, done.stdout) == (2, b"")
    head, *told = done.stderr.decode().partition("Error: ")[2].splitlines()
    assert head.endswith("nothing was looked at:")
    assert head.startswith(f"{len(told)} mistake")
    return [line.strip() for line in told]


@pytest.mark.parametrize("mode", ["legacy", "nft", "nftables"])
def test_planned_rules_are_followed(mode: str) -> None:
    """An init container's arguments are taken as they are."""
    told = answer(*PLANNED, *INBOUND, "--iptables-mode", mode, "--log-level=debug")

    assert told.startswith(
        "redirected to the proxy at 4143, original destination 10.0.0.7:8080 preserved"
    )


def test_text_and_json_say_the_same() -> None:
    """Rule by rule; the answer, what is granted and what is not known."""
    argv = (*PLANNED, "--from", "10.0.0.7", "--to", "10.9.0.1:443", "--outbound")
    text = run(*argv)
    values = json.loads(run(*argv, "--format", "json").stdout)

    shown = text.stdout.decode()
    assert text.returncode == 1
    assert values["decided"] is False
    assert shown.splitlines()[-1] == values["answer"]
    steps = [*values["tables"][0]["trace"]["steps"]]
    steps += values["tables"][0]["trace"]["if_not"]["steps"]
    for step in steps:
        assert step.get("text", step.get("enter", step.get("then"))) in shown
        assert step.get("why", "") in shown
    for said in (*values["premises"], *values["undecided"]):
        assert said in shown
    assert values["packet"]["uid"] is None


def test_a_dump_is_followed() -> None:
    """From a file, and from standard input."""
    argv = ("--from", "10.0.0.5", "--to", "10.0.0.7:8080", "--in", "eth0")
    path = DUMPS / "istio.txt"

    told = answer("--dump", str(path), *argv)

    assert told.startswith("redirected to port 15006, original destination 10.0.0.7")
    assert answer("--dump", "-", *argv, stdin=path.read_bytes()) == told


def test_a_listing_of_nft_is_followed() -> None:
    """Every nat table in it that packets of the version meet."""
    listing = b"""table inet filter {
	chain INPUT {
		type filter hook input priority filter; policy drop;
	}
}
table ip mesh {
	chain pre {
		type nat hook prerouting priority dstnat; policy accept;
		meta l4proto tcp counter packets 0 bytes 0 redirect to :15006
	}
}
table ip6 mesh {
	chain pre {
		type nat hook prerouting priority dstnat; policy accept;
		meta l4proto tcp redirect to :15007
	}
}
"""
    told = answer("--dump", "-", *INBOUND, stdin=listing)

    assert told.startswith("redirected to port 15006")
    assert told.endswith("by rule 1 of pre")


def test_an_undecided_answer_shows_both_ways() -> None:
    """And exits with 1: it could not tell."""
    argv = ("--from", "10.244.0.9", "--to", "10.96.0.10:53", "--outbound")

    told = answer("--dump", str(DUMPS / "kube-proxy.txt"), *argv, status=1)

    assert told == (
        "undecided: sent to 10.244.0.2:53 instead of 10.96.0.10:53; or sent to "
        "10.244.0.3:53 instead of 10.96.0.10:53"
    )


@pytest.mark.parametrize(
    ("argv", "direction"),
    [
        pytest.param(("--uid", "0"), "outbound", id="an owner"),
        pytest.param(("--gid", "5"), "outbound", id="a group"),
        pytest.param(("--out", "eth0"), "outbound", id="an interface it leaves by"),
        pytest.param(("--in", "eth0"), "inbound", id="an interface it comes by"),
        pytest.param(("--own", "10.0.0.5"), "outbound", id="the source is own"),
        pytest.param(("--own", "10.0.0.7"), "inbound", id="the destination is own"),
        pytest.param(("--own", "10.0.0.0/24"), "outbound", id="both are"),
        pytest.param(("--to", "127.0.0.1:80"), "outbound", id="to loopback"),
        pytest.param(("--from", "127.0.0.1"), "outbound", id="from loopback"),
        pytest.param(("--inbound",), "inbound", id="said so"),
        pytest.param(("--outbound",), "outbound", id="said so, too"),
    ],
)
def test_the_direction_is_inferred(argv: tuple[str, ...], direction: str) -> None:
    """Where a flag or an address tells."""
    ends = ("--from", "10.0.0.5", "--to", "10.0.0.7:8080")

    done = run(*PLANNED, *ends, *argv, "--format=json")

    assert json.loads(done.stdout)["packet"]["direction"] == direction


def test_no_direction_is_a_mistake() -> None:
    """Nothing is guessed."""
    ends = ("--from", "10.0.0.5", "--to", "10.0.0.7:8080")

    (told,) = mistakes(*PLANNED, *ends)
    assert told.endswith("say --inbound or --outbound")


def test_every_mistake_is_told_at_once() -> None:
    """Those of single flags, of flags together, and of the namespace."""
    told = mistakes(
        *("-p", "4143", "--netns", "/nope", "--dump", "x", "--fromm", "1", "stray"),
        *("--from", "10.0.0.5:0", "--to", "fd00::7", "--proto", "sctp"),
        *(
            "--uid",
            "-1",
            "--inbound",
            "--in",
            "a/b",
            "--out",
            "eth0",
            "--format",
            "xml",
        ),
    )

    assert [line.partition(": ")[0] for line in told] == [
        "unknown flag --fromm",
        "--from '10.0.0.5:0'",
        "--to 'fd00::7'",
        "--proto 'sctp'",
        "--uid '-1'",
        "--in 'a/b'",
        "--format 'xml'",
        "--out and --inbound contradict each other",
        "--outgoing-proxy-port is missing",
        "--dump and flags of an install and --netns each say which rules to follow",
        "--netns '/nope'",
        "unexpected word '1'",
        "unexpected word 'stray'",
    ]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        pytest.param(("--from", "10.0.0.256"), "expected an address", id="no address"),
        pytest.param(("--from", "fe80::1%eth0"), "expected an address", id="a zone"),
        pytest.param(("--from", "10.0.0.5:"), "expected a port behind", id="no port"),
        pytest.param(
            ("--from", "[fd00::1]:"), "expected a port behind", id="IPv6, none"
        ),
        pytest.param(
            ("--to", "10.0.0.7"), "such as 10.0.0.7:80", id="a port is missing"
        ),
        pytest.param(("--to", "fd00::7"), "such as [fd00::7]:80", id="and for IPv6"),
        pytest.param(("--to", "10.0.0.7:0"), "a port from 1 to 65535", id="port 0"),
        pytest.param(("--to", "10.0.0.7:70000"), "a port from 1 to", id="port 70000"),
        pytest.param(("--to", "[::ffff:1.2.3.4]:1"), "as 1.2.3.4", id="mapped"),
        pytest.param(("--to", "[fd00::7]:80"), "not of one family", id="two families"),
        pytest.param(("--in", "lo"), "ask with --outbound", id="over lo"),
        pytest.param(
            ("--in", "sixteen-letters-"), "an interface's name", id="too long"
        ),
        pytest.param(("--mark", "0x1/0x1"), "a mark such as", id="a mask"),
        pytest.param(("--mark", "4294967296"), "a mark such as", id="33 bits"),
        pytest.param(("--mark", "x"), "a mark such as", id="no number"),
        pytest.param(("--own", "10.0.0.0/33"), "expected a CIDR", id="no network"),
        pytest.param(("--outgoing-proxy-port=4143",), "two different", id="one port"),
    ],
)
def test_mistakes_say_what_was_expected(argv: tuple[str, ...], expected: str) -> None:
    """In the words of the one who has to mend them."""
    (told,) = mistakes(*PLANNED, *INBOUND, *argv)

    assert expected in told


@pytest.mark.parametrize("name", ["from", "to"])
def test_both_ends_are_required(name: str) -> None:
    """There is no default for an address."""
    kept = [f"--{n}={e}" for n, e in (("from", "1.1.1.1"), ("to", "1.1.1.2:1"))]

    (told,) = mistakes(*PLANNED, *(k for k in kept if not k.startswith(f"--{name}=")))

    assert told.startswith(f"--{name} is missing")


HEAD = b"# Generated by iptables-save v1.8.9 on Fri Nov 20 14:41:35 2026\n"


@pytest.mark.parametrize(
    ("dump", "expected"),
    [
        pytest.param(b"", "makes no sense", id="empty"),
        pytest.param(bytes(10 << 20), "makes no sense", id="10 MiB of zeros"),
        pytest.param(
            b"*nat\n" + b"garbage " * (10 << 17), "'garbage garbage", id="one long line"
        ),
        pytest.param(
            (DUMPS / "istio.txt").read_bytes()[:700], "before COMMIT", id="cut in half"
        ),
        pytest.param(
            b"table inet x {\n\tchain a {\n", "within chain a", id="cut listing"
        ),
        pytest.param(b"*filter\nCOMMIT\n", "has no nat table", id="another table"),
        pytest.param(
            HEAD.replace(b"ip", b"ip6", 1) + b"*nat\nCOMMIT\n",
            "for IPv6 alone and the packet is IPv4",
            id="the other family",
        ),
        pytest.param(
            b"*nat\n-A PREROUTING -s fd00::1/128\nCOMMIT\n",
            "for IPv6 alone",
            id="the other family, by its addresses",
        ),
    ],
)
def test_what_is_no_dump_is_refused(dump: bytes, expected: str) -> None:
    """With a sentence, and exit code 1: it could not tell."""
    done = run("--dump", "-", *INBOUND, stdin=dump)

    told = done.stderr.decode()
    assert (done.returncode, done.stdout) == (1, b"")
    assert told.startswith("Error: the dump ")
    assert expected in told
    assert len(told) < 600


def test_a_dump_that_is_not_there() -> None:
    """The file's name and the reason are told."""
    done = run("--dump", "/nope", *INBOUND)

    assert done.returncode == 1
    assert b"can't read the dump '/nope': No such file" in done.stderr


def test_unknown_extensions_are_undecided() -> None:
    """A rule with a match that nobody knows may match."""
    dump = HEAD + b"*nat\n-A PREROUTING -m odd --thing x -j DROP\nCOMMIT\n"

    done = run("--dump", "-", *INBOUND, stdin=dump)

    assert done.returncode == 1
    assert b"undecided here because the match 'odd' can't be judged" in done.stdout


@pytest.mark.parametrize(
    ("redirection", "status", "said"),
    [
        pytest.param(
            ">/dev/full", 1, "can't print the answer: No space left", id="full"
        ),
        pytest.param("| true", 0, "", id="nobody reads on"),
        pytest.param(">&-", 0, "", id="closed"),
        pytest.param("<&-", 0, "", id="no input"),
    ],
)
def test_an_output_that_takes_nothing(redirection: str, status: int, said: str) -> None:
    """No traceback, whatever standard output is."""
    command = " ".join(["exec", PROGRAM, "explain", *PLANNED, *OUTBOUND])
    done = subprocess.run(
        ["/bin/sh", "-c", f"{{ {command} ; }} {redirection}"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == status
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert said or not done.stderr


def test_help_names_every_flag() -> None:
    """Those of the packet first, then those of an install."""
    said = "".join(run("--help").stdout.decode().split())

    for flag in EXPLAIN_FLAGS:
        assert f"--{flag.name}" in said
        assert "".join(flag.help.split()) in said


def test_a_terminal_gets_marks() -> None:
    """The same lines, marked for the eye."""
    ours, theirs = pty.openpty()
    argv = [PROGRAM, "explain", *PLANNED, *OUTBOUND]
    with os.fdopen(ours, "rb", buffering=0) as screen:
        with os.fdopen(theirs, "wb") as terminal:
            environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
            subprocess.run(argv, stdout=terminal, env=environment, check=True)
        shown = screen.read(65536).decode()

    assert "✗" in shown
    assert "✓" in shown
    assert "redirected to the proxy at 4140" in shown
