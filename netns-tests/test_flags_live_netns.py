"""--netns and --pid: all that happens, happens in the namespace that they name."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from installed import PROGRAM

from proxyinit.lab import Answer, Lab, Namespace

LINKERD = ("-p", "4143", "-o", "4140", "-u", "2102")
CLOSE_WAIT = "net/netfilter/nf_conntrack_tcp_timeout_close_wait"
VERSIONS = ("ip", "ip6")


@pytest.fixture
def target() -> Iterator[Namespace]:
    """The namespace that is named; `namespace` is the caller's own."""
    made = Namespace("target")
    yield made
    made.close()


@pytest.fixture
def resident(target: Namespace) -> Iterator[int]:
    """The pid of a process that lives in the target."""
    # A process lives where the thread that starts it does.
    process = target.run(lambda: subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE))
    yield process.pid
    process.communicate()


def close_wait(namespace: Namespace) -> int:
    return int(namespace.exec(["cat", f"/proc/sys/{CLOSE_WAIT}"]).stdout)


def tables(namespace: Namespace) -> list[str]:
    """The tables that exist, legacy and nft; asking creates none."""
    names = [f"/proc/net/{version}_tables_names" for version in VERSIONS]
    legacy = namespace.exec(["cat", *names]).stdout.split()
    return legacy + namespace.exec(["nft", "list", "tables"]).stdout.splitlines()


def jumps(namespace: Namespace, mode: str) -> int:
    """How many jumps to our chains there are, both families together."""
    if mode == "nftables":
        native = namespace.exec(["nft", "list", "table", "inet", "proxy_init"]).stdout
        return 2 * len(re.findall("jump PROXY_INIT_", native))  # each for both
    dumps = (namespace.exec([f"{v}tables-{mode}-save"]).stdout for v in VERSIONS)
    return sum(len(re.findall("-j PROXY_INIT_", dump)) for dump in dumps)


def run(caller: Namespace, *arguments: str) -> CompletedProcess[str]:
    return caller.exec([PROGRAM, *arguments])


Place = Callable[[Namespace, int], tuple[str, ...]]

PLACES = [
    pytest.param(
        lambda target, _: ("--netns", target.path), id="a name in /var/run/netns"
    ),
    pytest.param(
        lambda _, pid: (f"--netns=/proc/{pid}/ns/net",), id="the file of a process"
    ),
    pytest.param(lambda _, pid: ("--pid", str(pid)), id="a process id"),
]


@pytest.mark.parametrize("place", PLACES)
def test_rules_and_sysctl_are_set_there_and_not_here(
    namespace: Namespace, target: Namespace, resident: int, mode: str, place: Place
) -> None:
    """The target is redirected, the caller has neither tables nor another timeout."""
    where = place(target, resident)
    default = close_wait(namespace)
    timeout = ("--timeout-close-wait-secs", "3600")
    done = run(namespace, *LINKERD, *where, *timeout, "--iptables-mode", mode)
    assert done.returncode == 0, done.stderr
    assert (jumps(target, mode), close_wait(target)) == (4, 3600)
    assert (tables(namespace), close_wait(namespace)) == ([], default)
    assert default != 3600


@pytest.mark.parametrize("place", PLACES)
def test_cleanup_there(
    namespace: Namespace, target: Namespace, resident: int, mode: str, place: Place
) -> None:
    """The target is cleaned; the caller's own redirect stays."""
    where = place(target, resident)
    for arguments in (LINKERD, (*LINKERD, *where)):
        assert run(namespace, *arguments, "--iptables-mode", mode).returncode == 0
    assert run(namespace, "cleanup", *where).returncode == 0
    assert (jumps(target, mode), jumps(namespace, mode)) == (0, 4)


def test_backend_is_chosen_by_what_is_there(
    namespace: Namespace, target: Namespace
) -> None:
    """What the caller's own namespace holds has no influence."""
    assert run(namespace, *LINKERD, "--iptables-mode", "nft").returncode == 0
    foreign = "iptables-legacy -t nat -A PREROUTING -p udp -j ACCEPT"
    assert target.exec(foreign.split()).returncode == 0
    where = ("--netns", target.path)
    done = run(namespace, *LINKERD, "--iptables-mode", "auto", *where)
    assert done.returncode == 0, done.stderr
    assert (jumps(target, "legacy"), jumps(target, "nft")) == (4, 0)
    assert (jumps(namespace, "legacy"), jumps(namespace, "nft")) == (0, 4)


def test_simulation_is_about_the_target(
    namespace: Namespace, target: Namespace
) -> None:
    """Where all is in place there is nothing to print, wherever it is run from."""
    where = ("--netns", target.path)
    assert run(namespace, *LINKERD, *where).returncode == 0
    assert run(namespace, *LINKERD, *where, "--simulate").stdout == ""
    assert "-A PREROUTING" in run(namespace, *LINKERD, "--simulate").stdout
    assert tables(namespace) == []


def test_traffic_of_the_pod_is_redirected_from_outside(
    lab: Lab, mode: str, version: int
) -> None:
    """An operator on the node gives the pod's namespace; clients get the proxy."""
    lab.proxy()
    lab.app(8080)
    where = ("--netns", lab.pod.path, "--iptables-mode", mode)
    done = run(lab.client, *LINKERD, *where)
    assert done.returncode == 0, done.stderr
    assert lab.inbound(8080, version=version).who == "proxy"
    assert run(lab.client, "cleanup", *where[:2]).returncode == 0
    assert lab.inbound(8080, version=version) == Answer("app", 8080)


def programs_started(namespace: Namespace, record: Path, *arguments: str) -> list[str]:
    """The programs that a run of proxy-init executes, by name."""
    argv = ["strace", "-f", "-qq", "-e", "trace=execve", "-e", "status=successful"]
    done = namespace.exec([*argv, "-o", str(record), PROGRAM, *arguments])
    assert done.returncode == 0, done.stderr
    return re.findall(r'execve\("[^"]*?([^/"]+)"', record.read_text())


def test_entering_costs_no_program(
    namespace: Namespace, target: Namespace, tmp_path: Path, mode: str
) -> None:
    """The same programs run with --netns as without: nothing like nsenter."""
    arguments = (*LINKERD, "--iptables-mode", mode, "--timeout-close-wait-secs", "9")
    here = programs_started(namespace, tmp_path / "here", *arguments)
    where = ("--netns", target.path)
    there = programs_started(namespace, tmp_path / "there", *arguments, *where)
    assert sorted(there) == sorted(here)
    if mode == "nftables":  # that no table is there was seen without a program
        assert there[1:] == ["nft", "nft"]
        return
    iptables = {
        f"{version}tables-{mode}-{job}"
        for version in VERSIONS
        for job in ("save", "restore")
    }
    # Reads before and after the one write of each family; the first is Python.
    assert set(there[1:]) <= iptables
    assert len(there) == 1 + 3 * len(VERSIONS)


# === what is no network namespace ===


NO_NAMESPACE = [
    pytest.param("/var/run/netns/no-such-namespace", id="nothing there"),
    pytest.param("/etc/passwd", id="a file"),
    pytest.param("/proc", id="a folder"),
    pytest.param("/dev/null", id="a device"),
    pytest.param("/proc/self/ns/mnt", id="a namespace of another kind"),
    pytest.param("/proc/self/ns/user", id="a user namespace"),
    pytest.param("", id="an empty path"),
    pytest.param("no/such", id="a relative path to nothing"),
]


def assert_refused(
    caller: Namespace, done: CompletedProcess[str], timeout: int
) -> None:
    assert done.returncode == 2
    assert done.stdout == ""
    assert "nothing was changed" in done.stderr
    assert tables(caller) == []
    assert close_wait(caller) == timeout


@pytest.mark.parametrize("path", NO_NAMESPACE)
def test_no_namespace_is_a_mistake(namespace: Namespace, path: str) -> None:
    """Exit 2, the path is named, and neither table nor sysctl is touched."""
    before = close_wait(namespace)
    timeout = ("--timeout-close-wait-secs", "3600")
    done = run(namespace, *LINKERD, *timeout, "--netns", path)
    assert_refused(namespace, done, before)
    assert repr(path) in done.stderr


def test_fifo_is_no_namespace(namespace: Namespace, tmp_path: Path) -> None:
    """Nor does looking at one wait for a writer."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    before = close_wait(namespace)
    assert_refused(namespace, run(namespace, *LINKERD, "--netns", str(path)), before)


def test_process_that_is_gone_is_a_mistake(namespace: Namespace) -> None:
    """Its pid is named; so is one that never was."""
    with subprocess.Popen(["/bin/true"]) as gone:
        gone.wait()
    before = close_wait(namespace)
    for pid in (gone.pid, 4194304):
        done = run(namespace, *LINKERD, "--pid", str(pid))
        assert_refused(namespace, done, before)
        assert f"--pid '{pid}'" in done.stderr


def test_path_and_process_together_are_a_mistake(
    namespace: Namespace, target: Namespace, resident: int
) -> None:
    """Two answers to one question are refused, even where they agree."""
    before = close_wait(namespace)
    where = ("--netns", target.path, "--pid", str(resident))
    assert_refused(namespace, run(namespace, *LINKERD, *where), before)
    assert tables(target) == []


def test_cleanup_of_no_namespace_is_a_mistake(namespace: Namespace) -> None:
    """It must not clean the caller's own instead."""
    assert run(namespace, *LINKERD).returncode == 0
    assert run(namespace, "cleanup", "--netns", "/etc/passwd").returncode == 2
    assert jumps(namespace, "legacy") == 4


def test_entering_needs_privileges(namespace: Namespace, target: Namespace) -> None:
    """Without them: exit 1, which capability is missing, and nothing done here."""
    where = ("--netns", target.path)
    limit = ["setpriv", "--bounding-set", "-sys_admin"]
    done = namespace.exec([*limit, PROGRAM, *LINKERD, *where])
    assert done.returncode == 1
    assert "CAP_SYS_ADMIN" in done.stderr
    assert (tables(namespace), tables(target)) == ([], [])


# === the node's own namespace ===

AS_PROCESS_1 = ("unshare", "--pid", "--fork", "--mount-proc", PROGRAM)
"""With these words proxy-init is process 1 of what it takes for the node."""


@pytest.mark.parametrize("command", [LINKERD, ("cleanup",)], ids=["install", "cleanup"])
@pytest.mark.parametrize(
    "where",
    [
        pytest.param(("--pid", "1"), id="by process 1"),
        pytest.param(("--netns", "/proc/self/ns/net"), id="by a path"),
    ],
)
def test_the_nodes_own_namespace_is_not_changed_by_mistake(
    namespace: Namespace, command: tuple[str, ...], where: tuple[str, ...]
) -> None:
    """A process that shares the node's network leads to an error, and to no rule."""
    refused = namespace.exec([*AS_PROCESS_1, *command, *where])
    assert refused.returncode == 2
    assert "this is the node's own network namespace" in refused.stderr
    assert "--host" in refused.stderr
    assert tables(namespace) == []


def test_the_nodes_own_namespace_is_changed_when_it_is_meant(
    namespace: Namespace,
) -> None:
    """With --host it is done; who only simulates need not say so."""
    simulated = namespace.exec([*AS_PROCESS_1, *LINKERD, "--pid", "1", "--simulate"])
    assert simulated.returncode == 0, simulated.stderr
    assert jumps(namespace, "legacy") == 0
    done = namespace.exec([*AS_PROCESS_1, *LINKERD, "--pid", "1", "--host"])
    assert done.returncode == 0, done.stderr
    assert jumps(namespace, "legacy") == 4


def test_no_namespace_named_is_never_the_nodes_by_mistake(namespace: Namespace) -> None:
    """A container whose first process it is installs without saying more."""
    done = namespace.exec([*AS_PROCESS_1, *LINKERD])
    assert done.returncode == 0, done.stderr
    assert jumps(namespace, "legacy") == 4
