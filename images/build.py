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
import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import proxyinit
from images.engine import BuildFailed, Podman, cache_folder
from images.sources import NAMES, SOURCE, Commit, commit, lay_out, local_base, wheels

LIMITS = {"proxy-init": (64.0, 25.0), "identity": (110.0, None)}
"""Largest allowed sizes in MiB: unpacked, compressed."""


def build(
    podman: Podman, context: Path, name: str, base: str, made: Commit, *options: str
) -> str:
    """Build one image from a context; its id."""
    created = dt.datetime.fromtimestamp(made.epoch, tz=dt.UTC)
    arguments = {
        "SOURCE_DATE_EPOCH": str(made.epoch),
        "VERSION": proxyinit.__version__,
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
        if base == "local":
            _say("a base of Debian's packages")
            base = local_base(podman)
        for name in names:
            image = build(podman, context, name, base, commit())
            podman.run(
                "tag", image, f"localhost/proxyinit/{name}:{proxyinit.__version__}"
            )
            sizes = deliver(podman, image, name, output)
            print(  # noqa: T201  (the result)
                f"{name}: {sizes.unpacked:.1f} MiB unpacked, "
                f"{sizes.compressed:.1f} MiB compressed, {output / name}.oci.tar"
            )
            yield from too_large(name, sizes)


if __name__ == "__main__":
    sys.exit(main())
