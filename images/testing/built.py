"""The images of this checkout, built when they are not yet, and their files."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from images import build


@dataclass(frozen=True)
class Image:
    """A built image: its name in podman's storage, and where its files are."""

    name: str
    tag: str
    root: Path
    podman: build.Podman

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
    cache = build.cache_folder()
    podman = build.Podman(cache / "engine")
    with contextlib.ExitStack() as stack:
        made = tempfile.TemporaryDirectory(dir=cache)
        context = Path(stack.enter_context(made))
        build.lay_out(context)
        base = build.local_base(podman)
        key = f"{build.digest(context)[:16]}-{base.rpartition(':')[2]}"
        build.wheels(context, cache)
        found = []
        for name in build.NAMES:
            tag = f"localhost/proxyinit-test/{name}:{key}"
            if not podman.has(tag):
                image = build.build(podman, context, name, base, build.commit())
                podman.run("tag", image, tag)
                _forget_others(podman, f"localhost/proxyinit-test/{name}", tag)
            found.append(_mounted(stack, podman, name, tag))
        debian = _mounted(stack, podman, "base", base)
        yield Built(found[0], found[1], debian, context)


def _mounted(
    stack: contextlib.ExitStack, podman: build.Podman, name: str, tag: str
) -> Image:
    return Image(name, tag, stack.enter_context(podman.mounted(tag)), podman)


def _forget_others(podman: build.Podman, name: str, kept: str) -> None:
    """Remove the images of former checkouts, so that the cache does not grow."""
    said = podman.run("images", "--format={{.Repository}}:{{.Tag}}", name)
    for tag in said.split():
        if tag != kept:
            podman.run("rmi", "--force", tag)
    podman.run("image", "prune", "--force")
