"""The images of this checkout, built when they are not yet, and their files."""

from __future__ import annotations

import contextlib
import fcntl
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from images import build, sources
from images.engine import Podman, cache_folder


@dataclass(frozen=True)
class Image:
    """A built image: its name in podman's storage, and where its files are."""

    name: str
    tag: str
    root: Path
    podman: Podman

    @property
    def config(self) -> dict[str, Any]:
        """What podman says about it."""
        said = json.loads(self.podman.run("image", "inspect", self.tag))
        found: dict[str, Any] = said[0]
        return found

    def program(self, path: str) -> Path:
        """A file of the image, by its absolute path."""
        return self.root / path.lstrip("/")


@dataclass(frozen=True)
class Built:
    """Both images, and the Debian they are made of, which has tools to test with."""

    init: Image
    identity: Image
    base: Image
    context: Path
    """What they were built from."""


@contextlib.contextmanager
def images() -> Iterator[Built]:
    """The images of what is checked out, on a base of Debian's packages.

    They are kept in the cache folder, by their content: a second run builds nothing.
    """
    cache = cache_folder()
    podman = Podman(cache / "engine")
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context((cache / "lock").open("w"))
        fcntl.flock(lock, fcntl.LOCK_SH)  # nobody removes what is used here
        made = tempfile.TemporaryDirectory(dir=cache, prefix="context-")
        context = Path(stack.enter_context(made))
        sources.lay_out(context)
        base = sources.local_base(podman)
        key = f"{sources.digest(context)[:16]}-{base.rpartition(':')[2]}"
        sources.wheels(context, cache)
        tags = [f"{_TESTED}/{name}:{key}" for name in sources.NAMES]
        for name, tag in zip(sources.NAMES, tags, strict=True):
            if not podman.has(tag):
                image = build.build(podman, context, name, base, sources.commit())
                podman.run("tag", image, tag)
        _forget_others(podman, lock, {*tags, base})
        found = [
            _mounted(stack, podman, name, tag)
            for name, tag in zip(sources.NAMES, tags, strict=True)
        ]
        debian = _mounted(stack, podman, "base", base)
        yield Built(found[0], found[1], debian, context)


_TESTED = "localhost/proxyinit-test"


def _mounted(stack: contextlib.ExitStack, podman: Podman, name: str, tag: str) -> Image:
    return Image(name, tag, stack.enter_context(podman.mounted(tag)), podman)


def _forget_others(podman: Podman, lock: IO[str], kept: set[str]) -> None:
    """Remove the images of former checkouts, unless a test elsewhere may use them."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    said = podman.run("images", "--format={{.Repository}}:{{.Tag}}")
    for tag in said.split():
        if tag.startswith(f"{_TESTED}/") and tag not in kept:
            podman.run("rmi", "--force", tag)
    podman.run("image", "prune", "--force")
    fcntl.flock(lock, fcntl.LOCK_SH)
