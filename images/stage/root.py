"""The root folder of an image: files of Debian's packages, at the same place."""
# ruff: noqa: INP001  (a folder of images; the build stage's own tools)

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from images.stage import sbom

_MERGED = ("bin", "lib", "lib64", "sbin")
"""Folders that are links into /usr, as in Debian."""

_EMPTY = ("dev", "etc", "proc", "run", "sys", "tmp", "usr/bin", "usr/sbin")

_USERS = """\
root:x:0:0:root:/:/nonexistent
nobody:x:65534:65534:nobody:/nonexistent:/nonexistent
"""
_GROUPS = """\
root:x:0:
nogroup:x:65534:
"""


class Root:
    """The folder that becomes an image, and the packages that its files are from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.packages: set[str] = set()
        self._owners = dict(sbom.owners())
        self._skeleton()

    def place(self, path: str | Path) -> Path:
        """Where an absolute path of the image is now."""
        return self.folder / str(path).lstrip("/")

    def _skeleton(self) -> None:
        for name in _EMPTY:
            (self.folder / name).mkdir(parents=True)
        for name in _MERGED:
            (self.folder / "usr" / name).mkdir(exist_ok=True)
            (self.folder / name).symlink_to(f"usr/{name}")
        self.place("/tmp").chmod(0o1777)  # noqa: S108  (the image's own)
        self.place("/etc/passwd").write_text(_USERS, encoding="ascii")
        self.place("/etc/group").write_text(_GROUPS, encoding="ascii")
        # There before anybody needs to make it: iptables-legacy then works under any
        # user and on a read-only root as well, where nothing is mounted at /run.
        lock = self.place("/run/xtables.lock")
        lock.touch()
        lock.chmod(0o444)

    def add(self, path: Path) -> None:
        """Copy a file or a folder of this system, and what a link leads to."""
        path = path.parent.resolve() / path.name
        target = self.place(path)
        if os.path.lexists(target):
            return
        if path.is_dir() and not path.is_symlink():
            for inner in sorted(path.iterdir()):
                self.add(inner)
            return
        self.credit(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target, follow_symlinks=False)
        if path.is_symlink():
            self.add(path.parent / path.readlink())
        else:
            self.add_libraries(path)

    def add_libraries(self, path: Path) -> None:
        """Copy what the loader would load for a program or a library."""
        for library in _libraries(path):
            self.add(library)

    def credit(self, path: Path) -> None:
        """Count the package that a file of this system is from as part of the image."""
        # Packages may name files by the paths from before /usr was merged.
        for name in (str(path), str(path).removeprefix("/usr")):
            if name in self._owners:
                self.packages.add(self._owners[name])

    def new_file(self, path: str, mode: int = 0o755) -> Path:
        """An empty file to be filled."""
        made = self.place(path)
        made.parent.mkdir(parents=True, exist_ok=True)
        made.touch()
        made.chmod(mode)
        return made

    def licences(self) -> None:
        """Copy the copyright file of every package that something is from."""
        for package in sorted(self.packages):
            source = Path("/usr/share/doc", package.partition(":")[0], "copyright")
            self.place(source).parent.mkdir(parents=True)
            shutil.copy(source, self.place(source))

    def settle(self, epoch: int) -> None:
        """Give all files one time."""
        for path in self.folder.rglob("*"):
            os.utime(path, (epoch, epoch), follow_symlinks=False)


def _libraries(path: Path) -> Iterator[Path]:
    with path.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return
    argv = ["/usr/bin/ldd", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if "not found" in done.stdout:
        raise SystemExit(f"{path} needs what is not here:\n{done.stdout}")
    for line in done.stdout.splitlines():
        if found := re.search(r"(/\S+) \(0x", line):
            yield Path(found[1])
