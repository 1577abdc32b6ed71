"""The machine around the demo: what it must have, and that it stays as it was."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from proxyinit.backend import ALL_VERSIONS, locate, program_name
from proxyinit.errors import CommandFailed, ProgramMissing, ProxyInitError
from proxyinit.host import Host
from proxyinit.runner import SystemRunner

_NAMESPACES = Path("/var/run/netns")
_LEGACY_TABLES = ("/proc/net/ip_tables_names", "/proc/net/ip6_tables_names")


class Unsuitable(ProxyInitError):
    """The demo can't run on this machine, or not as this user."""


def require(mode: str, program: str, identity_program: str) -> None:
    """Raises `Unsuitable` with one sentence unless the demo can start."""
    if os.geteuid() != 0:
        raise Unsuitable(
            "root is needed, for network namespaces and firewall rules: try 'sudo' "
            "in front of the same command"
        )
    for name, path, option in (
        ("proxy-init", program, "--program"),
        ("proxy-identity", identity_program, "--identity-program"),
    ):
        if not os.access(path, os.X_OK):
            raise Unsuitable(
                f"there is no {name} at {path}: install this package into the "
                f"Python that runs the demo, or name the program with {option}"
            )
    if not shutil.which("setpriv"):
        raise Unsuitable(
            "not found: setpriv, to run programs as the proxy's user: install "
            "util-linux"
        )
    if not Host().has_ipv6():
        raise Unsuitable("this kernel has no IPv6, and the demo shows both families")
    try:
        locate(SystemRunner(), mode, ALL_VERSIONS)
    except ProgramMissing as error:
        raise Unsuitable(
            f"{error}: install iptables, on Debian with 'apt-get install iptables'"
        ) from error


def firewall() -> dict[str, str]:
    """The rules of the caller's own network namespace, by where they were read.

    Read without side effects: naming a table to iptables-legacy-save would make
    it. Packet counters, which move by themselves, are left out.
    """
    rules = {path: _text(path) for path in _LEGACY_TABLES}
    runner = SystemRunner()
    commands = [[program_name("legacy", version, "-save")] for version in ALL_VERSIONS]
    for name, *arguments in [*commands, ["nft", "--stateless", "list", "ruleset"]]:
        path = runner.find(name)
        if path:
            rules[name] = _listing(runner, [path, *arguments])
    return rules


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def _listing(runner: SystemRunner, argv: list[str]) -> str:
    try:
        lines = runner.run(argv).stdout.splitlines()
    except CommandFailed as error:
        return error.stderr
    # iptables-save adds the time in comments, and counters to chains.
    kept = (line.partition(" [")[0] if line[:1] == ":" else line for line in lines)
    return "\n".join(line for line in kept if not line.startswith("#"))


def residue() -> list[str]:
    """What this process has left on the machine, in words: should be nothing."""
    ours = f"proxyinit-{os.getpid()}-*"
    names = sorted(path.name for path in _NAMESPACES.glob(ours))
    found = [f"network namespace {name}" for name in names]
    folders = sorted(Path(tempfile.gettempdir()).glob(ours))
    found += [f"folder {folder}" for folder in folders]
    return [*found, "a process that was started"] if _has_child() else found


def _has_child() -> bool:
    """Whether a child process is alive; those that have ended are put to rest."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True
