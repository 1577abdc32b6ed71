"""Where /proc is hidden: what can't be known is asked of the programs."""

from __future__ import annotations

import sys
from pathlib import Path

from proxyinit.lab import Namespace

PROGRAM = str(Path(sys.executable).with_name("proxy-init"))
INSTALL = ("-p", "4143", "-o", "4140", "-u", "2102")
WITHOUT_PROC = (
    *("unshare", "--mount", "sh", "-c"),
    'umount -l /proc && exec "$@"',
    *("sh", PROGRAM),
)


VERSIONS = ("iptables", "ip6tables")


def legacy_jumps(namespace: Namespace) -> int:
    """How many jumps to our chains the legacy tables hold."""
    dumps = (namespace.exec([f"{v}-legacy-save"]).stdout for v in VERSIONS)
    return sum(dump.count("-j PROXY_INIT_") for dump in dumps)


def test_cleanup_finds_legacy_rules(namespace: Namespace) -> None:
    """No file that lists legacy tables is not the same as no legacy table."""
    assert namespace.exec([PROGRAM, *INSTALL]).returncode == 0
    assert legacy_jumps(namespace) == 4

    done = namespace.exec([*WITHOUT_PROC, "cleanup"])

    assert done.returncode == 0, done.stderr
    assert legacy_jumps(namespace) == 0
