"""Files of an identity directory: whole or not at all, single or as one unit.

The unit is laid out as Kubernetes lays out a mounted secret: a folder for each
generation, ``..data`` a link to the current one, and a link for each file into
``..data``. Replacing ``..data`` is one rename, so who opens ``..data`` once and
reads inside sees files of one generation, whatever happens meanwhile. The
generation before stays until the next, for those who opened it.
"""
# pathlib would add 3 ms to every start of a pod.
# ruff: noqa: PTH101, PTH102, PTH104, PTH106, PTH108, PTH114, PTH115, PTH116
# ruff: noqa: PTH123, PTH208, PTH211

from __future__ import annotations

import contextlib
import errno
import os
from fcntl import LOCK_EX, flock

from identity.errors import DirectoryUnusable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CURRENT = "..data"
PRIVATE = 0o600
PUBLIC = 0o644
_GENERATION = "..set-"
_NEW = ".new"
_FOLDER_MODE = 0o755


class Disk:
    """The changes that the store makes, one method each: so tests can break any."""

    def create(self, path: str, data: bytes, mode: int) -> None:
        """Write a new file with exactly this mode, through to the disk."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(path, flags, PRIVATE)
        try:
            os.fchmod(fd, mode)
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: str, target: str) -> None:
        """Give a file or link its final name, in place of what had it."""
        os.rename(source, target)

    def link(self, target: str, path: str) -> None:
        """Make a symbolic link."""
        os.symlink(target, path)

    def make_folder(self, path: str) -> None:
        """Make a folder that others may look into."""
        os.mkdir(path, PRIVATE | 0o100)
        os.chmod(path, _FOLDER_MODE)

    def remove(self, path: str) -> None:
        """Remove a file or link, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_folder(self, path: str) -> None:
        """Remove a folder and the files in it."""
        for name in os.listdir(path):
            os.unlink(f"{path}/{name}")
        os.rmdir(path)

    def sync(self, path: str) -> None:
        """Make renames in a folder last through a crash of the machine."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def write_pair(directory: str, files: Mapping[str, bytes], disk: Disk) -> None:
    """Replace files that belong together but have to be plain files.

    The last one marks the pair as complete: it is missing while they are replaced,
    so that no reader takes a half of the old pair for a half of the new one. All
    are on the disk before the first is touched. Raises `DirectoryUnusable`.
    """
    with _Writing(directory):
        for name in files:
            disk.remove(f"{directory}/.{name}{_NEW}")
        try:
            for name, data in files.items():
                disk.create(f"{directory}/.{name}{_NEW}", data, PRIVATE)
            disk.remove(f"{directory}/{list(files)[-1]}")
            for name in files:
                disk.rename(f"{directory}/.{name}{_NEW}", f"{directory}/{name}")
        except OSError:
            # The error says more than one of the clean-up would.
            with contextlib.suppress(OSError):
                for name in files:
                    disk.remove(f"{directory}/.{name}{_NEW}")
            raise
        disk.sync(directory)


def publish(directory: str, files: Mapping[str, tuple[bytes, int]], disk: Disk) -> None:
    """Replace the set of files, given with their modes, as one unit.

    Raises `DirectoryUnusable`; the set that was there is then still there, whole.
    """
    with _Writing(directory):
        _refuse_foreign(directory, files)
        current = _current(directory)
        for name in _generations(directory):
            if name != current:
                disk.remove_folder(f"{directory}/{name}")
        folder = f"{_GENERATION}{_number(current) + 1}"
        try:
            disk.make_folder(f"{directory}/{folder}")
            for name, (data, mode) in files.items():
                disk.create(f"{directory}/{folder}/{name}", data, mode)
            disk.sync(f"{directory}/{folder}")
            for name in files:
                if not os.path.lexists(f"{directory}/{name}"):
                    disk.link(f"{CURRENT}/{name}", f"{directory}/{name}")
            disk.remove(f"{directory}/{CURRENT}{_NEW}")
            disk.link(folder, f"{directory}/{CURRENT}{_NEW}")
            disk.rename(f"{directory}/{CURRENT}{_NEW}", f"{directory}/{CURRENT}")
        except OSError:
            with contextlib.suppress(OSError):
                disk.remove(f"{directory}/{CURRENT}{_NEW}")
                disk.remove_folder(f"{directory}/{folder}")
            raise
        disk.sync(directory)


def read(directory: str, names: Sequence[str]) -> dict[str, bytes]:
    """The files that are there, all of one generation.

    Without ``..data`` the files of the folder itself. Raises `DirectoryUnusable`.
    """
    try:
        while True:
            generation = _current(directory)
            try:
                found = _read_folder(f"{directory}/{generation}", names)
            except FileNotFoundError:
                if _current(directory) == generation:
                    raise
                continue
            # A reader that was held up may find a generation that is gone meanwhile.
            if len(found) == len(names) or _current(directory) == generation:
                return found
    except OSError as error:
        raise unusable(directory, error) from error


def published_at(directory: str) -> float | None:
    """When the current generation was made, as Unix time; None without any."""
    try:
        return os.stat(f"{directory}/{CURRENT}/").st_mtime
    except OSError:
        return None


def _read_folder(path: str, names: Sequence[str]) -> dict[str, bytes]:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return dict(_read_files(folder, names))
    finally:
        os.close(folder)


def _read_files(folder: int, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    for name in names:
        try:
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
        except FileNotFoundError:
            continue
        with open(fd, "rb") as stream:
            yield name, stream.read()


def unusable(directory: str, error: OSError) -> DirectoryUnusable:
    """An error of the operating system, with what to do about it."""
    advice = {
        errno.ENOSPC: "free some space, or raise the volume's size limit",
        errno.EDQUOT: "free some space, or raise the quota",
        errno.EROFS: "mount it writable",
        errno.EACCES: "let this user write there",
        errno.EPERM: "let this user write there",
        errno.ENOENT: "mount a volume there; it is never created",
    }.get(error.errno or 0, "look at the volume that is mounted there")
    path = error.filename if isinstance(error.filename, str) else directory
    return DirectoryUnusable(f"{path}: {error.strerror}: {advice}")


class _Writing:
    """Keeps other writers away from a directory, and tells its errors to people."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._fd = -1

    def __enter__(self) -> None:
        try:
            self._fd = os.open(
                self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            )
            flock(self._fd, LOCK_EX)
        except OSError as error:
            raise unusable(self._directory, error) from error

    def __exit__(self, _kind: object, error: BaseException | None, _: object) -> None:
        os.close(self._fd)
        if isinstance(error, OSError):
            raise unusable(self._directory, error) from error


def _refuse_foreign(directory: str, names: Mapping[str, object]) -> None:
    for name in names:
        path = f"{directory}/{name}"
        if not os.path.lexists(path):
            continue
        target = os.readlink(path) if os.path.islink(path) else ""
        if target != f"{CURRENT}/{name}":
            raise DirectoryUnusable(
                f"{path} was not made by this program and is left alone: "
                "remove it, or choose another directory"
            )


def _current(directory: str) -> str:
    try:
        return os.readlink(f"{directory}/{CURRENT}")
    except FileNotFoundError:
        return ""


def _generations(directory: str) -> list[str]:
    return [name for name in os.listdir(directory) if name.startswith(_GENERATION)]


def _number(generation: str) -> int:
    digits = generation.removeprefix(_GENERATION)
    return int(digits) if digits.isdigit() else 0
