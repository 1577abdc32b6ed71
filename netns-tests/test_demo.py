"""The demo as its users start it: what it shows, what it refuses, what it leaves."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxyinit.demo.machine import residue
from proxyinit.lab import Namespace

PROGRAM = str(Path(sys.executable).with_name("proxy-init"))
DEMO = [sys.executable, "-m", "proxyinit.demo"]
NAMESPACES = Path("/var/run/netns")
IDENTITY_PROGRAM = str(Path(sys.executable).with_name("proxy-identity"))
LIMIT_S = 60

CONNECTIONS = """
client  10.1.0.2:8080       app     proxy:4143  10.1.0.2:8080
client  [fd00:1::2]:8080    app     proxy:4143  [fd00:1::2]:8080
client  10.1.0.2:9999       nobody  proxy:4143  10.1.0.2:9999
client  [fd00:1::2]:9999    nobody  proxy:4143  [fd00:1::2]:9999
client  10.1.0.2:4567       app     app         (ignored port)
client  [fd00:1::2]:4567    app     app         (ignored port)
app     203.0.113.7:80      world   proxy:4140  203.0.113.7:80
app     [2001:db8::7]:80    world   proxy:4140  [2001:db8::7]:80
app     203.0.113.7:4567    world   world       (ignored port)
app     [2001:db8::7]:4567  world   world       (ignored port)
app     127.0.0.1:8080      app     app         (stays inside)
app     [::1]:8080          app     app         (stays inside)
proxy   203.0.113.7:80      world   world       (proxy's own)
proxy   [2001:db8::7]:80    world   world       (proxy's own)
"""

RULES = """
ignored ports    -p tcp -m multiport --dports 4190,4191,4567,4568 -j RETURN
all other TCP    -p tcp -j REDIRECT --to-ports 4143
the proxy's own  -m owner --uid-owner 2102 -j RETURN
stays inside     -o lo -j RETURN
ignored ports    -p tcp -m multiport --dports 4567,4568 -j RETURN
all other TCP    -p tcp -j REDIRECT --to-ports 4140
"""


WEB = "web.shop.serviceaccount.identity.linkerd.cluster.local"
IDENTITIES = """
web  meets  api.shop.serviceaccount.identity.linkerd.cluster.local
api  meets  web.shop.serviceaccount.identity.linkerd.cluster.local
"""


@dataclass(frozen=True)
class Run:
    """A demo that has ended; its pid names its namespaces and its session."""

    pid: int
    status: int
    stdout: str
    stderr: str


def run(argv: Sequence[str], *, inside: Namespace | None = None) -> Run:
    """Start a demo, in a session of its own, and wait for its end."""
    with start(argv, inside=inside) as process:
        stdout, stderr = process.communicate(timeout=LIMIT_S)
    return Run(process.pid, process.returncode, stdout, stderr)


@contextlib.contextmanager
def start(
    argv: Sequence[str], *, inside: Namespace | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A demo that runs; whatever happens it does not outlive the test."""

    def popen() -> subprocess.Popen[str]:
        return subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    process = inside.run(popen) if inside else popen()
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        with contextlib.suppress(ValueError):  # a test has closed the pipes
            process.communicate()


def left_by(pid: int) -> list[str]:
    """Namespaces and processes of a demo that has ended."""
    ours = f"proxyinit-{pid}-*"
    names = [path.name for path in NAMESPACES.glob(ours)]
    names += map(str, Path(tempfile.gettempdir()).glob(ours))
    return names + [stat.partition(" ")[2] for stat in stats() if session(stat) == pid]


def stats() -> Iterator[str]:
    """/proc/PID/stat of every process."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # ended meanwhile
            yield path.read_text()


def session(stat: str) -> int:
    """The session of a process, by its /proc/PID/stat (man proc)."""
    return int(stat.rpartition(")")[2].split()[3])


@pytest.fixture(scope="module")
def mode(iptables_mode: str) -> str:
    """The backends of iptables, which this module is about."""
    return iptables_mode


def rows(text: str) -> list[list[str]]:
    """Cells of aligned lines: at least two blanks stand between them."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


def chapter(text: str, number: int) -> str:
    """One chapter of what a demo showed."""
    return text.partition(f"\n{number}  ")[2].partition(f"\n{number + 1}  ")[0]


def table(text: str) -> list[list[str]]:
    """The rows of one of the tables above."""
    return rows(text.strip())


# === what it shows ===


def test_the_demo_in_a_pipe(mode: str) -> None:
    """Every connection, rule and count it shows is right, plain and 80 wide."""
    done = run([*DEMO, "--iptables-mode", mode])
    assert (done.status, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "…" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert not re.search(r" $", done.stdout, re.MULTILINE)
    shown = rows(chapter(done.stdout, 2))
    assert [row for row in shown if len(row) == 5 and ":" in row[1]] == table(
        CONNECTIONS
    )
    listed = rows(chapter(done.stdout, 3))
    assert [row for row in listed if "-j" in row[-1].split()] == table(RULES)
    assert f"iptables-{mode}-save" in done.stdout
    assert done.stdout.endswith("\nEverything happened as it should.\n")
    assert left_by(done.pid) == []


def test_the_demo_counts_connections_under_load(mode: str) -> None:
    """The proxy answered all of many connections while proxy-init ran again."""
    done = run([*DEMO, "--part", "interception", "--iptables-mode", mode])
    counts = {row[0]: row[1:] for row in rows(done.stdout) if len(row) == 5}
    total, by_proxy, past, errors = counts["proxy-init"]
    assert int(total.replace(",", "")) > 100
    assert (by_proxy, past, errors) == (total, "0", "0")
    assert int(counts["one command a rule"][0].replace(",", "")) > 100


def test_the_demo_shows_identities() -> None:
    """Authorities, a certified pod, its peer and renewals, without a failed call."""
    done = run([*DEMO, "--part", "identity"])
    assert (done.status, done.stderr) == (0, "")
    shown = rows(done.stdout)
    assert [row for row in shown if row[1:2] == ["meets"]] == table(IDENTITIES)
    assert [row[0:2] for row in shown if row[0].endswith("linkerd.cluster.local")] == [
        ["root.linkerd.cluster.local", "itself"],
        ["identity.linkerd.cluster.local", "root.linkerd.cluster.local"],
    ]
    panel = [row for row in rows(done.stdout.replace("│", "")) if row[0] == "identity"]
    assert panel == [["identity", WEB]]
    serials = [row[2] for row in shown if row[1:2] in (["before"], ["after"])]
    assert len(set(serials)) == len(serials) == 4
    calls = re.search(r"([\d,]+) connections with old and new certifi", done.stdout)
    assert calls
    assert int(calls[1].replace(",", "")) >= 40
    assert left_by(done.pid) == []


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [
        pytest.param({}, True, id="colours on a terminal"),
        pytest.param({"NO_COLOR": "1"}, False, id="none where NO_COLOR is set"),
        pytest.param({"TERM": "dumb"}, False, id="none where the terminal has none"),
    ],
)
def test_the_demo_on_a_terminal(variables: dict[str, str], *, coloured: bool) -> None:
    """Escape codes are written only to a terminal that is to have them."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "", **variables}
    argv = [*DEMO, "--program", "/bin/false"]  # ends early, having shown enough
    process = subprocess.Popen(argv, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: the last writer has gone
        while chunk := os.read(ours, 65536):
            shown += chunk
    os.close(ours)
    assert process.wait(LIMIT_S) == 1
    assert b"proxy-init redirects the traffic" in shown
    assert (b"\x1b" in shown) == coloured


# === what it leaves ===

FOREIGN = """*nat
-A PREROUTING -p udp --dport 53 -j REDIRECT --to-ports 5353
-A OUTPUT -d 192.0.2.1/32 -j RETURN
COMMIT
"""


def rules_of(machine: Namespace) -> list[str]:
    """Everything a machine's firewall holds, and which legacy tables exist."""
    commands = [
        ["cat", "/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"],
        ["iptables-legacy-save"],
        ["ip6tables-legacy-save"],
        ["nft", "list", "ruleset"],
    ]
    texts = [machine.exec(argv).stdout for argv in commands]
    return [re.sub(r"(?m)^#.*\n", "", text) for text in texts]


def test_the_machine_stays_as_it_was(namespace: Namespace, mode: str) -> None:
    """A machine's own rules, legacy and nft, are the same bytes afterwards."""
    for restore in ("iptables-legacy-restore", "ip6tables-nft-restore"):
        text = FOREIGN if restore[2] != "6" else FOREIGN.replace("192.0.2.1/32", "::2")
        assert namespace.exec([restore], text=text).returncode == 0
    before = rules_of(namespace)
    done = run([*DEMO, "--iptables-mode", mode], inside=namespace)
    assert done.status == 0, done.stderr
    assert rules_of(namespace) == before
    assert left_by(done.pid) == []


def test_a_machine_without_rules_gets_no_table(namespace: Namespace) -> None:
    """Looking at a machine's rules does not make the tables looked for."""
    done = run(DEMO, inside=namespace)
    assert done.status == 0, done.stderr
    assert rules_of(namespace) == ["", "", "", ""]


@pytest.mark.parametrize(
    ("part", "chapter", "number"),
    [
        pytest.param("all", "1", signal.SIGINT, id="while the pod is tried"),
        pytest.param("all", "4", signal.SIGINT, id="under load"),
        pytest.param("examination", "4", signal.SIGINT, id="while it is verified"),
        pytest.param("identity", "4", signal.SIGINT, id="while the service starts"),
        pytest.param("identity", "7", signal.SIGINT, id="during the renewals"),
        pytest.param("all", "4", signal.SIGTERM, id="by another signal"),
    ],
)
def test_an_interrupt_leaves_nothing(
    part: str, chapter: str, number: signal.Signals
) -> None:
    """Ctrl-C ends the demo soon, with the status shells expect, and cleans up."""
    with start([*DEMO, "--part", part]) as process:
        assert process.stdout
        assert any(line.startswith(f"{chapter}  ") for line in process.stdout)
        # As a terminal does: to every process of the foreground at once.
        os.killpg(process.pid, number)
        stdout, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 128 + number
    assert stderr == f"demo: ended by {number.name}\nnothing is left behind\n"
    assert "Everything happened as it should" not in stdout
    assert left_by(process.pid) == []


def test_a_reader_that_goes_away_leaves_nothing() -> None:
    """``demo | head`` ends quietly, and cleans up."""
    with start(DEMO) as process:
        assert process.stdout
        process.stdout.readline()
        process.stdout.close()
        process.wait(LIMIT_S)
        assert process.stderr
        assert (process.returncode, process.stderr.read()) == (1, "")
    assert left_by(process.pid) == []


def test_what_is_left_is_named() -> None:
    """The demo's own look at what it leaves sees namespaces, folders, processes."""
    assert residue() == []
    left = Namespace("left")
    try:
        assert residue() == [f"network namespace {left.name}"]
    finally:
        left.close()
    with tempfile.TemporaryDirectory(prefix=f"proxyinit-{os.getpid()}-") as folder:
        assert residue() == [f"folder {folder}"]
    for_ever = [sys.executable, "-c", "import signal; signal.pause()"]
    with subprocess.Popen(for_ever) as process:
        try:
            assert residue() == ["a process that was started"]
        finally:
            process.kill()
    assert residue() == []


# === what it refuses ===

BROKEN = [
    pytest.param(
        "echo no luck today >&2; exit 1",
        ["ended with status 1, expected 0", "no luck today"],
        id="proxy-init fails",
    ),
    pytest.param(
        "exit 0",
        ["6 of 14 connections went wrong", "expected proxy at port 4143"],
        id="proxy-init does nothing",
    ),
    pytest.param(
        'case "$1" in cleanup) exec PROGRAM "$@";; esac; exec PROGRAM "$@" --ipv6=0',
        ["3 of 14 connections went wrong", "[fd00:1::2]:8080"],
        id="one family is not redirected",
    ),
    pytest.param(
        'case "$1" in cleanup) exec PROGRAM "$@";; esac\n'
        'exec PROGRAM "$@" --inbound-ports-to-ignore 5000',
        ["IPv4: expected these rules", "4190,4191,4567,4568,5000"],
        id="a rule is not as expected",
    ),
    pytest.param(
        'PROGRAM cleanup; exec PROGRAM "$@"',
        ["went past the proxy and", "ran again, expected 0 and 0"],
        id="a re-run lets connections slip past",
    ),
    pytest.param(
        'case "$1" in cleanup) exit 0;; esac; exec PROGRAM "$@"',
        ["6 of 14 connections went wrong", "expected app at port 8080"],
        id="cleanup removes nothing",
    ),
    pytest.param(
        'PROGRAM "$@" || exit; case "$1" in cleanup) '
        "iptables-legacy -t nat -N PROXY_INIT_OUTPUT;; esac",
        ["IPv4: expected nothing in legacy", "chain PROXY_INIT_OUTPUT"],
        id="cleanup leaves a chain",
    ),
    pytest.param(
        'nsenter --target $PPID --net nft add table ip intruder; exec PROGRAM "$@"',
        ["the rules of this machine itself changed", "nft"],
        id="the machine's own rules change",
    ),
]


BROKEN_EXAMINATION = [
    pytest.param(
        'case "$1" in explain) exit 1;; esac; exec PROGRAM "$@"',
        ["expected an answer in JSON, found exit code 1"],
        id="explain says nothing",
    ),
    pytest.param(
        'case "$1" in explain) PROGRAM "$@" | sed s/4143/4144/;; '
        '*) exec PROGRAM "$@";; esac',
        ["expected explain to send client's connection to", "to 4143, found"],
        id="explain foretells another port",
    ),
    pytest.param(
        'case "$1" in verify) exit 0;; esac; exec PROGRAM "$@"',
        ["expected verify to end with 3, found 0"],
        id="verify overlooks the damage",
    ),
    pytest.param(
        'case "$*" in *nftables*) exit 0;; esac; exec PROGRAM "$@"',
        ["nft --stateless list table inet proxy_init failed"],
        id="no native rules",
    ),
]


@pytest.mark.parametrize(
    ("part", "stub", "messages"),
    [
        *(pytest.param("interception", *case.values, id=case.id) for case in BROKEN),
        *(
            pytest.param("examination", *case.values, id=case.id)
            for case in BROKEN_EXAMINATION
        ),
        pytest.param(
            "injection",
            'case "$*" in *"ignore 80") exit 0;; esac; exec PROGRAM "$@"',
            ["4 of 6 connections went wrong", "expected proxy at port 4143"],
            id="what is injected redirects nothing",
        ),
    ],
)
def test_a_broken_program_is_told(
    namespace: Namespace, tmp_path: Path, part: str, stub: str, messages: list[str]
) -> None:
    """What is not as it should be ends the demo with 1 and says what was found."""
    program = tmp_path / "proxy-init"
    program.write_text(f"#!/bin/sh\n{stub.replace('PROGRAM', PROGRAM)}\n")
    program.chmod(0o755)
    argv = [*DEMO, "--part", part, "--program", str(program)]
    done = run(argv, inside=namespace)
    assert done.status == 1
    told = " ".join(done.stderr.split())
    assert [message for message in messages if message not in told] == []
    assert "Traceback" not in done.stderr
    assert "Everything happened as it should" not in done.stdout
    assert told.endswith("nothing is left behind")
    assert left_by(done.pid) == []


_IN_PLACE_OF = 'case "$1" in {}) {};; *) exec PROGRAM "$@";; esac'

BROKEN_IDENTITY = [
    pytest.param(
        _IN_PLACE_OF.format("ca", "echo no luck today >&2; exit 1"),
        ["proxy-identity ca root ended with status 1, expected 0", "no luck today"],
        id="no authority",
    ),
    pytest.param(
        _IN_PLACE_OF.format("ca", "exit 0"),
        ["expected a certificate in", "/ca.crt"],
        id="no certificate of an authority",
    ),
    pytest.param(
        'case "$2" in issuer) shift 2; exec PROGRAM ca root "$@";; esac\n'
        'exec PROGRAM "$@"',
        ["expected the authorities root.linkerd", "root.linkerd.cluster.local"],
        id="an issuer that is a root",
    ),
    pytest.param(
        'PROGRAM "$@" && case "$1" in ca) chmod 0644 ca.key;; esac',
        ["expected ca.key with mode 0600, found 0644"],
        id="a key that everybody reads",
    ),
    pytest.param(
        _IN_PLACE_OF.format("issuer", "echo no luck today; exit 1"),
        ["proxy-identity of issuer ended with status 1", "no luck today"],
        id="no service",
    ),
    pytest.param(
        _IN_PLACE_OF.format("certify", "exit 0"),
        ["expected status 1 because of", "found status 0"],
        id="a stranger is certified",
    ),
    pytest.param(
        _IN_PLACE_OF.format("run", "exit 1"),
        ["proxy-identity of web ended with status 1, expected it to run"],
        id="nobody is certified",
    ),
    pytest.param(
        'case "$3" in --format) echo {};; *) exec PROGRAM "$@";; esac',
        ["expected names of the certificate to be ['web.shop.", "found None"],
        id="a certificate of nobody",
    ),
    pytest.param(
        'case "$1 $LINKERD2_PROXY_IDENTITY_DIR" in "run api") '
        "export LINKERD2_PROXY_IDENTITY_TOKEN_FILE=tokens/web/token;"
        f"export LINKERD2_PROXY_IDENTITY_LOCAL_NAME={WEB};;\n"
        'esac; exec PROGRAM "$@"',
        ["expected web and api to meet", "Hostname mismatch"],
        id="a peer with another's name",
    ),
    pytest.param(
        'case "$1" in run) export LINKERD2_PROXY_IDENTITY_MIN_REFRESH=1h;; esac\n'
        'exec PROGRAM "$@"',
        ["connections failed during the renewals, expected 0"],
        id="nothing is renewed in time",
    ),
]


@pytest.mark.parametrize(("stub", "messages"), BROKEN_IDENTITY)
def test_a_broken_identity_is_told(
    tmp_path: Path, stub: str, messages: list[str]
) -> None:
    """So does what is wrong with authorities, service, certificate or renewal."""
    program = tmp_path / "proxy-identity"
    program.write_text(f"#!/bin/sh\n{stub.replace('PROGRAM', IDENTITY_PROGRAM)}\n")
    program.chmod(0o755)
    done = run([*DEMO, "--part", "identity", "--identity-program", str(program)])
    assert done.status == 1
    told = " ".join(done.stderr.split())
    assert [message for message in messages if message not in told] == []
    assert "Traceback" not in done.stderr
    assert "Everything happened as it should" not in done.stdout
    assert told.endswith("nothing is left behind")
    assert left_by(done.pid) == []


_HIDE_IPTABLES = f'mount -t tmpfs none {Path(shutil.which("nft") or "/").parent}; "$@"'
_WITHOUT_RICH = (
    "import sys; sys.modules['rich'] = None; import proxyinit.demo.__main__ as main; "
    "main.demo()"
)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        pytest.param(["unshare", "--user", *DEMO], "root is needed", id="not root"),
        pytest.param(
            ["unshare", "--mount", "sh", "-c", _HIDE_IPTABLES, "sh", *DEMO],
            "not found: iptables-legacy-save",
            id="no iptables",
        ),
        pytest.param(
            [*DEMO, "--program", "/nowhere/proxy-init"],
            "there is no proxy-init at /nowhere/proxy-init",
            id="no proxy-init",
        ),
        pytest.param(
            ["setpriv", "--bounding-set=-net_admin", *DEMO],
            "can't make network namespaces here: Operation not permitted",
            id="root without the capability",
        ),
        pytest.param(
            [sys.executable, "-c", _WITHOUT_RICH], "rich is not installed", id="no rich"
        ),
    ],
)
def test_an_unsuitable_machine_is_told(argv: list[str], message: str) -> None:
    """What is missing is said in one sentence, before anything is shown or made."""
    done = run(argv)
    assert (done.status, done.stdout) == (1, "")
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert left_by(done.pid) == []
