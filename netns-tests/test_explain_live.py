"""`proxy-init explain` on namespaces as they are: by path, by process, one's own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from installed import PROGRAM

from proxyinit.lab import POD, WORLD, Lab, Namespace
from proxyinit.lab.namespace import version_of

INSTALL = ("-p", "4143", "-o", "4140", "-u", "2102")


def to(address: str, port: int) -> str:
    """The words that name a destination."""
    shown = f"[{address}]" if version_of(address) == 6 else address
    return f"--to={shown}:{port}"


def explain(*argv: str) -> dict[str, Any]:
    """The answer of a run outside of any pod, as JSON says it."""
    done = subprocess.run(
        [PROGRAM, "explain", "--format=json", *argv],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    answer: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if answer["decided"] else 1)
    return answer


def install(namespace: Namespace, mode: str) -> None:
    """Redirect in the namespace."""
    argv = [PROGRAM, *INSTALL, "--iptables-mode", mode, "--log-level=error"]
    done = namespace.exec(argv)
    assert done.returncode == 0, done.stderr


def test_a_pod_is_looked_into_from_the_node(lab: Lab, mode: str, version: int) -> None:
    """Its own addresses are known: what they tell need not be said."""
    install(lab.pod, mode)
    where = f"--netns={lab.pod.path}"
    own, world = POD[version], WORLD[version]

    inbound = explain(where, f"--from={world}", to(own, 8080))
    outbound = explain(where, f"--from={own}", to(world, 443), "--uid=1000")
    proxys = explain(where, f"--from={own}", to(world, 443), "--uid=2102")
    itself = explain(where, f"--from={own}", to(own, 443), "--uid=1000")

    assert inbound["answer"].startswith("redirected to the proxy at 4143, original")
    assert outbound["answer"].startswith("redirected to the proxy at 4140, original")
    assert proxys["answer"].endswith("(proxy-init/ignore-proxy-user-id)")
    assert itself["answer"].endswith("(proxy-init/ignore-loopback)")
    assert not any(a["premises"] for a in (inbound, outbound, proxys, itself))
    assert [len(inbound["tables"]), inbound["undecided"]] == [1, []]


def test_a_pod_is_found_by_a_process(namespace: Namespace, mode: str) -> None:
    """Which only has to live in it."""
    install(namespace, mode)
    waits = ["sleep", "60"]
    process = namespace.run(lambda: subprocess.Popen(waits))
    try:
        argv = (
            f"--pid={process.pid}",
            "--from=10.9.9.9",
            to("127.0.0.1", 1),
            "--uid=1",
        )
        answer = explain(*argv)
    finally:
        process.kill()
        process.wait()

    assert answer["answer"].endswith("(proxy-init/ignore-loopback)")


def test_nothing_is_there(namespace: Namespace) -> None:
    """No rules are an answer too, and asking makes none."""
    answer = explain(f"--netns={namespace.path}", "--from=::1", to("::1", 80))

    assert answer["answer"].endswith("there are no nat rules for IPv6")
    names = Path("/proc/thread-self/net/ip6_tables_names")
    assert namespace.run(names.read_text) == ""


def test_a_listing_of_iptables_rules_is_not_believed(namespace: Namespace) -> None:
    """What nft can't spell it leaves out; then the answer is that nobody knows."""
    install(namespace, "nft")
    listing = namespace.exec(["nft", "list", "ruleset"]).stdout
    argv = ["explain", "--dump=-", "--from=fd00::5", to("fd00::7", 80), "--inbound"]

    done = namespace.exec([PROGRAM, *argv], text=listing)

    assert done.returncode == 1
    assert "table ip6 nat is iptables-nft's" in done.stdout


def test_two_backends_in_charge_are_undecided(namespace: Namespace) -> None:
    """Both would take the connection, and nothing tells which is asked first."""
    for mode, port in (("legacy", 1), ("nft", 2)):
        rule = f"*nat\n-A PREROUTING -p tcp -j REDIRECT --to-ports {port}\nCOMMIT\n"
        done = namespace.exec([f"iptables-{mode}-restore"], text=rule)
        assert done.returncode == 0, done.stderr

    ends = ("--from=10.9.9.9", to("10.8.8.8", 80), "--inbound")
    answer = explain(f"--netns={namespace.path}", *ends)

    assert not answer["decided"]
    assert {o["ports"][0] for o in answer["outcomes"]} == {1, 2}
    assert "which of iptables-legacy and iptables-nft" in answer["undecided"][0]


def test_tables_of_others_in_nftables_are_followed(namespace: Namespace) -> None:
    """Those that hook in at another priority, too."""
    listing = """table ip mesh {
        chain out {
            type nat hook output priority -101; policy accept;
            meta skuid 1337 return
            ip protocol tcp redirect to :15001
        }
    }"""
    assert namespace.exec(["nft", "-f", "-"], text=listing).returncode == 0
    where = (f"--netns={namespace.path}", "--from=10.9.9.9", to("10.8.8.8", 80))

    apps = explain(*where, "--uid=1000")
    proxys = explain(*where, "--uid=1337")

    assert apps["answer"].startswith("redirected to port 15001")
    assert proxys["outcomes"][0]["kind"] == "untouched"
    assert [table["name"] for table in apps["tables"]] == ["nftables, table ip mesh"]


@pytest.mark.parametrize(
    ("priority", "port"),
    [pytest.param(-101, 4140, id="before"), pytest.param(-99, 4143, id="behind")],
)
def test_the_table_of_the_lower_priority_decides(
    lab: Lab, mode: str, priority: int, port: int
) -> None:
    """And the kernel agrees."""
    install(lab.pod, mode)
    listing = f"""table inet mesh {{
        chain pre {{
            type nat hook prerouting priority {priority}; policy accept;
            tcp dport 8080 redirect to :4140
        }}
    }}"""
    assert lab.pod.exec(["nft", "-f", "-"], text=listing).returncode == 0
    lab.proxy()

    ends = (f"--from={WORLD[4]}", to(POD[4], 8080))
    answer = explain(f"--netns={lab.pod.path}", *ends)

    assert (answer["decided"], answer["outcomes"][0]["ports"][0]) == (True, port)
    assert lab.inbound(8080).port == port


@pytest.mark.parametrize("asleep", [False, True])
def test_a_dormant_table_is_not_asked(
    namespace: Namespace,
    asleep: bool,  # noqa: FBT001  (a column)
) -> None:
    """Of iptables-nft, whose dump does not tell."""
    rule = "*nat\n-A PREROUTING -p tcp -j REDIRECT --to-ports 5\nCOMMIT\n"
    assert namespace.exec(["iptables-nft-restore"], text=rule).returncode == 0
    if asleep:
        sleep = "add table ip nat { flags dormant; }"
        assert namespace.exec(["nft", sleep]).returncode == 0
    ends = ("--from=10.9.9.9", to("10.8.8.8", 80), "--inbound")

    answer = explain(f"--netns={namespace.path}", *ends)

    kind = "untouched" if asleep else "redirected"
    assert answer["outcomes"][0]["kind"] == kind


def test_a_pod_that_is_gone() -> None:
    """The process has ended: a mistake in the arguments, told as such."""
    process = subprocess.Popen(["true"])
    process.wait()
    argv = [PROGRAM, "explain", f"--pid={process.pid}", "--from=::1", to("::1", 1)]

    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert f"--pid '{process.pid}': expected a network namespace" in done.stderr


def test_no_permission_is_told(namespace: Namespace) -> None:
    """Whoever may not enter learns what it needs, and nothing is guessed."""
    argv = [PROGRAM, "explain", f"--netns={namespace.path}", "--from=::1", to("::1", 1)]
    user = ["setpriv", "--reuid=65534", "--clear-groups", "--bounding-set=-sys_admin"]
    keep = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search", "--"]

    done = subprocess.run(
        [*user, *keep, *argv],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env=os.environ,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert "can't enter the network namespace: Operation not permitted" in done.stderr


@pytest.mark.parametrize("reply", ["garbage\n", "*nat\n:PREROUTING"])
def test_a_tool_that_answers_oddly(
    namespace: Namespace, tmp_path: Path, reply: str
) -> None:
    """What can't be read is undecided, and said to be."""
    install(namespace, "nft")
    fake = tmp_path / "iptables-nft-save"
    fake.write_text(f"#!/bin/sh\nprintf '{reply}'\n", encoding="utf-8")
    fake.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    argv = [PROGRAM, "explain", "--from=127.0.0.1", to("10.8.8.8", 80), "--uid=1"]

    done = namespace.exec(["env", f"PATH={path}", *argv])

    assert done.returncode == 1
    assert "iptables-nft, IPv4, could not be read" in done.stdout
