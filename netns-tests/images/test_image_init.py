"""linkerd-init's image, started by runc as a node starts it: who answers afterwards?

uid 65534, no new privileges, none ambient and none inheritable, a read-only root, an
empty folder at /run, the runtime's seccomp filter, and the pod's network namespace.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.testing.built import Built
from images.testing.oci import DEFAULT_CAPABILITIES, Mount, Security, Spec
from images.testing.pod import ARGUMENTS, linkerd_init, stand_in
from images.testing.runtime import Finished, Runtime
from proxyinit.lab import POD, PROXY_UID, WORLD, Answer, Lab

PROGRAM = str(Path(sys.executable).with_name("proxy-init"))
LOCK = "xtables.lock"
ADMIN_ALONE = Security(capabilities=("NET_ADMIN",))
NOTHING = Security(capabilities=())
DUMPS = {
    "legacy": ("iptables-legacy-save", "ip6tables-legacy-save"),
    "nft": ("iptables-nft-save", "ip6tables-nft-save"),
    "nftables": ("nft list table inet proxy_init",),
}


class Pod:
    """A pod whose containers share a network namespace and a folder at /run."""

    def __init__(self, built: Built, runtime: Runtime, lab: Lab) -> None:
        self.built = built
        self.runtime = runtime
        self.lab = lab
        self.run = runtime.volume()

    def init(
        self,
        *words: str,
        security: Security = Security(),  # noqa: B008  (a value)
        mounts: list[Mount] | None = None,
    ) -> Finished:
        """Run the init container to its end."""
        volumes = [Mount(self.run, "/run")] if mounts is None else mounts
        path = self.lab.pod.path
        spec = linkerd_init(self.built, path, volumes, *words, security=security)
        return self.runtime.run(spec)

    def stand_ins(self) -> None:
        """Start those who can answer."""
        self.lab.proxy()
        self.lab.app(8080, 4567)
        self.lab.world(80, 4567)

    def rules(self, mode: str) -> list[str]:
        """What the node's own programs show of one backend, without counters."""
        lines: list[str] = []
        for dump in DUMPS[mode]:
            said = self.lab.pod.exec(dump.split()).stdout
            lines += [line for line in said.splitlines() if line[:1] not in "#:"]
        return lines

    def in_use(self) -> list[str]:
        """The backends that hold rules of ours."""
        return [mode for mode in DUMPS if "PROXY_INIT_" in "".join(self.rules(mode))]


@pytest.fixture
def pod(built: Built, runtime: Runtime, lab: Lab) -> Pod:
    """A pod in which nothing has run yet."""
    return Pod(built, runtime, lab)


def lines(done: Finished, level: str) -> list[str]:
    return [line for line in done.stderr.splitlines() if f"level={level}" in line]


def told(done: Finished) -> str:
    """The one error of a run that failed."""
    assert done.status == 1, done.stderr
    (error,) = lines(done, "error")
    return error


def is_redirected(lab: Lab) -> None:
    """Both versions of IP, both directions; what is ignored is not redirected."""
    for version in (4, 6):
        there = Answer("proxy", 4143, (POD[version], 8080))
        assert lab.inbound(8080, version=version) == there
        assert lab.inbound(4567, version=version).who == "app"
        back = Answer("proxy", 4140, (WORLD[version], 80))
        assert lab.outbound(WORLD[version], 80) == back
        assert lab.outbound(WORLD[version], 80, uid=PROXY_UID).who == "world"
        assert lab.outbound(WORLD[version], 4567).who == "world"


def is_untouched(lab: Lab) -> None:
    """Nobody stands between the application and the others."""
    for version in (4, 6):
        assert lab.inbound(8080, version=version).who == "app"
        assert lab.outbound(WORLD[version], 80).who == "world"


def test_install_again_and_cleanup(pod: Pod, mode: str) -> None:
    """Installed without a warning; run again, nothing is written; cleanup ends it."""
    pod.stand_ins()
    first = pod.init("--iptables-mode", mode)
    assert (first.status, lines(first, "warning")) == (0, []), first.stderr
    assert pod.in_use() == [mode]
    is_redirected(pod.lab)
    before = pod.rules(mode)

    again = pod.init("--iptables-mode", mode)
    assert again.status == 0, again.stderr
    assert "restore" not in again.stderr
    assert "nft -f" not in again.stderr
    assert pod.rules(mode) == before
    is_redirected(pod.lab)

    program = Spec(
        str(pod.built.init.root),
        ["/usr/local/bin/proxy-init", "cleanup"],
        pod.lab.pod.path,
        mounts=[Mount(pod.run, "/run")],
    )
    done = pod.runtime.run(program)
    assert done.status == 0, done.stderr
    assert pod.in_use() == []
    is_untouched(pod.lab)


def test_legacy_lock_is_in_the_pods_folder(pod: Pod) -> None:
    """iptables makes the lock as the container's user; who holds it is waited for."""
    pod.stand_ins()
    path = Path(pod.run, LOCK)
    path.touch(mode=0o666)
    path.chmod(0o666)
    with held(path):
        error = told(pod.init("--lock-wait-secs", "1"))
    assert "/run/xtables.lock" in error
    assert "--lock-wait-secs" in error
    is_untouched(pod.lab)
    path.unlink()
    assert pod.init().status == 0
    assert path.stat().st_uid == 65534
    is_redirected(pod.lab)


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock as another container would."""
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@pytest.mark.parametrize("mode", ["nft", "nftables"])
def test_nf_tables_needs_no_raw_sockets(pod: Pod, mode: str) -> None:
    """NET_RAW dropped: the image's nft programs start and do their work even so."""
    pod.stand_ins()
    done = pod.init("--iptables-mode", mode, security=ADMIN_ALONE)
    assert (done.status, lines(done, "warning")) == (0, []), done.stderr
    assert pod.in_use() == [mode]
    is_redirected(pod.lab)


def test_legacy_without_raw_sockets_gives_way(pod: Pod) -> None:
    """NET_RAW dropped: one warning names it, and nft does what legacy can't."""
    pod.stand_ins()
    done = pod.init(security=ADMIN_ALONE)
    assert done.status == 0, done.stderr
    (warning,) = lines(done, "warning")
    assert "may never have NET_RAW" in warning
    assert pod.in_use() == ["nft"]
    is_redirected(pod.lab)


@pytest.mark.parametrize("user", [65534, 0], ids=["nobody", "root"])
def test_without_capabilities_the_grant_is_named(
    pod: Pod, mode: str, user: int
) -> None:
    """All dropped: it starts and names the field of the pod's spec; no rule is set."""
    pod.stand_ins()
    security = Security(user, user, ())
    error = told(pod.init("--iptables-mode", mode, security=security))
    assert "may never have NET_ADMIN" in error
    assert "securityContext.capabilities.add" in error
    assert "Traceback" not in error
    is_untouched(pod.lab)


USERS = [
    pytest.param(Security(user=0, group=0), id="root"),
    pytest.param(Security(user=1000680000, group=0), id="OpenShift's range"),
    pytest.param(Security(user=65534, escalation=True), id="escalation allowed"),
    pytest.param(Security(read_only=False), id="writable root"),
    pytest.param(
        Security(capabilities=(*DEFAULT_CAPABILITIES, "NET_ADMIN")),
        id="nothing dropped, as charts leave it",
    ),
]


@pytest.mark.parametrize("security", USERS)
def test_any_user_may_be_given(pod: Pod, mode: str, security: Security) -> None:
    """The capabilities are those of the files: which user it is makes no difference."""
    pod.stand_ins()
    done = pod.init("--iptables-mode", mode, security=security)
    assert (done.status, lines(done, "warning")) == (0, []), done.stderr
    assert pod.in_use() == [mode]
    is_redirected(pod.lab)


def test_nothing_mounted_at_run(pod: Pod, mode: str) -> None:
    """On a read-only root without a volume the lock file of the image serves."""
    pod.stand_ins()
    done = pod.init("--iptables-mode", mode, mounts=[])
    assert (done.status, lines(done, "warning")) == (0, []), done.stderr
    is_redirected(pod.lab)


@pytest.mark.parametrize("mode", ["nft", "nftables"])
def test_nf_tables_takes_no_lock(pod: Pod, mode: str) -> None:
    """A read-only /run without a lock file is nothing to the nft programs."""
    pod.stand_ins()
    read_only = [Mount(pod.run, "/run", read_only=True)]
    done = pod.init("--iptables-mode", mode, mounts=read_only)
    assert (done.status, lines(done, "warning")) == (0, []), done.stderr
    is_redirected(pod.lab)


def test_legacy_names_a_read_only_run(pod: Pod) -> None:
    """The lock can't be made: the error has its path and two ways out; no rule."""
    pod.stand_ins()
    error = told(pod.init(mounts=[Mount(pod.run, "/run", read_only=True)]))
    assert "/run/xtables.lock" in error
    assert "emptyDir at /run" in error
    assert "--iptables-mode nft" in error
    is_untouched(pod.lab)


def test_application_joins_and_operator_looks(pod: Pod, mode: str) -> None:
    """An app's container comes after init: redirected, and seen so from the node."""
    assert pod.init("--iptables-mode", mode).status == 0
    pod.lab.proxy()
    app = stand_in(pod.built, pod.lab.pod.path, 1000, "app", "8080", "4567")
    container = pod.runtime.start(app)
    container.until("listening")
    try:
        for version in (4, 6):
            assert pod.lab.inbound(8080, version=version).who == "proxy"
            assert pod.lab.inbound(4567, version=version).who == "app"
        pid = str(container.pid)
        for dump in DUMPS[mode]:
            done = node("nsenter", "-t", pid, "-n", *dump.split())
            assert "PROXY_INIT_REDIRECT" in done.stdout, done.stderr
        # Nothing is missing there, says a dry run from the node.
        words = ["-p", "4143", "-o", "4140", "-u", "2102", "--iptables-mode", mode]
        words += ["--inbound-ports-to-ignore", "4190,4191,4567,4568"]
        words += ["--outbound-ports-to-ignore", "4567,4568"]
        done = node(PROGRAM, *words, "--pid", pid, "--simulate")
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        seen = node(PROGRAM, "verify", "--pid", pid)
        assert seen.returncode == 0, seen.stdout + seen.stderr
    finally:
        container.stop()


def node(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the node."""
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_podman_runs_it_too(pod: Pod, mode: str) -> None:
    """As a user of podman starts it, from an image of the same name: redirected."""
    pod.stand_ins()
    image = pod.built.init
    words = ["--rm", "--read-only", "--tmpfs=/run:mode=0777", "--cap-drop=ALL"]
    words += ["--cap-add=NET_ADMIN", "--cap-add=NET_RAW", "--log-driver=none"]
    words += ["--security-opt=no-new-privileges", "--ulimit=nproc=4096"]
    words += ["--ulimit=nofile=1024"]
    words += [f"--network=ns:{pod.lab.pod.path}"]
    image.podman.run("run", *words, image.tag, *ARGUMENTS, "--iptables-mode", mode)
    assert pod.in_use() == [mode]
    is_redirected(pod.lab)
