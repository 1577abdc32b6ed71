"""Who may touch the firewall: capabilities as this process has them. Pure."""

from __future__ import annotations

from proxyinit.record import Record

CAP_NET_ADMIN, CAP_NET_RAW = 12, 13
"""Bits of the capability masks (linux/capability.h)."""


class Privileges(Record):
    """What this process may do: uid and capability sets as bit masks."""

    uid: int
    bounding: int
    effective: int
    no_new_privs: bool


class LockHolder(Record):
    """A process that holds a lock on the xtables lock file."""

    pid: int
    name: str
