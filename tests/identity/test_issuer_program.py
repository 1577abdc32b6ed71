"""The service as a program: flags, the order of its start, signals, workers."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from identity.cli import root as command
from identity.errors import Misconfigured
from identity.issuer.cli import configuration
from identity.issuer.cli import issuer as issuer_command
from identity.issuer.config import IssuerConfig, parse_duration, split_address
from identity.testing import CA, KubernetesApi
from identity.testing.calls import calling, outcome, request
from identity.testing.service import write_issuer
from proxyinit import __version__

CHART = [
    *("-controller-namespace=linkerd", "-identity-trust-domain=cluster.local"),
    *("-identity-scheme", "linkerd.io/tls"),
    *("-identity-issuance-lifetime=24h0m0s", "-identity-clock-skew-allowance=20s"),
    *("-kube-apiclient-qps=100", "-kube-apiclient-burst=200", "-log-level", "info"),
    *("-log-format=plain", "-enable-pprof=false"),
]
"""The arguments that Linkerd's chart gives upstream's service."""


def configured(*args: str) -> IssuerConfig:
    """The configuration that a command line asks for."""
    found: list[IssuerConfig] = []

    def keep(**options: Any) -> None:
        found.append(configuration(options))

    copy = type(issuer_command)("issuer", params=issuer_command.params, callback=keep)
    copy.main(list(args), standalone_mode=False)
    return found[0]


def test_the_arguments_of_linkerd_s_chart_work() -> None:
    """Go's spelling of flags is read: one dash, and values of switches."""
    config = configured(*CHART)
    assert config.domain.control_namespace == "linkerd"
    assert config.domain.trust_domain == "cluster.local"
    assert config.scheme == "linkerd.io/tls"
    assert config.lifetime == dt.timedelta(hours=24)
    assert config.skew == dt.timedelta(seconds=20)
    assert (config.api_calls_per_s, config.api_burst) == (100, 200)


def test_the_version_is_told_as_upstream_does() -> None:
    """`-version` prints it and nothing else, whatever else is on the line."""
    result = CliRunner().invoke(command, ["issuer", *CHART, "-version"])
    assert (result.exit_code, result.output) == (0, f"{__version__}\n")


@pytest.mark.parametrize(
    "level", ["panic", "fatal", "error", "warn", "warning", "info", "debug", "trace"]
)
def test_every_level_of_upstream_is_known(level: str) -> None:
    """Manifests may name any of them."""
    assert configured("-log-level", level).log_level == level


def test_defaults_are_upstream_s() -> None:
    """Without flags: its ports, folder, life and skew; and 100 calls a second."""
    config = configured()
    assert (config.address, config.admin_address) == (":8080", ":9990")
    assert config.issuer_dir == Path("/var/run/linkerd/identity/issuer")
    anchors = "/var/run/linkerd/identity/trust-roots/ca-bundle.crt"
    assert config.anchors == Path(anchors)
    assert config.lifetime == dt.timedelta(hours=24)
    assert config.skew == dt.timedelta(seconds=10)
    assert (config.api_calls_per_s, config.api_burst, config.workers) == (100, 1, 1)
    assert not config.enabled
    assert not config.spiffe


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("24h0m0s", 86400, id="as the chart has it"),
        pytest.param("1.5h", 5400, id="a fraction"),
        pytest.param("300ms", 0.3, id="milliseconds"),
        pytest.param("1h15m30.5s", 4530.5, id="compound"),
        pytest.param("2us", 2e-6, id="microseconds"),
        pytest.param("0", 0, id="bare zero"),
        pytest.param("+5s", 5, id="a sign"),
        pytest.param("-5s", -5, id="negative"),
        pytest.param(".5s", 0.5, id="no digit in front"),
    ],
)
def test_durations_are_go_s(text: str, seconds: float) -> None:
    """What Go's ParseDuration takes is taken."""
    assert parse_duration(text) == dt.timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "5", "1d", "h", "1 h", "5s ", "s5", "--5s", "1h-5m"]
)
def test_other_durations_are_refused(text: str) -> None:
    """What Go's ParseDuration refuses is refused."""
    with pytest.raises(ValueError, match="invalid duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("args", "lifetime", "skew", "complaints"),
    [
        pytest.param(
            ["--identity-issuance-lifetime", "1d"],
            dt.timedelta(hours=24),
            dt.timedelta(seconds=10),
            ["Invalid issuance lifetime: time: invalid duration '1d'"],
            id="a lifetime that is none",
        ),
        pytest.param(
            ["--identity-clock-skew-allowance=-1s"],
            dt.timedelta(hours=24),
            dt.timedelta(seconds=10),
            ["Invalid clock skew allowance: negative duration '-1s'"],
            id="a negative skew",
        ),
        pytest.param(
            [
                "--identity-issuance-lifetime=0",
                "--identity-clock-skew-allowance=0s",
            ],
            dt.timedelta(days=365),
            dt.timedelta(seconds=10),
            [],
            id="zero means upstream's own",
        ),
    ],
)
def test_durations_that_can_not_be_read_leave_the_default(
    caplog: pytest.LogCaptureFixture,
    args: Sequence[str],
    lifetime: dt.timedelta,
    skew: dt.timedelta,
    complaints: list[str],
) -> None:
    """As upstream: a warning, and the default."""
    config = configured(*args)
    assert (config.lifetime, config.skew) == (lifetime, skew)
    assert [record.getMessage() for record in caplog.records] == complaints
    assert {record.levelno for record in caplog.records} <= {logging.WARNING}


def test_all_mistakes_are_told_at_once() -> None:
    """One run shows everything that has to be corrected."""
    with pytest.raises(Misconfigured) as found:
        configured(
            *("--addr", "8080", "--admin-addr", "::1:80", "--tls-cert", "x"),
            *("--token-validator", "jwks", "--jwks", "keys"),
        )
    assert len(found.value.problems) == 4


@pytest.mark.parametrize(
    ("args", "told"),
    [
        pytest.param(
            ["--workers", "0", "--addr", "x", "-no-such-flag", "5", "-log-level=loud"],
            ["'--no-such-flag'", "'--workers': 0", "'--log-level'", "--addr: expected"],
            id="values, an unknown flag, and what flags mean together",
        ),
        pytest.param(
            ["--no-such-flag", "--spiffe=perhaps", "--tls-key", "x", "--jwks"],
            ["'--no-such-flag'", "'--spiffe'", "'--jwks'", "--tls-cert and"],
            id="an unknown switch, a switch with a value, a flag without",
        ),
        pytest.param(
            ["--no-such-flag=--addr", "--workers=x", "word", "y"],
            ["'--no-such-flag'", "'--workers'", "unexpected extra arguments (word y)"],
            id="values after an equals sign, and words",
        ),
        pytest.param(["-x3", "--workers=x"], ["'-x'"], id="what can't be left out"),
    ],
)
def test_mistakes_of_every_kind_are_told_at_once(
    args: list[str], told: list[str]
) -> None:
    """What can't be read hides nothing of what can be."""
    result = CliRunner().invoke(command, ["issuer", *args])
    assert result.exit_code == click.UsageError.exit_code
    count, *lines = result.output.partition("Error: ")[2].splitlines()
    assert count.startswith(f"{len(told)} mistake")
    assert len(lines) == len(told)
    for line, part in zip(lines, told, strict=True):
        assert part in line


@pytest.mark.parametrize(
    ("text", "address"),
    [
        pytest.param(":8080", ("::", 8080), id="all addresses"),
        pytest.param("127.0.0.1:0", ("127.0.0.1", 0), id="IPv4"),
        pytest.param("[::1]:80", ("::1", 80), id="IPv6"),
        pytest.param("localhost:1", ("localhost", 1), id="a name"),
    ],
)
def test_addresses_are_read(text: str, address: tuple[str, int]) -> None:
    """Addresses have the forms that Go takes."""
    assert split_address(text) == address


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(["--workers", "0"], id="no workers"),
        pytest.param(["-addr", "8080"], id="no colon"),
        pytest.param(["--no-such-flag"], id="an unknown flag"),
        pytest.param(["--kube-apiclient-qps", "0"], id="no calls"),
    ],
)
def test_mistakes_in_flags_exit_with_2(args: list[str]) -> None:
    """Usage errors have their own exit code, and no traceback."""
    result = CliRunner().invoke(command, ["issuer", *args])
    assert result.exit_code == click.UsageError.exit_code
    assert "Traceback" not in result.output


class Program:
    """A service that runs as a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self.port = self.admin_port = 0

    def until(self, pattern: str) -> re.Match[str]:
        """Read log lines up to one that matches."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"no line like {pattern!r}:\n{''.join(self.lines)}")

    def get(self, path: str) -> tuple[int, str]:
        """Ask the admin server."""
        url = f"http://127.0.0.1:{self.admin_port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop; its exit code."""
        self.process.send_signal(number)
        assert self.process.stderr is not None
        self.lines += self.process.stderr
        return self.process.wait(timeout=40)


@contextlib.contextmanager
def running(*args: str | Path) -> Iterator[Program]:
    """Run the program, and end it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "identity", "issuer", *map(str, args)],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Program(process)
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def arguments(folder: Path, api: KubernetesApi, *more: str) -> list[str | Path]:
    """The arguments of a service with files in a folder."""
    return [
        *("--addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"),
        *(
            "--controller-namespace",
            "linkerd",
            "--identity-scheme",
            "kubernetes.io/tls",
        ),
        *("--identity-trust-domain", "cluster.local"),
        *("--issuer", folder / "issuer"),
        *("--trust-anchors", folder / "roots" / "ca-bundle.crt"),
        *("--kubeconfig", api.write_kubeconfig(folder)),
        *more,
    ]


@pytest.fixture
def folder(tmp_path: Path, root: CA, issuer: CA) -> Path:
    """A folder with an issuer's files."""
    write_issuer(tmp_path, issuer, root)
    return tmp_path


def test_the_program_serves_until_asked_to_stop(
    folder: Path, api: KubernetesApi
) -> None:
    """Not ready, then ready, then certificates; SIGTERM ends it with 0."""
    api.delay_s = 2  # the access review: long enough to be seen not ready
    with running(*arguments(folder, api, "--log-format", "json")) as program:
        program.admin_port = int(program.until(r"admin server on 127.0.0.1:(\d+)")[1])
        assert program.get("/ping") == (200, "pong\n")
        assert program.get("/ready") == (500, "not ready\n")
        assert program.get("/else")[0] == 404
        api.delay_s = 0
        program.port = int(program.until(r"gRPC server on 127.0.0.1:(\d+)")[1])
        program.until("ready to certify")
        assert program.get("/ready") == (200, "ok\n")
        with calling(program.port) as call:
            assert call(request(api.token("emojivoto", "web"))).leaf_certificate
        status, text = program.get("/metrics")
        assert status == 200
        assert "issuer_cert_ttl_seconds" in text
        assert "_created" not in text
        assert program.stop() == 0
    messages = [json.loads(line)["msg"] for line in program.lines]
    assert any(message.startswith("issued certificate for") for message in messages)
    assert messages[-1].startswith("shutting down gRPC server on")


def test_without_a_trust_domain_there_is_nothing_to_do(
    folder: Path, api: KubernetesApi
) -> None:
    """A control plane without identity is no failure: exit code 0."""
    args = arguments(folder, api, "--identity-trust-domain", "")
    with running(*args) as program:
        program.until("Identity disabled in control plane configuration.")
        assert program.process.wait(20) == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        pytest.param(
            ["--trust-anchors", "/nowhere"],
            "could not read identity trust anchors PEM",
            id="no trust anchors",
        ),
        pytest.param(
            ["--controller-namespace", "a.b"],
            "Invalid trust domain: Not a label: a.b",
            id="a namespace that is none",
        ),
        pytest.param(
            ["--issuer", "/nowhere"],
            "Failed to initialize identity service: failed to read CA from disk",
            id="no issuer",
        ),
        pytest.param(
            ["--tls-cert", "/nowhere", "--tls-key", "/nowhere"],
            "can't read the TLS certificate",
            id="no TLS certificate",
        ),
    ],
)
def test_what_keeps_it_from_starting_is_told(
    folder: Path, api: KubernetesApi, more: list[str], message: str
) -> None:
    """A fatal mistake is one message, without a traceback, and exit code 1."""
    with running(*arguments(folder, api, *more)) as program:
        program.until(f"^Error: {re.escape(message)}")
        assert program.process.wait(20) == 1
    assert "Traceback" not in "".join(program.lines)


def test_without_the_right_to_review_it_does_not_start(
    folder: Path, api: KubernetesApi
) -> None:
    """The reason of the API server is told."""
    api.denied = "RBAC: not allowed"
    with running(*arguments(folder, api)) as program:
        program.until(
            "Failed to initialize identity service: Unable to create kubernetes token "
            "reviews: RBAC: not allowed"
        )
        assert program.process.wait(20) == 1


@pytest.mark.parametrize(
    "names",
    [
        pytest.param((), id="plaintext"),
        pytest.param(("--tls-cert", "--tls-key"), id="TLS"),
    ],
)
def test_an_address_that_is_taken_is_told(
    folder: Path, api: KubernetesApi, issuer: CA, names: Sequence[str]
) -> None:
    """The error is the last that is said: no traceback of what was started before."""
    files = issuer.leaf("service.example").write(folder, "service")
    tls = (word for name, path in zip(names, files) for word in (name, str(path)))  # noqa: B905  (or none)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with running(*arguments(folder, api, "--addr", address, *tls)) as program:
            program.until("^Error: can't listen on 127.0.0.1")
            assert program.process.stderr is not None
            assert program.process.stderr.read() == ""
            assert program.process.wait(20) == 1


@pytest.mark.parametrize(
    ("listener", "option"), [("admin", "--admin-addr"), ("gRPC", "--addr")]
)
def test_a_port_that_is_taken_is_told(
    folder: Path, api: KubernetesApi, listener: str, option: str
) -> None:
    """Two services can't have one port: each would get some of the calls."""
    with running(*arguments(folder, api)) as first:
        port = first.until(rf"{listener} server on 127.0.0.1:(\d+)")[1]
        args = arguments(folder, api, option, f"127.0.0.1:{port}")
        with running(*args) as second:
            second.until(rf"Error: can't listen on 127.0.0.1\D+{port}")
            assert second.process.wait(20) == 1


def children(pid: int) -> list[int]:
    """The workers that a process has started."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [
        int(child)
        for child in found.split()
        if b"identity.issuer.workers" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def two_workers(folder: Path, api: KubernetesApi) -> list[str | Path]:
    """The arguments of a service with two processes."""
    return arguments(folder, api, "--workers", "2", "--token-validator", "jwks")


def test_two_workers_share_the_port_and_the_metrics(
    folder: Path, api: KubernetesApi
) -> None:
    """Calls over many connections reach both; one page has the sum; all end."""
    with running(*two_workers(folder, api)) as program:
        program.admin_port = int(program.until(r"admin server on 127.0.0.1:(\d+)")[1])
        program.port = int(program.until(r"gRPC server on 127.0.0.1:(\d+)")[1])
        program.until("ready to certify")
        workers = children(program.process.pid)
        message = request(api.token("emojivoto", "web"))
        for _ in range(24):
            with calling(program.port) as call:
                assert call(message).leaf_certificate
        _, text = program.get("/metrics")
        handled = re.search(r'handled_total{grpc_code="OK".*} (\S+)', text)
        assert handled is not None
        assert float(handled[1]) == 24
        busy = [pid for pid in workers if cpu_ticks(pid)]
        assert program.stop() == 0
    assert len(workers) == len(busy) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def cpu_ticks(pid: int) -> int:
    """How long a process has computed, in clock ticks."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
    return sum(map(int, stat.split()[11:13]))


def test_a_worker_that_is_killed_ends_all(folder: Path, api: KubernetesApi) -> None:
    """Half a service would go unnoticed: who restarts us has to see a failure."""
    with running(*two_workers(folder, api)) as program:
        program.until("ready to certify")
        one, other = children(program.process.pid)
        os.kill(one, signal.SIGKILL)
        program.until("^Error: a worker process has ended")
        assert program.process.wait(40) == 1
        assert not Path(f"/proc/{other}").exists()


def test_what_keeps_workers_from_starting_is_told_once(
    folder: Path, api: KubernetesApi
) -> None:
    """The message of a worker becomes the program's."""
    args = [*two_workers(folder, api), "--issuer", "/nowhere"]
    with running(*args) as program:
        program.until("^Error: Failed to initialize identity service: failed to read")
        assert program.process.wait(40) == 1
    assert "Traceback" not in "".join(program.lines)


def test_workers_do_not_outlive_a_parent_that_is_killed(
    folder: Path, api: KubernetesApi
) -> None:
    """No port stays taken by processes that nobody owns."""
    with running(*two_workers(folder, api)) as program:
        program.port = int(program.until(r"gRPC server on 127.0.0.1:(\d+)")[1])
        program.until("ready to certify")
        program.process.kill()
        # Their ends of standard error close with them: this reads to the end.
        assert program.process.stderr is not None
        program.lines += program.process.stderr
    with calling(program.port) as call:
        found = outcome(call, request(b"token"))
    assert "UNAVAILABLE" in str(found)
