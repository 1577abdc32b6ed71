"""What the demo shows: every connection, rule, count and identity is right."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess

import pytest
from demo_runs import DEMO, LIMIT_S, WEB, left_by, run

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
IDENTITIES = """
web  meets  api.shop.serviceaccount.identity.linkerd.cluster.local
api  meets  web.shop.serviceaccount.identity.linkerd.cluster.local
"""


def rows(text: str) -> list[list[str]]:
    """Cells of aligned lines: at least two blanks stand between them."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


def chapter(text: str, number: int) -> str:
    """One chapter of what a demo showed."""
    return text.partition(f"\n{number}  ")[2].partition(f"\n{number + 1}  ")[0]


def table(text: str) -> list[list[str]]:
    """The rows of one of the tables above."""
    return rows(text.strip())


def test_the_demo_in_a_pipe(iptables_mode: str) -> None:
    """Every connection, rule and count it shows is right, plain and 80 wide."""
    done = run([*DEMO, "--iptables-mode", iptables_mode])
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
    assert f"iptables-{iptables_mode}-save" in done.stdout
    assert done.stdout.endswith("\nEverything happened as it should.\n")
    assert left_by(done.pid) == []


def test_the_demo_counts_connections_under_load(iptables_mode: str) -> None:
    """The proxy answered all of many connections while proxy-init ran again."""
    done = run([*DEMO, "--part", "interception", "--iptables-mode", iptables_mode])
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
