"""What images are built from: our sources, Python packages, and a base of Debian's."""
# ruff: noqa: INP001  (a folder of images, no package of ours)

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from images.engine import BuildFailed, Podman

SOURCE = Path(__file__).parents[1]
NAMES = ("proxy-init", "identity")
SUITE = "bookworm"
"""The Debian release whose Python `contents.toml` names."""
PYTHON = "3.11"

FILES = ("LICENSE", "constraints.txt", "pyproject.toml")
PACKAGES = ("identity", "images", "proxyinit")
"""What images are built from: files and folders of the repository."""


def lay_out(context: Path) -> None:
    """Copy what images are built from, and nothing that Python or an editor left."""
    ignored = shutil.ignore_patterns("__pycache__", "wheels")
    for name in PACKAGES:
        shutil.copytree(SOURCE / name, context / name, ignore=ignored)
    for name in FILES:
        shutil.copy(SOURCE / name, context)
    for name in ("pods", "testing"):
        shutil.rmtree(context / "images" / name)
    for folder, folders, files in os.walk(context):  # whatever umask the clone had
        for name in folders:
            Path(folder, name).chmod(0o755)
        for name in files:
            Path(folder, name).chmod(0o644)


def digest(folder: Path) -> str:
    """A number for the content of a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found.update(f"{path.relative_to(folder)}\0".encode())
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def wheels(context: Path, cache: Path) -> None:
    """Lay the Python packages beside the sources, so that the build needs no index.

    They come through the pip of this interpreter, as it is configured here.
    """
    extras = {extra for name in NAMES for extra in _contents(name)["extras"]}
    script = context / "images/stage/requirements.py"
    argv = [sys.executable, str(script), *sorted(extras)]
    wanted = _output(argv, context).split()
    text = (context / "constraints.txt").read_text() + "\n".join(wanted)
    folder = cache / f"wheels-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if not folder.is_dir():
        machine = platform.machine()
        manylinux = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
        options = [f"--platform={name}_{machine}" for name in manylinux]
        options += [f"--abi={abi}" for abi in ("cp311", "abi3", "none")]
        options += ["--platform=any", f"--python-version={PYTHON}"]
        with tempfile.TemporaryDirectory(dir=cache) as made:
            pip = [sys.executable, "-m", "pip", "download", "--quiet"]
            pip += ["--disable-pip-version-check", "--only-binary=:all:"]
            pip += ["--implementation=cp", "--constraint=constraints.txt", *options]
            _output([*pip, f"--dest={made}/wheels", *wanted], context)
            Path(made, "wheels").rename(folder)
    shutil.copytree(folder, context / "images/wheels")


def _contents(name: str) -> dict[str, Any]:
    path = SOURCE / "images" / name / "contents.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def local_base(podman: Podman) -> str:
    """A Debian made by mmdebstrap from the machine's own sources; the image's name."""
    listing = SOURCE / "images/stage/packages.txt"
    packages = [p for p in listing.read_text().split("\n") if p and p[0] != "#"]
    sources = _apt_sources()
    key = hashlib.sha256("\n".join([SUITE, *packages, sources]).encode()).hexdigest()
    name = f"localhost/proxyinit-base:{key[:16]}"
    if podman.has(name):
        return name
    if not shutil.which("mmdebstrap"):
        raise BuildFailed("mmdebstrap is needed: apt-get install mmdebstrap")
    only_licences = ["path-exclude=/usr/share/doc/*", "path-exclude=/usr/share/man/*"]
    only_licences += ["path-include=/usr/share/doc/*/copyright"]
    only_licences += ["path-exclude=/usr/share/locale/*"]
    with tempfile.TemporaryDirectory(dir=podman.folder) as made:
        archive = f"{made}/base.tar"
        argv = ["mmdebstrap", "--quiet", "--variant=apt", SUITE, archive]
        argv[3:3] = [f"--include={','.join(['ca-certificates', *packages])}"]
        argv[3:3] = [f"--dpkgopt={option}" for option in only_licences]
        _output(argv, SOURCE, sources)
        podman.run("import", "--quiet", archive, name)
    return name


def _apt_sources() -> str:
    """The Debian part of the machine's sources, in deb822 form; else nothing."""
    path = Path("/etc/apt/sources.list.d/debian.sources")
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _output(argv: Sequence[str], folder: Path, given: str = "") -> str:
    done = subprocess.run(
        argv, check=False, cwd=folder, input=given, capture_output=True, text=True
    )
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise BuildFailed(f"{argv[0]} failed:\n{said}")
    return done.stdout


@dataclass(frozen=True)
class Commit:
    """What the sources are: a commit's name and time."""

    name: str
    epoch: int


def commit() -> Commit:
    """The commit that is checked out; of no name and time where there is none."""
    trusted = f"safe.directory={SOURCE}"  # whoever owns it, as root builds
    argv = ["git", "-C", str(SOURCE), "-c", trusted, "log", "-1", "--format=%H %ct"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        return Commit("unknown", 0)
    name, epoch = done.stdout.split()
    return Commit(name, int(epoch))
