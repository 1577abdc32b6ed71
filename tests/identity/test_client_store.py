"""The set of files as one unit: swaps, interruptions, foreign files, full disks."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from identity import store
from identity.errors import DirectoryUnusable
from identity.store import PRIVATE, PUBLIC, Disk, publish, read

NAMES = ("tls.key", "tls.crt", "ca.crt")


def generation(number: int) -> dict[str, tuple[bytes, int]]:
    """A set whose files all tell the same number."""
    text = f"{number}".encode()
    return {
        "tls.key": (text, PRIVATE),
        "tls.crt": (text, PUBLIC),
        "ca.crt": (text, PUBLIC),
    }


def seen(folder: Path) -> set[bytes]:
    """The numbers that the files of the current set tell, by one look at it."""
    return set(read(str(folder), NAMES).values())


def listed(folder: Path) -> list[str]:
    """The names in a folder."""
    return sorted(path.name for path in folder.iterdir())


def test_a_set_is_laid_out_as_kubernetes_does(tmp_path: Path) -> None:
    """Links into ..data, a folder behind it, modes as asked for."""
    publish(str(tmp_path), generation(1), Disk())

    assert listed(tmp_path) == ["..data", "..set-1", *sorted(NAMES)]
    for name in NAMES:
        assert (tmp_path / name).readlink() == Path("..data", name)
        assert (tmp_path / name).read_bytes() == b"1"
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in NAMES]
    assert modes == [0o600, 0o644, 0o644]
    assert stat.S_IMODE((tmp_path / "..set-1").stat().st_mode) == 0o755


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    """Neither a strict nor a lax umask changes what is written."""
    before = os.umask(0o777)
    try:
        publish(str(tmp_path), generation(1), Disk())
        os.umask(0)
        store.write_pair(str(tmp_path), {"key.p8": b"k", "csr.der": b"c"}, Disk())
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "ca.crt").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "key.p8").stat().st_mode) == 0o600


def test_files_are_born_private_and_renamed_when_whole(tmp_path: Path) -> None:
    """The kernel's own record: created 0600 and new, written through, then renamed."""
    code = (
        "from identity.store import *; import sys\n"
        "write_pair(sys.argv[1], {'key.p8': b'k', 'csr.der': b'c'}, Disk())"
    )
    trace = tmp_path / "trace"
    (tmp_path / "dir").mkdir()
    subprocess.run(
        [
            *f"strace -f -o {trace} -e openat,fsync,rename,unlink".split(),
            *(sys.executable, "-c", code, str(tmp_path / "dir")),
        ],
        check=True,
    )
    calls = trace.read_text()
    steps = [
        f'.{name}.new", O_WRONLY|O_CREAT|O_EXCL|O_NOFOLLOW|O_CLOEXEC, 0600) = '
        for name in ("key.p8", "csr.der")
    ]
    steps.insert(1, "fsync(")
    steps += ["fsync(", 'unlink("', '/csr.der")', "rename(", '/key.p8")']
    steps += ["rename(", '/csr.der")', "O_DIRECTORY", "fsync("]
    at = 0
    for step in steps:
        assert step in calls[at:], step
        at = calls.index(step, at) + len(step)


def test_the_previous_set_stays_for_its_readers(tmp_path: Path) -> None:
    """Who has opened ..data keeps a whole set; the one before that is removed."""
    folder = str(tmp_path)
    for number in range(1, 4):
        publish(folder, generation(number), Disk())
    kept = [name for name in listed(tmp_path) if name.startswith("..set")]
    assert kept == ["..set-2", "..set-3"]
    assert seen(tmp_path) == {b"3"}
    assert (tmp_path / "..set-2" / "tls.key").read_bytes() == b"2"


def test_readers_never_see_two_generations(tmp_path: Path) -> None:
    """While sets are replaced without pause, each look shows one whole set."""
    publish(str(tmp_path), generation(0), Disk())
    done = threading.Event()
    looks: list[set[bytes]] = []

    def look() -> None:
        while not done.is_set():
            with contextlib.suppress(FileNotFoundError, DirectoryUnusable):
                looks.append(seen(tmp_path))

    thread = threading.Thread(target=look)
    thread.start()
    for number in range(1, 100):
        publish(str(tmp_path), generation(number), Disk())
    done.set()
    thread.join()
    assert {len(look) for look in looks} == {1}


class Killed(BaseException):
    """The process is gone."""


class StoppingDisk(Disk):
    """Stops at the n-th change: killed, or by an error of the system."""

    def __init__(self, steps: int, error: BaseException) -> None:
        self.left = steps
        self.error = error

    def step(self) -> None:
        """One change more."""
        self.left -= 1
        if self.left == -1:
            raise self.error

    def create(self, path: str, data: bytes, mode: int) -> None:
        self.step()
        super().create(path, data[:0], mode)
        self.step()
        Path(path).unlink()
        super().create(path, data, mode)

    def rename(self, source: str, target: str) -> None:
        self.step()
        super().rename(source, target)

    def link(self, target: str, path: str) -> None:
        self.step()
        super().link(target, path)

    def make_folder(self, path: str) -> None:
        self.step()
        super().make_folder(path)

    def remove(self, path: str) -> None:
        self.step()
        super().remove(path)

    def remove_folder(self, path: str) -> None:
        self.step()
        super().remove_folder(path)

    def sync(self, path: str) -> None:
        self.step()
        super().sync(path)


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("first", [True, False], ids=["first set", "renewal"])
@pytest.mark.parametrize("error", [Killed(), FULL], ids=["killed", "disk full"])
def test_stopped_at_any_step(
    tmp_path: Path,
    error: BaseException,
    first: bool,  # noqa: FBT001  (a case)
) -> None:
    """Before and after each change there is the old set or the new one, whole."""
    old: set[bytes] = set()
    steps = 0
    finished = False
    while not finished:
        folder = tmp_path / str(steps)
        folder.mkdir()
        if not first:
            publish(str(folder), generation(1), Disk())
            publish(str(folder), generation(2), Disk())
            old = {b"2"}
        try:
            publish(str(folder), generation(7), StoppingDisk(steps, error))
            finished = True
        except (Killed, DirectoryUnusable):
            assert seen(folder) in (old, {b"7"})
            for name in NAMES:
                content = (
                    (folder / name).read_bytes() if (folder / name).exists() else b""
                )
                assert {content} - {b""} <= seen(folder)
        publish(str(folder), generation(8), Disk())
        assert seen(folder) == {b"8"}, "the next run goes on as if nothing had been"
        assert len(list(folder.iterdir())) <= 1 + 2 + len(NAMES), "no leftovers pile up"
        steps += 1
    assert steps > 12


def test_killed_for_real(tmp_path: Path) -> None:
    """SIGKILL at arbitrary moments, eight times over: every set seen is whole."""
    code = (
        "import sys, itertools; from identity.store import *\n"
        "for n in itertools.count(int(sys.argv[2])):\n"
        "    f = {k: (str(n).encode() * 1000, 0o600) for k in sys.argv[3:]}\n"
        "    publish(sys.argv[1], f, Disk()); print(n, flush=True)\n"
    )
    for number in range(8):
        argv = [sys.executable, "-c", code, str(tmp_path), str(number * 10**6), *NAMES]
        writer = subprocess.Popen(argv, stdout=subprocess.PIPE)
        assert writer.stdout is not None
        with writer:
            for _ in range(1 + number):
                writer.stdout.readline()
            writer.kill()
        assert len(seen(tmp_path)) == 1
        assert len(read(str(tmp_path), NAMES)) == len(NAMES)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda path: path.write_text("mine"), id="file"),
        pytest.param(lambda path: path.symlink_to("/etc/passwd"), id="link elsewhere"),
        pytest.param(lambda path: path.mkdir(), id="folder"),
    ],
)
def test_files_of_others_are_left_alone(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    """What this program did not make is neither replaced nor followed."""
    make(tmp_path / "tls.crt")
    with pytest.raises(
        DirectoryUnusable, match=r"tls.crt was not made by this program"
    ):
        publish(str(tmp_path), generation(1), Disk())
    assert listed(tmp_path) == ["tls.crt"]


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "No space left on device: free some space, or raise"),
        (errno.EROFS, "Read-only file system: mount it writable"),
        (errno.EACCES, "Permission denied: let this user write there"),
        (errno.EIO, "Input/output error: look at the volume that is mounted there"),
    ],
    ids=["full", "read-only", "no permission", "broken"],
)
def test_errors_say_what_to_do(tmp_path: Path, number: int, advice: str) -> None:
    """The path, the system's reason, and the remedy."""
    disk = StoppingDisk(0, OSError(number, os.strerror(number), f"{tmp_path}/x"))
    with pytest.raises(DirectoryUnusable) as caught:
        publish(str(tmp_path), generation(1), disk)
    assert str(caught.value).startswith(f"{tmp_path}/x: {advice}")


def test_a_directory_that_is_missing(tmp_path: Path) -> None:
    """It is never created; every function says so."""
    gone = str(tmp_path / "gone")
    for act in (
        lambda: publish(gone, generation(1), Disk()),
        lambda: store.write_pair(gone, {"a": b""}, Disk()),
        lambda: read(gone, NAMES),
    ):
        with pytest.raises(DirectoryUnusable, match=r"mount a volume there"):
            act()
    assert store.published_at(gone) is None


def test_a_plain_folder_is_read_too(tmp_path: Path) -> None:
    """Files without ..data, as of other programs, can be looked at."""
    (tmp_path / "tls.crt").write_text("x")
    assert read(str(tmp_path), NAMES) == {"tls.crt": b"x"}


def test_writers_wait_for_each_other(tmp_path: Path) -> None:
    """Two programs that write at the same time do so one after the other."""

    def write(numbers: range) -> None:
        for number in numbers:
            publish(str(tmp_path), generation(number), Disk())

    threads = [
        threading.Thread(target=write, args=(range(at, at + 50),)) for at in (0, 100)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen(tmp_path) in ({b"49"}, {b"149"})
