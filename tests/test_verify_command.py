"""The command line of verify, what it prints, and how namespaces are found."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from proxyinit.cli import root
from proxyinit.config import RedirectConfig
from proxyinit.errors import NamespaceError
from proxyinit.pflag import parse
from proxyinit.testing import FakeKernel
from proxyinit.verify import cli as verify_cli
from proxyinit.verify import discover, report
from proxyinit.verify.checks import FAIL, OK, UNKNOWN, WARN, Check
from proxyinit.verify.discover import Identity, NamespaceGone, Target
from proxyinit.verify.node import PROXY_PORTS, Report, exit_code
from proxyinit.verify.readback import Wanted
from proxyinit.verify.verdict import Judgement, gather

CONFIG = RedirectConfig(4143, 4140, (2102,))
EXPECTED_ADDRESS = "expected an address such as 10.42.0.17 or fd00::17"


def run(*argv: str) -> tuple[int, str, str]:
    """The exit code of a command line, and what it printed."""
    done = CliRunner().invoke(root, ["verify", *argv])
    return done.exit_code, done.stdout, done.stderr


def problems(*argv: str) -> list[str]:
    return list(verify_cli.problems(parse(argv, verify_cli.VERIFY_FLAGS)))


# === arguments ===


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        pytest.param((), [], id="the caller's own"),
        pytest.param(("--all", "--probe", "--format=json"), [], id="all"),
        pytest.param(("-p", "4143", "-o", "4140"), [], id="what is wanted"),
        pytest.param(
            ("--all", "--pid", "1", "--pod-ip", "::1"),
            ["--pid, --pod-ip, --all each name namespaces: give one of them"],
            id="several targets",
        ),
        pytest.param(
            ("-u", "2102"),
            [
                "--incoming-proxy-port is missing: the proxy's port, such as 4143",
                "--outgoing-proxy-port is missing: the proxy's port, such as 4143",
            ],
            id="wanted without ports",
        ),
        pytest.param(
            ("--pod-ip", "10.0.0.256", "--format", "xml"),
            [
                f"--pod-ip '10.0.0.256': {EXPECTED_ADDRESS}",
                "--format 'xml': expected text or json",
            ],
            id="bad values",
        ),
    ],
)
def test_arguments(argv: Sequence[str], said: list[str]) -> None:
    """All mistakes are told, and only mistakes."""
    assert problems(*argv) == said


def test_usage_is_exit_code_2() -> None:
    """Nothing is looked at before the command line makes sense."""
    code, stdout, stderr = run("--nets", "x", "stray")

    assert (code, stdout) == (2, "")
    assert "nothing was looked at" in stderr
    assert "did you mean --netns?" in stderr


def test_an_address_in_any_spelling() -> None:
    """Addresses are compared as the kernel spells them."""
    (flag,) = [flag for flag in verify_cli.VERIFY_FLAGS if flag.name == "pod-ip"]

    assert flag.parse("FD00:0:0::0017") == "fd00::17"
    assert flag.parse("10.42.0.17") == "10.42.0.17"


@pytest.mark.parametrize(
    ("argv", "given", "ports"),
    [
        pytest.param((), None, (), id="one namespace, whatever it holds"),
        pytest.param(("--all",), None, PROXY_PORTS, id="Linkerd's ports"),
        pytest.param(
            ("--all", "-p", "15006", "-o", "15001", "--ipv6=false"),
            Wanted(RedirectConfig(15006, 15001), ipv6=False),
            (15006, 15001),
            id="the ports that are wanted",
        ),
    ],
)
def test_question(
    argv: Sequence[str], given: Wanted | None, ports: tuple[int, ...]
) -> None:
    """With --all only namespaces count that have to do with the proxy's ports."""
    question = verify_cli.question(parse(argv, verify_cli.VERIFY_FLAGS))

    assert (question.given, question.ports) == (given, ports)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        pytest.param(("--pid", "4194304"), "No such file", id="a pid that is gone"),
        pytest.param(("--netns", "/nowhere"), "No such file", id="no such path"),
        pytest.param(
            ("--netns", "/proc/self/ns/uts"),
            "is no network namespace",
            id="a namespace of another kind",
        ),
        pytest.param(("--netns", "/etc/passwd"), "is no network", id="a plain file"),
        pytest.param(
            ("--pod-ip", "192.0.2.99"),
            "no interface in any of",
            id="an address that nobody has",
        ),
    ],
)
def test_nothing_to_look_at(argv: Sequence[str], said: str) -> None:
    """A target that is not there is no difference: exit code 1, one sentence."""
    code, stdout, stderr = run(*argv)

    assert (code, stdout) == (1, "")
    assert stderr.startswith("Error: could not tell: ")
    assert said in stderr


# === what is printed ===


def reported(*checks: Check, name: str = "web-0", backend: str = "nft") -> Report:
    live = Wanted(CONFIG, ipv6=True) if backend else None
    return Report(
        Target("/proc/4711/ns/net", 4026532001, (4711,)),
        Identity(name, name, "", 4711, "/pause"),
        Judgement(backend, live, live, checks),
    )


WELL = reported(Check("backend", OK, "iptables-nft"), Check("rules", OK, "in order"))
BAD = reported(
    Check("hooks", WARN, "another may be first", "look"),
    Check("jumps", FAIL, "the jump of OUTPUT is missing", "run it again"),
    Check("rules", FAIL, "rule 1 is missing", "run it again"),
    name="db-0",
)
UNSURE = reported(Check("readable", UNKNOWN, "[Errno 13]", "be root"), backend="")
GONE = reported(Check("gone", WARN, "went away", "look again"), backend="")


@pytest.mark.parametrize(
    ("reports", "code"),
    [
        pytest.param([], 0, id="nothing to look at"),
        pytest.param([WELL, GONE], 0, id="one that ended needs no redirect"),
        pytest.param([WELL, UNSURE], 1, id="one that can't be told"),
        pytest.param([UNSURE, BAD, WELL], 3, id="one that differs is certain"),
    ],
)
def test_exit_code(reports: list[Report], code: int) -> None:
    """The worst that is certain decides."""
    assert exit_code(reports) == code


def test_text_of_one(capfd: pytest.CaptureFixture[str]) -> None:
    """A line a check; a next step below what is wrong; the flags at the end."""
    report.print_one(BAD)

    assert capfd.readouterr().out.splitlines() == [
        "db-0, /pause: differs",
        "warn  hooks  another may be first",
        "             -> look",
        "FAIL  jumps  the jump of OUTPUT is missing",
        "             -> run it again",
        "FAIL  rules  rule 1 is missing",
        "             -> run it again",
        "",
        "The rules in iptables-nft are those of:",
        "proxy-init \\",
        "  --incoming-proxy-port 4143 \\",
        "  --outgoing-proxy-port 4140 \\",
        "  --proxy-uid 2102",
    ]


def test_text_of_all(capfd: pytest.CaptureFixture[str]) -> None:
    """One line a namespace: the worst of it, or where connections go."""
    report.print_all([WELL, BAD, UNSURE, GONE], hidden=2, others=7)

    worst = "jumps: the jump of OUTPUT is missing (and 2 more)"
    assert capfd.readouterr().out.splitlines() == [
        "ok    web-0  4711  iptables-nft  to 4143 and 4140",
        f"FAIL  db-0   4711  iptables-nft  {worst}",
        "?     web-0  4711                readable: [Errno 13]",
        "gone  web-0  4711                gone: went away",
        "4 namespaces with a redirect or a proxy, 7 without",
        "2 processes may not be looked at: run as root to see them all",
    ]


def test_json(capfd: pytest.CaptureFixture[str]) -> None:
    """The same for programs, one document."""
    report.print_json([BAD, UNSURE], hidden=1)
    document: dict[str, Any] = json.loads(capfd.readouterr().out)

    assert (document["exit_code"], document["hidden_processes"]) == (3, 1)
    bad, unsure = document["namespaces"]
    assert bad["verdict"] == "differs"
    assert bad["flags"] == [
        "--incoming-proxy-port 4143",
        "--outgoing-proxy-port 4140",
        "--proxy-uid 2102",
    ]
    assert bad["checks"][1] == {
        "name": "jumps",
        "state": "fail",
        "found": "the jump of OUTPUT is missing",
        "advice": "run it again",
    }
    assert (unsure["verdict"], unsure["flags"]) == ("unknown", [])


# === finding namespaces ===


def test_this_namespace_is_found() -> None:
    """Every process that may be looked at is in exactly one namespace found."""
    found, _ = discover.targets()
    here = os.stat("/proc/self/ns/net").st_ino  # noqa: PTH116  (a magic link)
    (own,) = [target for target in found if target.inode == here]

    assert os.getpid() in own.pids
    pids = [pid for target in found for pid in target.pids]
    assert len(pids) == len(set(pids))


def test_a_namespace_that_was_replaced_is_gone() -> None:
    """A path that leads to another namespace by now is not taken for the first."""
    here = discover.target("/proc/self/ns/net")
    with pytest.raises(NamespaceGone, match="went away meanwhile"):
        discover.enter(Target(here.path, here.inode + 1))


def test_a_namespace_whose_processes_have_ended_is_gone() -> None:
    """No path and no process left: gone, not unreadable."""
    with pytest.raises(NamespaceGone):
        discover.enter(Target("/proc/4194304/ns/net", 1, (4194304, 4194303)))


def test_a_namespace_that_may_not_be_opened_is_not_gone(tmp_path: Path) -> None:
    """What is there but no namespace is told as it is."""
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(NamespaceError, match="is no network namespace") as caught:
        discover.enter(Target(str(file), 1))
    assert not isinstance(caught.value, NamespaceGone)


def test_whose_it_is() -> None:
    """Of this process: its command, and no pod as its host name is the node's."""
    identity = discover.identify(discover.target(f"/proc/{os.getpid()}/ns/net"))

    assert identity.pid == os.getpid()
    assert identity.pod == ""
    assert "python" in identity.command or "pytest" in identity.command
    assert identity.name.startswith(f"process {os.getpid()} (")


def test_whose_it_was() -> None:
    """Of a process that has ended nothing is known but its number."""
    identity = discover.identify(Target("/x", 7, (4194304,)))

    assert (identity.pod, identity.command, identity.pid) == ("", "", 4194304)
    assert discover.identify(Target("/x", 7)).name == "namespace 7"
    assert discover.identify(Target("/x", 7, (), "cni-1")).name == "cni-1"


@pytest.mark.parametrize(
    ("cgroup", "uid"),
    [
        pytest.param(
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-"
            "pod8f0c9a3e_1111_4222_8333_0123456789ab.slice/cri-containerd-1.scope",
            "8f0c9a3e-1111-4222-8333-0123456789ab",
            id="systemd",
        ),
        pytest.param(
            "11:memory:/kubepods/besteffort/pod8f0c9a3e-1111-4222-8333-0123456789ab/1",
            "8f0c9a3e-1111-4222-8333-0123456789ab",
            id="cgroupfs",
        ),
        pytest.param("0::/user.slice/session-1.scope", "", id="no pod"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_pod_uid(cgroup: str, uid: str) -> None:
    """The kubelet writes a pod's uid into the names of its groups."""
    assert discover.pod_uid(cgroup) == uid


# === reading ===


def test_what_concerns_nobody_is_left_out() -> None:
    """With ports, a namespace without rules of ours or listeners is not judged."""
    kernel = FakeKernel()

    assert gather(kernel, kernel, ports=(1,)) is None
    assert not [call for call in kernel.calls if call.program.endswith("-save")]


def test_a_table_that_can_not_be_read_is_no_absence() -> None:
    """A save program that fails leaves its text, and the other family is read."""
    kernel = FakeKernel()
    kernel.load("nft", 4, "-A OUTPUT -p tcp -j ACCEPT")
    kernel.load("nft", 6, "-A OUTPUT -p tcp -j ACCEPT")
    kernel.impose("no nfnetlink", "iptables-nft-save")

    found = gather(kernel, kernel)

    assert found is not None
    assert list(found.survey.tables) == [("nft", 6)]
    assert "Failed to initialize nft" in found.survey.problems["nft", 4]


def test_reading_makes_no_legacy_table() -> None:
    """Where no legacy table is, no legacy program is run."""
    kernel = FakeKernel()
    gather(kernel, kernel)

    assert kernel.tables == {}
