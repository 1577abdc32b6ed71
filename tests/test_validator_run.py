"""network-validator from outside, on loopback: exit codes, help, mistakes, signals.

Nothing is redirected here; a program that passes connections on plays the redirect.
"""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import proxyinit
from proxyinit.validator import wire
from proxyinit.validator.addresses import Address
from proxyinit.validator.settings import FLAGS
from proxyinit.validator.tracing import Log

ROOT = Path(proxyinit.__file__).parents[1]
COSTLY = {
    *("click", "typing", "re", "dataclasses", "logging", "subprocess", "enum", "json"),
    *("collections", "argparse", "ipaddress", "pathlib", "socket", "signal", "shutil"),
    *("functools", "contextlib", "inspect", "asyncio", "selectors", "struct"),
}
WHEN_WRONG = {f"proxyinit.validator.{name}" for name in ("findings", "sight", "cli")}
PROGRAM = [sys.executable, "-m", "proxyinit.validator"]
HOST = "127.0.0.1"


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *argv], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


@contextlib.contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server on loopback; its port."""
    with socket.create_server((HOST, 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def passed_on(port: int) -> Callable[[socket.socket], None]:
    """What comes from a port of loopback, handed on."""

    def answer(connection: socket.socket) -> None:
        with socket.create_connection((HOST, port)) as onward:
            while data := onward.recv(100):
                connection.sendall(data)
                if data.endswith(b"\n"):
                    return  # the listener closes when its client has

    return answer


def arguments(listen: int, connect: int, *more: str) -> list[str]:
    addresses = f"--listen-addr={HOST}:{listen}", f"--connect-addr={HOST}:{connect}"
    return [*addresses, "--timeout=100ms", *more]


# === the token decides ===


def test_the_token_comes_back(port: int) -> None:
    """By whatever way: exit 0."""
    with serving(passed_on(port)) as connect:
        done = run(*arguments(port, connect))
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1].endswith("Validated")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda c: c.sendall(b"a" * 63 + b"\n"), id="another token"),
        pytest.param(lambda c: c.sendall(b"a"), id="less than a token"),
        pytest.param(lambda c: c.sendall(bytes(1000)), id="more than a token"),
        pytest.param(lambda _: None, id="nothing"),
        pytest.param(lambda c: c.recv(1), id="silence"),
    ],
)
def test_another_answer_is_no_proof(
    port: int, answer: Callable[[socket.socket], None]
) -> None:
    """Exit 95, after all of the timeout, with upstream's last words."""
    with serving(answer) as connect:
        done = run(*arguments(port, connect))
    assert done.returncode == 95
    assert "Validated" not in done.stderr
    assert done.stderr.endswith(
        "ERROR linkerd_network_validator: Failed to validate networking configuration."
        " Please ensure iptables rules are rewriting traffic as expected."
        " timeout=100ms\n"
    )


def test_our_own_listener_reached_directly_is_no_proof(port: int) -> None:
    """It gives the right token, but nothing was redirected."""
    done = run(*arguments(port, port))
    assert done.returncode == 95
    assert "is this pod itself" in done.stderr


def test_one_address_without_proof_is_enough_to_fail(port: int) -> None:
    """All of them have to come back."""
    with serving(passed_on(port)) as good, serving(lambda _: None) as bad:
        argv = arguments(port, good, f"--connect-addr={HOST}:{bad}")
        done = run(*argv)
    assert done.returncode == 95
    assert f"connect.addr={HOST}:{bad}" in done.stderr
    assert f"connect.addr={HOST}:{good}" not in done.stderr


def test_the_port_is_taken() -> None:
    """At once, whatever the timeout, and by whom."""
    with serving(lambda _: None) as taken:
        argv = arguments(taken, 1, "--timeout=1d")
        done = run(*argv)
    assert done.returncode == 95
    assert 'cause="listen address taken"' in done.stderr
    assert re.search(r"is taken by user \d+", done.stderr)


def test_strangers_are_served_too(port: int) -> None:
    """A connection that comes by meanwhile gets its token and disturbs nothing."""
    log = Log("off", write=lambda _: None)
    listener = wire.listen(Address(HOST, port), only_v6=False)
    token = wire.new_token()
    with (
        serving(passed_on(port)) as connect,
        socket.create_connection((HOST, port)) as stranger,
        socket.create_connection((HOST, port)),
    ):
        attempt = wire.Attempt(Address(HOST, connect), [listener], token, log)
        assert attempt.run(5).received == token
        assert stranger.recv(100) == token
        attempt.close()
    listener.close()


def test_tokens_are_random() -> None:
    """63 letters and digits and a line's end, never the same."""
    tokens = {wire.new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(re.fullmatch(rb"[A-Za-z0-9]{63}\n", token) for token in tokens)


def test_a_listener_that_is_not_to_be_had_leaves_nothing_open() -> None:
    """The socket of a failed listener is closed (a warning would be an error here)."""
    with pytest.raises(OSError, match="assign requested address"):
        wire.listen(Address("192.0.2.9", 4140), only_v6=False)


def test_a_start_imports_nothing_costly(port: int) -> None:
    """A pod that is redirected pays for no explanation, no help and no enum.

    Without `site`, whose .pth files are the environment's and not the program's.
    """
    with serving(passed_on(port)) as connect:
        code = (
            "import sys; before = set(sys.modules); "
            f"sys.path.insert(0, {str(ROOT)!r}); "
            "from proxyinit.validator.entry import main; "
            f"status = main({arguments(port, connect, '--log-level=debug')!r}); "
            "print(*set(sys.modules) - before); sys.exit(status)"
        )
        argv = [sys.executable, "-I", "-S", "-c", code]
        done = subprocess.run(argv, capture_output=True, check=True, text=True)
    found = set(done.stdout.split())
    assert "proxyinit.validator.validate" in found
    assert found & (COSTLY | WHEN_WRONG) == set()


# === the command line ===


def test_help() -> None:
    """Every flag with its default, and what the exit codes mean."""
    done = run("--timeout", "x", "--help")
    assert done.returncode == 0
    assert done.stderr == ""
    unwrapped = "".join(done.stdout.split())
    for flag in FLAGS:
        for text in (f"--{flag.name} {flag.metavar}", flag.help):
            assert "".join(text.split()) in unwrapped
    for default in ("0.0.0.0:4140", "192.0.2.2:1404", "10s", "info", "plain"):
        assert f"[default:{default}]" in unwrapped
    assert "Exits0whenitcomes,95" in unwrapped


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_version(flag: str) -> None:
    """Ours, under the program's name."""
    assert run(flag).stdout == f"network-validator {proxyinit.__version__}\n"


def test_mistakes_are_told_all_at_once() -> None:
    """Exit 2 as from clap, nothing tried, and what was meant."""
    done = run("--listen-adr", "--timeout=5", "--connect-addr=1.1.1.1", "now")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Error: 4 mistakes, nothing was tried:" in done.stderr
    assert "did you mean --listen-addr?" in done.stderr
    assert "Traceback" not in done.stderr


def test_nobody_takes_the_lines(port: int) -> None:
    """Closed standard files get no sockets, and a lost line changes nothing."""
    script = 'exec "$@" <&- >&- 2>&-'
    with serving(passed_on(port)) as connect:
        # A line that went to a connection would come before the token.
        argv = [*PROGRAM, *arguments(port, connect, "--log-level=debug")]
        done = subprocess.run(["/bin/sh", "-c", script, "sh", *argv], check=False)
    assert done.returncode == 0
