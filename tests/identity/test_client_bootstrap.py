"""The bootstrap as a program: what it writes, what it says, what it becomes."""

from __future__ import annotations

import gc
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from identity import bootstrap, entry, keys, pem
from identity.bootstrap import Command
from identity.entry import bootstrap_command
from identity.errors import BadTrustAnchors, DirectoryUnusable
from identity.store import Disk, write_pair
from identity.variables import DIRECTORY, LOCAL_NAME, TRUST_ANCHORS

NAME = "web.emojivoto.serviceaccount.identity.linkerd.cluster.local"
TRUE = Command("/bin/true")


@pytest.fixture(scope="session")
def anchor(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A trust anchor in PEM, made by openssl."""
    folder = tmp_path_factory.mktemp("anchor")
    subprocess.run(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "
        f"-keyout {folder}/key -out {folder}/crt -subj /CN=root".split(),
        check=True,
        capture_output=True,
    )
    return (folder / "crt").read_text()


@pytest.fixture
def environ(tmp_path: Path, anchor: str) -> dict[str, str]:
    """The environment that Linkerd's charts give, and a PATH."""
    return {
        DIRECTORY: str(tmp_path),
        LOCAL_NAME: NAME,
        TRUST_ANCHORS: anchor,
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(bootstrap.__file__).parents[1]),
    }


Program = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def program(environ: dict[str, str]) -> Program:
    """Runs proxy-identity as its own process."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "identity", *arguments],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def contents(folder: str | Path) -> dict[str, bytes]:
    """The files of a folder."""
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def test_a_pod_gets_its_files_and_its_proxy(
    program: Program, environ: dict[str, str], tmp_path: Path
) -> None:
    """The two files, 0600 and nothing beside them; then the proxy, same process."""
    ran = program("--proxy", "/bin/sh", "--", "-c", 'echo "$0 $1 $LINKERD2"', "a", "b")

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "a b \n", "")
    assert sorted(contents(tmp_path)) == ["csr.der", "key.p8"]
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
        assert path.lstat().st_mode & stat.S_IFREG
    key = serialization.load_der_private_key((tmp_path / "key.p8").read_bytes(), None)
    request = x509.load_der_x509_csr((tmp_path / "csr.der").read_bytes())
    assert len((tmp_path / "key.p8").read_bytes()) == 138
    assert request.public_key() == key.public_key()
    assert environ[LOCAL_NAME] in request.subject.rfc4514_string()


def test_the_proxy_starts_as_from_upstream(program: Program) -> None:
    """Its own name as only argument, the whole environment, no ignored signals."""
    ran = program("--proxy=/bin/sh", "--", "-c", "env; cat /proc/self/cmdline")
    assert ran.stdout.endswith("cat\0/proc/self/cmdline\0")
    assert f"{LOCAL_NAME}={NAME}" in ran.stdout

    ran = program(
        "--proxy", "/bin/cat", "--", "/proc/self/status", "/proc/self/cmdline"
    )
    ignored = re.search(r"^SigIgn:\s+(\w+)$", ran.stdout, re.MULTILINE)
    assert ignored
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores both
        assert not int(ignored[1], 16) >> (number - 1) & 1
    assert ran.stdout.endswith("cat\0/proc/self/status\0/proc/self/cmdline\0")


def test_a_restart_replaces_both(program: Program, tmp_path: Path) -> None:
    """What is there is reported, then replaced, with strict modes."""
    for name in ("key.p8", "csr.der"):
        (tmp_path / name).write_bytes(b"old")
        (tmp_path / name).chmod(0o666)

    ran = program("--proxy", "/bin/true")

    assert ran.returncode == 0
    assert f'level=info msg="Found pre-existing key: {tmp_path}/key.p8"' in ran.stderr
    assert f'level=info msg="Found pre-existing CSR: {tmp_path}/csr.der"' in ran.stderr
    for name, data in contents(tmp_path).items():
        assert data != b"old"
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_every_line_is_as_logrus_writes_it(
    program: Program, environ: dict[str, str]
) -> None:
    """All mistakes at once, each a line of level fatal; exit 1; nothing written."""
    folder = environ.pop(DIRECTORY)
    environ.update({LOCAL_NAME: "web", TRUST_ANCHORS: "junk"})

    ran = program("--proxy", "/nowhere")

    assert ran.returncode == 1
    stamp = r'time="\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ" level=fatal msg='
    said = [re.sub(stamp, "", line) for line in ran.stderr.splitlines()]
    assert said == [
        '"Invalid end-entity directory: no end entity directory specified"',
        '"Failed to load trust anchors: not a PEM certificate: there is no BEGIN line"',
        f'"web a fully qualified DNS name is required: set {LOCAL_NAME}"',
        '"Failed to run proxy: no such file or directory: /nowhere"',
    ]
    assert not contents(folder)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        pytest.param(
            DIRECTORY,
            "/nowhere",
            "Invalid end-entity directory: /nowhere: No such file or directory: ",
            id="no directory",
        ),
        pytest.param(
            DIRECTORY,
            "/etc/passwd",
            "Invalid end-entity directory: not a directory: /etc/passwd",
            id="a file",
        ),
        pytest.param(
            TRUST_ANCHORS,
            "",
            f"Failed to load trust anchors: '{TRUST_ANCHORS}' must be set",
            id="no anchors",
        ),
        pytest.param(
            TRUST_ANCHORS,
            " \n",
            "Failed to load trust anchors: no certificates found",
            id="blank anchors",
        ),
        pytest.param(LOCAL_NAME, "", "a non-empty identity is required", id="no name"),
    ],
)
def test_nothing_is_written_when_an_input_is_wrong(
    environ: dict[str, str], tmp_path: Path, variable: str, value: str, message: str
) -> None:
    """One wrong input: its message, exit 1, and the directory is as it was."""
    (tmp_path / "key.p8").write_text("old")
    environ[variable] = value
    lines: list[str] = []

    status = bootstrap.run(environ, TRUE, lambda _, line: lines.append(line))

    assert status == 1
    assert len(lines) == 1
    assert lines[0].startswith(message)
    assert contents(tmp_path) == {"key.p8": b"old"}


def test_unset_is_wrong_as_empty_is(tmp_path: Path) -> None:
    """Without any variable there is a line for each."""
    lines: list[str] = []
    assert bootstrap.run({}, TRUE, lambda _, line: lines.append(line)) == 1
    assert len(lines) == 3
    assert not contents(tmp_path)


def test_a_proxy_that_does_not_start_is_told(environ: dict[str, str]) -> None:
    """When exec fails all the same, the program says so and exits 1."""

    def execute(*_: object) -> None:
        raise OSError(8, "Exec format error")

    lines: list[tuple[str, str]] = []
    say = lambda level, line: lines.append((level, line))  # noqa: E731
    assert bootstrap.run(environ, TRUE, say, execute=execute) == 1
    assert lines == [("fatal", "Failed to run proxy: exec format error: /bin/true")]


# === trust anchors ===


def test_anchors_as_people_paste_them(anchor: str) -> None:
    """Blank lines, comments, carriage returns and several blocks are all fine."""
    (one,) = pem.certificates(anchor)
    assert pem.certificates(f"\n# root\n{anchor}\n\n{anchor}\n\n") == (one, one)
    assert pem.certificates(anchor.replace("\n", "\r\n")) == (one,)
    assert pem.certificates(pem.encode("CERTIFICATE", one)) == (one,)
    assert pem.encode("CERTIFICATE", one) == anchor


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda text: text.replace("-----END", "END"), id="no end"),
        pytest.param(lambda text: text[:300], id="cut off"),
        pytest.param(lambda text: text * 2 + "-----BEGIN CERTIFICATE-----", id="open"),
        pytest.param(lambda text: text[:-27] + text, id="begins inside another"),
        pytest.param(lambda text: text.replace("MII", "!II"), id="not base64"),
        pytest.param(lambda text: text.replace("MII", "MAA"), id="not DER"),
        pytest.param(lambda text: text.replace("CERTIFICATE", "PRIVATE KEY"), id="key"),
    ],
)
def test_anchors_that_are_none(anchor: str, damage: Callable[[str], str]) -> None:
    """Damage is found, and told without showing what stands there."""
    with pytest.raises(BadTrustAnchors, match=r"^not a PEM certificate") as caught:
        pem.certificates(damage(anchor))
    assert "MII" not in str(caught.value)


# === interruption ===


class Killed(BaseException):
    """Power went off."""


class FailingDisk(Disk):
    """Stops at the n-th change, as if killed or out of space."""

    def __init__(self, steps: int, error: BaseException) -> None:
        self.left = steps
        self.error = error

    def _step(self) -> None:
        if not self.left:
            raise self.error
        self.left -= 1

    def create(self, path: str, data: bytes, mode: int) -> None:
        self._step()
        super().create(path, data[: len(data) // 2], mode)  # half of it is written
        Path(path).unlink()
        self._step()
        super().create(path, data, mode)

    def rename(self, source: str, target: str) -> None:
        self._step()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._step()
        super().remove(path)

    def sync(self, path: str) -> None:
        self._step()
        super().sync(path)


def pairs(folder: Path) -> bool:
    """Whether the CSR, if there is one, is for the key."""
    if not (folder / "csr.der").exists():
        return False
    key = serialization.load_der_private_key((folder / "key.p8").read_bytes(), None)
    request = x509.load_der_x509_csr((folder / "csr.der").read_bytes())
    return request.public_key() == key.public_key()


@pytest.mark.parametrize(
    "error", [Killed(), OSError(28, "No space left on device")], ids=["kill", "full"]
)
def test_stopped_anywhere_no_half_pair_is_seen(
    environ: dict[str, str], tmp_path: Path, error: BaseException
) -> None:
    """At each step: the old pair, none that is complete, or the new pair."""
    quiet = lambda *_: None  # noqa: E731
    bootstrap.prepare(environ, quiet, disk=Disk())
    old = contents(tmp_path)
    seen = set()
    told: set[str] = set()
    for steps in range(100):
        write_pair(str(tmp_path), old, Disk())
        try:
            disk = FailingDisk(steps, error)
            bootstrap.prepare(environ, quiet, disk=disk, generate=keys.generate)
        except Killed:
            pass
        except DirectoryUnusable as full:
            told.add(str(full).partition(": ")[2])
        else:
            break
        complete = (tmp_path / "csr.der").exists()
        assert pairs(tmp_path) is complete
        seen.add(complete)
    assert pairs(tmp_path)
    assert contents(tmp_path) != old
    assert sorted(contents(tmp_path)) == ["csr.der", "key.p8"], "leftovers are removed"
    assert steps > 5
    assert True in seen
    advice = (
        "No space left on device: free some space, or raise the volume's size limit"
    )
    assert told == (set() if isinstance(error, Killed) else {advice})


def test_a_directory_that_can_not_be_written(environ: dict[str, str]) -> None:
    """A read-only mount is told with what to do, and nothing is executed."""
    lines: list[str] = []
    disk = FailingDisk(0, OSError(30, "Read-only file system", environ[DIRECTORY]))

    status = bootstrap.run(
        environ,
        TRUE,
        lambda _, line: lines.append(line),
        disk=disk,
        execute=pytest.fail,
    )

    assert status == 1
    assert lines == [f"{environ[DIRECTORY]}: Read-only file system: mount it writable"]


# === the command line ===


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        pytest.param([], Command(), id="bare"),
        pytest.param(["--proxy", "/p"], Command("/p"), id="another proxy"),
        pytest.param(["--proxy=/p", "--"], Command("/p", ()), id="with equals sign"),
        pytest.param(["--", "-a", "--"], Command(arguments=("-a", "--")), id="rest"),
        pytest.param(["run"], None, id="a command"),
        pytest.param(["--help"], None, id="help"),
        pytest.param(["--proxy"], None, id="value missing"),
        pytest.param(["--proxy", "--", "a"], None, id="value is the separator"),
    ],
)
def test_what_is_a_bootstrap(argv: list[str], command: Command | None) -> None:
    """Only --proxy and what follows -- belong to it; all else is click's."""
    assert bootstrap_command(argv) == command


def test_the_bootstrap_imports_little(program: Program) -> None:
    """Neither click nor X.509 nor gRPC nor logging is waited for by a pod."""
    code = "import sys, identity.entry; print(*sys.modules, sep='\\n')"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(ran.stdout.split())
    unwanted = "click grpc ssl logging dataclasses pathlib cryptography.x509 asyncio"
    assert not loaded & set(unwanted.split())
    assert program("--version").stdout.startswith("proxy-identity ")


def test_commands_collect_their_garbage(capsys: pytest.CaptureFixture[str]) -> None:
    """The bootstrap goes without the collector; what runs for long does not."""
    gc.disable()
    try:
        entry.main(["--help"])
        assert gc.isenabled()
    finally:
        gc.enable()
    assert "certify" in capsys.readouterr().out
