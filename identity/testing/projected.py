"""Volumes as the kubelet fills them: files change all at once, by one rename."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Mapping
from pathlib import Path

_numbers = itertools.count(1)
_LINK = "..data"


def project(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make the folder hold exactly these files, as a mounted Secret would.

    The files are in a folder of their own, `..data` is a symlink to it, and each
    name in `folder` is a symlink through `..data`. A change renames a new `..data`
    over the old one, so a reader sees all of the old files or all of the new.
    """
    folder.mkdir(parents=True, exist_ok=True)
    current = folder / _LINK
    old = current.resolve() if current.is_symlink() else None
    new = folder / f"..2026_{next(_numbers):06}"
    new.mkdir()
    for name, content in files.items():
        (new / name).write_bytes(content)
    swap = folder / "..data_tmp"
    swap.symlink_to(new.name)
    swap.rename(current)
    for name in files:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path(_LINK) / name)
    for stale in folder.iterdir():
        if (
            stale.is_symlink()
            and not stale.name.startswith("..")
            and (stale.name not in files)
        ):
            stale.unlink()
    if old is not None:
        shutil.rmtree(old)
