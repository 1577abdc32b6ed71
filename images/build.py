"""``make images``: build the images, tell their sizes, lay them down with their parts.

Beside each other, for an image NAME: ``NAME.oci.tar`` (an OCI archive, for ``podman
load``, ``skopeo copy``, ``ctr images import``) and ``NAME.cdx.json`` (what it is made
of). The storage of containers on this machine is not used: all work is done below the
cache folder, which may be removed at any time.
"""
# ruff: noqa: INP001  (a folder of images, no package of ours)

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1]
NAMES = ("proxy-init", "identity")
SUITE = "bookworm"
"""The Debian release whose Python `contents.toml` names."""
PYTHON = "3.11"

LIMITS = {"proxy-init": (64.0, 25.0), "identity": (110.0, None)}
"""Largest allowed sizes in MiB: unpacked, compressed."""

FILES = ("LICENSE", "constraints.txt", "pyproject.toml")
PACKAGES = ("identity", "images", "proxyinit")
"""What images are built from: files and folders of the repository."""

ENGINE = """\
[containers]
default_ulimits = ["nofile={files}:{files}"]

[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "runc"
"""
STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
"""


class BuildFailed(Exception):
    """An image can't be built; what to do is in the message."""


# === the engine, in a storage of its own ===


class Podman:
    """podman with its own configuration, storage and nothing of the machine's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        config, storage = folder / "containers.conf", folder / "storage.conf"
        # Without CAP_SYS_RESOURCE no engine may ask for more than there is.
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        config.write_text(ENGINE.format(files=files), encoding="ascii")
        storage.write_text(STORAGE.format(folder=folder), encoding="utf-8")
        self.environment = {
            **os.environ,
            "CONTAINERS_CONF": str(config),
            "CONTAINERS_STORAGE_CONF": str(storage),
        }
        if not shutil.which("podman"):
            raise BuildFailed("podman is needed: apt-get install podman runc")

    def run(self, *arguments: str) -> str:
        """Run podman; what it prints. Raises `BuildFailed` with what it says."""
        done = subprocess.run(
            ["podman", "--log-level=error", *arguments],  # noqa: S607  (wherever it is)
            capture_output=True,
            text=True,
            check=False,
            env=self.environment,
        )
        if done.returncode:
            said = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
            raise BuildFailed(f"podman {arguments[0]} failed:\n{said}")
        return done.stdout

    def has(self, image: str) -> bool:
        """Whether an image is there."""
        return bool(self.run("images", "--quiet", image).strip())

    @contextmanager
    def mounted(self, image: str) -> Iterator[Path]:
        """The image's files, where they can be read."""
        place = self.run("image", "mount", image).strip()
        try:
            yield Path(place)
        finally:
            self.run("image", "unmount", image)


# === what goes in ===


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
    _say(f"base: making Debian {SUITE} from packages")
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


# === building ===


@dataclass(frozen=True)
class Commit:
    """What the sources are: a commit's name and time."""

    name: str
    epoch: int


def commit() -> Commit:
    """The commit that is checked out; of no name and time where there is none."""
    argv = ["git", "-C", str(SOURCE), "log", "-1", "--format=%H %ct"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        return Commit("unknown", 0)
    name, epoch = done.stdout.split()
    return Commit(name, int(epoch))


def build(
    podman: Podman, context: Path, name: str, base: str, made: Commit, *options: str
) -> str:
    """Build one image from a context; its id."""
    created = dt.datetime.fromtimestamp(made.epoch, tz=dt.UTC)
    arguments = {
        "SOURCE_DATE_EPOCH": str(made.epoch),
        "VERSION": _version(),
        "REVISION": made.name,
        "CREATED": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    if base:
        arguments["BASE"] = base
    words = [f"--build-arg={key}={value}" for key, value in arguments.items()]
    words += [f"--file={context}/images/{name}/Containerfile"]
    # chroot: needs no cgroups and no runtime. The network is the host's, as the
    # package mirror may be known to nobody else.
    words += ["--isolation=chroot", f"--timestamp={made.epoch}", "--layers=false"]
    return podman.run("build", "--quiet", *words, *options, str(context)).strip()


def _version() -> str:
    text = (SOURCE / "proxyinit/__init__.py").read_text(encoding="utf-8")
    return text.split('__version__ = "')[1].split('"')[0]


@dataclass(frozen=True)
class Sizes:
    """Of one image, in MiB: the files, and the layers as they are transferred."""

    unpacked: float
    compressed: float


def measure(archive: Path) -> Sizes:
    """The sizes of the one image in an OCI archive."""
    with tarfile.open(archive) as tar:

        def read(name: str) -> dict[str, object]:
            file = tar.extractfile(name)
            assert file is not None  # noqa: S101  (as the format has it)
            content: dict[str, object] = json.load(file)
            return content

        index = read("index.json")
        manifest = read(_blob(index["manifests"][0]))  # type: ignore[index]
        layers = manifest["layers"]
        compressed = sum(layer["size"] for layer in layers)  # type: ignore[attr-defined]
        unpacked = 0
        for layer in layers:  # type: ignore[attr-defined]
            with tarfile.open(fileobj=tar.extractfile(_blob(layer))) as files:
                unpacked += sum(member.size for member in files if member.isfile())
    return Sizes(unpacked / 2**20, compressed / 2**20)


def _blob(entry: dict[str, str]) -> str:
    return "blobs/" + entry["digest"].replace(":", "/")


def too_large(name: str, sizes: Sizes) -> Iterator[str]:
    """Every limit that an image exceeds, as a sentence."""
    unpacked, compressed = LIMITS[name]
    if sizes.unpacked > unpacked:
        yield f"{name}: {sizes.unpacked:.1f} MiB unpacked, at most {unpacked:g}"
    if compressed is not None and sizes.compressed > compressed:
        yield f"{name}: {sizes.compressed:.1f} MiB packed, at most {compressed:g}"


def deliver(podman: Podman, image: str, name: str, output: Path) -> Sizes:
    """Lay down an image's archive and its list of parts."""
    output.mkdir(parents=True, exist_ok=True)
    archive = output / f"{name}.oci.tar"
    archive.unlink(missing_ok=True)
    podman.run("save", "--quiet", "--format=oci-archive", f"--output={archive}", image)
    with podman.mounted(image) as root:
        shutil.copy(root / f"usr/share/sbom/{name}.cdx.json", output)
    return measure(archive)


# === the command ===


def cache_folder() -> Path:
    """A folder of this user that survives a restart; made if need be."""
    path = Path(os.environ.get("PROXYINIT_IMAGE_CACHE", ""))
    if not path.name:
        path = Path(f"/var/tmp/proxyinit-images-{os.geteuid()}")  # noqa: S108  (checked)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.lstat()
    if path.is_symlink() or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise BuildFailed(f"expected a folder of this user alone: {path}; remove it")
    return path


def _say(text: str) -> None:
    print(f"images: {text}", file=sys.stderr)  # noqa: T201  (what a person waits for)


def main(argv: Sequence[str] | None = None) -> int:
    """Build what the command line asks for; 1 when something is too large."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    base_help = "image to take Debian's packages from; 'local': make one from packages"
    parser.add_argument("--base", default="", metavar="IMAGE|local", help=base_help)
    parser.add_argument("--output", type=Path, default=SOURCE / "build/images")
    parser.add_argument("names", nargs="*", metavar="IMAGE", help=", ".join(NAMES))
    options = parser.parse_args(argv)
    if wrong := [name for name in options.names if name not in NAMES]:
        parser.error(f"expected {' or '.join(NAMES)}, not {wrong[0]!r}")
    try:
        problems = list(
            _build_all(options.names or NAMES, options.base, options.output)
        )
    except BuildFailed as error:
        problems = [str(error)]
    for problem in problems:
        _say(problem)
    return 1 if problems else 0


def _build_all(names: Iterable[str], base: str, output: Path) -> Iterator[str]:
    cache = cache_folder()
    podman = Podman(cache / "engine")
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        context = Path(folder)
        lay_out(context)
        wheels(context, cache)
        chosen = local_base(podman) if base == "local" else base
        for name in names:
            image = build(podman, context, name, chosen, commit())
            podman.run("tag", image, f"localhost/proxyinit/{name}:{_version()}")
            sizes = deliver(podman, image, name, output)
            print(  # noqa: T201  (the result)
                f"{name}: {sizes.unpacked:.1f} MiB unpacked, "
                f"{sizes.compressed:.1f} MiB compressed, {output / name}.oci.tar"
            )
            yield from too_large(name, sizes)


if __name__ == "__main__":
    sys.exit(main())
