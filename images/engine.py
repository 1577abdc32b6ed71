"""podman with a configuration and a storage of its own, nothing of the machine's."""
# ruff: noqa: INP001  (a folder of images, no package of ours)

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
