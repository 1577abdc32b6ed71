"""A native rule in iptables-nft's own table, which iptables-nft then can't show."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import CompletedProcess

from proxyinit.lab import Namespace

PROGRAM = str(Path(sys.executable).with_name("proxy-init"))
INSTALL = ("-p", "4143", "-o", "4140", "-u", "2102", "--iptables-mode", "nft")
STRANGER = "insert rule ip nat OUTPUT meta cpu 0 accept"
NEXT_STEP = "remove them (nft list table ip nat; nft list table ip6 nat)"


def run(namespace: Namespace, *arguments: str) -> CompletedProcess[str]:
    return namespace.exec([PROGRAM, *arguments])


def test_it_is_named_and_nothing_guessed(namespace: Namespace) -> None:
    """An install says what is in the way; verify judges IPv6, and of IPv4 nothing."""
    assert run(namespace, *INSTALL).returncode == 0
    assert namespace.exec(["nft", STRANGER]).returncode == 0

    again = run(namespace, *INSTALL)
    seen = run(namespace, "verify", "--format", "json")
    (report,) = json.loads(seen.stdout)["namespaces"]
    states = {check["name"]: check["state"] for check in report["checks"]}

    assert again.returncode == 1
    assert NEXT_STEP in again.stderr
    assert (seen.returncode, report["verdict"], report["flags"]) == (1, "unknown", [])
    assert "fail" not in states.values()
    assert (states["readable"], states["rules"]) == ("unknown", "ok")
