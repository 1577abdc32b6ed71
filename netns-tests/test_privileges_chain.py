"""As a pod runs it: uid 65534, no new privileges, and file capabilities as the chain.

Every link from the container's grant to the kernel is taken out in turn; the
error names the one that is missing.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from installed import PROGRAM

import proxyinit
from proxyinit.lab import Namespace

ARGUMENTS = ("-p", "4143", "-o", "4140", "-u", "2102")
SBIN = Path(shutil.which("iptables-legacy") or "/usr/sbin").parent
NOBODY = "65534"
BOTH = "cap_net_admin,cap_net_raw+eip"
ADMIN = "cap_net_admin+eip"
FRONTENDS = ("iptables-legacy", "ip6tables-legacy", "iptables-nft", "ip6tables-nft")


def command(*argv: str) -> None:
    subprocess.run(argv, check=True)


class Image:
    """A folder like a container image: programs whose capabilities a test sets.

    A file system of its own, because /tmp may ignore file capabilities (nosuid).
    """

    def __init__(self, root: Path) -> None:
        self.python = root / "python"
        self.legacy = root / "bin" / "xtables-legacy-multi"
        self.nft = root / "bin" / "xtables-nft-multi"
        self.native = root / "bin" / "nft"
        self.programs = (self.legacy, self.nft, self.native)
        self._root = root
        for folder in ("bin", "lib", "prefix", "run"):
            (root / folder).mkdir()
        shutil.copy(Path(sys.executable).resolve(), self.python)
        package = Path(proxyinit.__file__).parent
        shutil.copytree(package, root / "lib" / "proxyinit")
        shutil.copy(package / "launcher.py", root / "proxy-init")
        for binary in self.programs:
            shutil.copy((SBIN / binary.name).resolve(), binary)
        for name in FRONTENDS:
            multi = f"xtables-{name.partition('-')[2]}-multi"
            for suffix in ("", "-save", "-restore"):
                (root / "bin" / f"{name}{suffix}").symlink_to(multi)
        (root / "run").chmod(0o777)  # where a pod mounts an emptyDir

    @contextlib.contextmanager
    def standard_library(self) -> Iterator[None]:
        """Python's own files, where a user without rights can read them."""
        prefix = str(self._root / "prefix")
        command("mount", "--bind", sys.base_prefix, prefix)
        try:
            yield
        finally:
            command("umount", prefix)

    def capable(self, capabilities: str, *programs: Path) -> None:
        """Give program files capabilities."""
        for program in programs:
            command("setcap", capabilities, str(program))

    def run(
        self,
        namespace: Namespace,
        mode: str,
        granted: Sequence[str] = ("net_admin", "net_raw"),
        *,
        new_privileges: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run as the container of a pod is run that grants these capabilities.

        As a runtime does, the grant is in the bounding and the permitted set when
        the first program starts, and none of it is ambient.
        """
        bounding = ",".join(("-all", *(f"+{name}" for name in granted)))
        setpriv = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}"]
        setpriv += ["--clear-groups", "--securebits=+no_setuid_fixup"]
        setpriv += ["--inh-caps=-all", f"--bounding-set={bounding}"]
        if not new_privileges:
            setpriv.append("--no-new-privs")
        environment = (
            f"PYTHONHOME={self._root}/prefix",
            f"PYTHONPATH={self._root}/lib",
            f"PATH={self._root}/bin:{os.environ['PATH']}",
            f"XTABLES_LOCKFILE={self._root}/run/xtables.lock",
        )
        program = [str(self.python), f"{self._root}/proxy-init", *ARGUMENTS]
        argv = ["env", *environment, *setpriv, *program, "--iptables-mode", mode]
        return namespace.exec(argv)


@pytest.fixture
def image() -> Iterator[Image]:
    """An image none of whose programs has capabilities yet."""
    with tempfile.TemporaryDirectory() as folder:
        command("mount", "-t", "tmpfs", "-o", "mode=755", "none", folder)
        try:
            made = Image(Path(folder))
            with made.standard_library():
                yield made
        finally:
            command("umount", folder)


def in_use(namespace: Namespace) -> list[str]:
    """The frontends that show both jumps to our chains."""
    native = namespace.exec(["nft", "list", "table", "inet", "proxy_init"]).stdout
    return [
        name
        for name in FRONTENDS
        if namespace.exec([f"{name}-save", "-t", "nat"]).stdout.count("-j PROXY_") == 2
    ] + ["nftables"] * (native.count("jump PROXY_") == 2)


def frontends(mode: str) -> list[str]:
    """What `in_use` tells of an install in that mode."""
    if mode == "nftables":
        return ["nftables"]
    return [f"iptables-{mode}", f"ip6tables-{mode}"]


def lines(done: subprocess.CompletedProcess[str], level: str) -> list[str]:
    return [line for line in done.stderr.splitlines() if f"level={level}" in line]


def told(done: subprocess.CompletedProcess[str]) -> str:
    """The one error of a run that failed."""
    assert done.returncode == 1, done.stderr
    (error,) = lines(done, "error")
    return error


def test_whole_chain_installs_without_root(
    namespace: Namespace, image: Image, mode: str
) -> None:
    """Interpreter and iptables capable: installed in both families, no warning."""
    image.capable(BOTH, image.python, *image.programs)
    done = image.run(namespace, mode)
    assert done.returncode == 0, done.stderr
    assert lines(done, "warning") == []
    assert in_use(namespace) == frontends(mode)


@pytest.mark.parametrize("mode", ["nft", "nftables"])
def test_nf_tables_needs_no_raw_sockets(
    namespace: Namespace, image: Image, mode: str
) -> None:
    """NET_ADMIN alone, granted and on the files, is enough for modes on nf_tables."""
    image.capable(ADMIN, image.python, image.nft, image.native)
    done = image.run(namespace, mode, ["net_admin"])
    assert done.returncode == 0, done.stderr
    assert in_use(namespace) == frontends(mode)


def test_capable_iptables_is_enough_where_new_privileges_are_allowed(
    namespace: Namespace, image: Image, mode: str
) -> None:
    """Without no-new-privs, which upstream counts on, the interpreter needs none."""
    image.capable(BOTH, *image.programs)
    done = image.run(namespace, mode, new_privileges=True)
    assert done.returncode == 0, done.stderr
    assert in_use(namespace) == frontends(mode)


def test_nothing_granted(namespace: Namespace, image: Image, mode: str) -> None:
    """First link: the container's grant; the pod spec's field is named."""
    error = told(image.run(namespace, mode, []))
    assert "may never have NET_ADMIN" in error
    assert "CapBnd 0000000000000000" in error
    assert "securityContext.capabilities.add" in error
    assert in_use(namespace) == []


def test_nothing_granted_to_capable_iptables(
    namespace: Namespace, image: Image, mode: str
) -> None:
    """The kernel does not even start such a program; the grant is named even so."""
    image.capable(BOTH, *image.programs)
    error = told(image.run(namespace, mode, []))
    assert "may never have NET_ADMIN" in error
    assert "securityContext.capabilities.add" in error
    assert "reinstall" not in error


def test_interpreter_without_capabilities(
    namespace: Namespace, image: Image, mode: str
) -> None:
    """Second link: the interpreter's file; what it is told to run gets nothing."""
    image.capable(BOTH, *image.programs)
    error = told(image.run(namespace, mode))
    assert "the interpreter's file lacks the capabilities" in error
    assert "CapEff 0000000000000000" in error
    assert "NoNewPrivs 1" in error
    assert "setcap cap_net_admin,cap_net_raw+eip" in error
    assert in_use(namespace) == []


def test_iptables_without_capabilities(
    namespace: Namespace, image: Image, mode: str
) -> None:
    """Third link: iptables' own file; the command that is advised mends it."""
    image.capable(BOTH, image.python)
    error = told(image.run(namespace, mode))
    assert "carries no file capabilities" in error
    multi = {"legacy": image.legacy, "nft": image.nft}.get(mode, image.native)
    advised = re.search(rf"setcap (\S+) ({re.escape(str(multi))})\b", error)
    assert advised, error
    image.capable(advised[1], Path(advised[2]))
    assert image.run(namespace, mode).returncode == 0
    assert in_use(namespace) == frontends(mode)


RAW_MISSING = [
    pytest.param(
        ["net_admin"], ADMIN, BOTH, "may never have NET_RAW", id="not granted"
    ),
    pytest.param(
        ["net_admin", "net_raw"],
        ADMIN,
        BOTH,
        "NET_RAW: granted to the container, not held",
        id="not on the interpreter",
    ),
    pytest.param(
        ["net_admin", "net_raw"],
        BOTH,
        ADMIN,
        "does not carry NET_RAW",
        id="not on iptables-legacy",
    ),
]


@pytest.mark.parametrize(("granted", "on_python", "on_legacy", "cause"), RAW_MISSING)
def test_without_net_raw_legacy_gives_way_to_nft(
    namespace: Namespace,
    image: Image,
    *,
    granted: Sequence[str],
    on_python: str,
    on_legacy: str,
    cause: str,
) -> None:
    """Only iptables-legacy needs NET_RAW: one warning says which link lacks it."""
    image.capable(on_python, image.python)
    image.capable(on_legacy, image.legacy)
    image.capable(ADMIN, image.nft)
    done = image.run(namespace, "legacy", granted)
    assert done.returncode == 0, done.stderr
    (warning,) = lines(done, "warning")
    assert cause in warning
    assert in_use(namespace) == ["iptables-nft", "ip6tables-nft"]


def test_root_without_the_capabilities(namespace: Namespace, mode: str) -> None:
    """Root is not enough where the container drops all capabilities."""
    setpriv = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-all"]
    argv = [*setpriv, PROGRAM, *ARGUMENTS, "--iptables-mode", mode]
    error = told(namespace.exec(argv))
    assert "may never have NET_ADMIN" in error
    assert in_use(namespace) == []


def test_root_of_another_user_namespace(namespace: Namespace, mode: str) -> None:
    """All capabilities, but over other namespaces: the error says so."""
    unshare = ["unshare", "--user", "--map-root-user"]
    argv = [*unshare, PROGRAM, *ARGUMENTS, "--iptables-mode", mode]
    error = told(namespace.exec(argv))
    assert "another user namespace owns the network namespace" in error
    assert in_use(namespace) == []
