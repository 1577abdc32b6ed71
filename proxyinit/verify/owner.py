"""Whose a network namespace is: the user namespace that it was made in.

A pod with ``hostUsers: false`` has users of its own. Rules name those (xt_owner and
nft's skuid look through the owner of the network namespace), while sockets seen from
the node belong to the node's.
"""

from __future__ import annotations

from pathlib import Path

from proxyinit import netns
from proxyinit.host import read_text
from proxyinit.verify.ids import SAME, Ids, parse_ids


def ids() -> tuple[Ids, Ids]:
    """Users and groups of the namespace that this thread is in.

    The reader's own where nothing tells: the owner is no user namespace below, or no
    process lives in it.
    """
    inode = netns.other_owner()
    if inode is None:
        return SAME, SAME
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _inode(entry / "ns/user") == inode:
            users, groups = (read_text(f"{entry}/{n}_map") for n in ("uid", "gid"))
            if users and groups:
                return parse_ids(users), parse_ids(groups)
    return SAME, SAME


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None
