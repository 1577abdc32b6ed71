"""Which namespaces verify finds: by process, by path, by address, or all."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

from installed import PROGRAM
from verify_runs import execute, install, only, verify

from proxyinit.lab import PROXY_UID, Namespace, StandIn
from proxyinit.verify import discover
from proxyinit.verify.node import Question, examine


@contextlib.contextmanager
def living(namespace: Namespace, *argv: str) -> Iterator[int]:
    """The pid of a program that lives inside; it says so before this goes on."""
    command = [*argv, "sh", "-c", "echo here; read end"]
    pipe = subprocess.PIPE
    with namespace.run(
        lambda: subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "here\n"
        yield process.pid


def test_by_pid_and_by_path(namespace: Namespace) -> None:
    """Either leads to the same namespace."""
    install(namespace, "nft")
    with living(namespace) as pid:
        by_pid = only(verify("--pid", str(pid))[1])
        by_path = only(verify("--netns", namespace.path)[1])

    assert by_pid["inode"] == by_path["inode"]
    assert by_pid["checks"] == by_path["checks"]
    assert by_pid["name"] == f"process {pid} (sh)"
    assert by_path["name"] == namespace.name


def addresses(namespace: Namespace) -> tuple[str, str]:
    """Addresses that nobody else on this machine has, on an interface of its own."""
    number = os.getpid() % 60000
    pair = f"10.{200 + number % 50}.{number % 251}.9", f"fd00:7e57:{number:x}::9"
    script = "ip link add eth0 type veth peer name other && ip link set eth0 up"
    for address, prefix in zip(pair, (32, 128), strict=True):
        script += f" && ip addr add {address}/{prefix} dev eth0"
    assert namespace.exec(["sh", "-c", script]).returncode == 0
    return pair


def test_by_address(namespace: Namespace) -> None:
    """The namespace whose interface has the address, of either version."""
    for address in addresses(namespace):
        code, document = verify("--pod-ip", address)
        assert (code, only(document)["name"]) == (3, namespace.name)


def test_an_address_twice(namespace: Namespace) -> None:
    """Which one is meant can't be told: both are listed, and how to say it."""
    twin = Namespace("twin")
    try:
        address, _ = addresses(namespace)
        assert addresses(twin)[0] == address
        done = execute([PROGRAM, "verify", "--pod-ip", address])
    finally:
        twin.close()

    assert done.returncode == 1
    assert f"2 network namespaces have the address {address}" in done.stderr
    for member in (namespace, twin):
        assert f"{member.path.replace('/var', '')}: {member.name}" in done.stderr


def test_all(namespace: Namespace) -> None:
    """Every backend's redirect and every proxy without one; nobody else."""
    others = {name: Namespace(name) for name in ("legacy", "nftables", "idle", "proxy")}
    install(namespace, "nft")
    try:
        for mode in ("legacy", "nftables"):
            install(others[mode], mode)
        proxy = StandIn(others["proxy"], "proxy", (4143,), uid=PROXY_UID)
        with contextlib.closing(proxy):
            code, document = verify("--all")
    finally:
        for other in others.values():
            other.close()

    found = {member["name"]: member for member in document["namespaces"]}
    assert code in (1, 3)  # the proxy's, or one that is not this test's
    assert found[namespace.name]["backend"] == "nft"
    for mode in ("legacy", "nftables"):
        assert found[others[mode].name]["backend"] == mode
        assert found[others[mode].name]["verdict"] == "intercepted"
    assert found[others["proxy"].name]["verdict"] == "differs"
    assert others["idle"].name not in found


def test_a_pod_goes_by_its_host_name(namespace: Namespace) -> None:
    """A process with a host name of its own is a pod, and that is its name."""
    install(namespace, "legacy")
    renamed = ("unshare", "--uts", "sh", "-c", 'hostname web-0; exec "$@"', "sh")
    with living(namespace, *renamed) as pid:
        _, document = verify("--all")

    inode = os.stat(namespace.path).st_ino  # noqa: PTH116  (a magic link)
    (found,) = [m for m in document["namespaces"] if m["inode"] == inode]
    assert (found["name"], found["pod"], found["pid"]) == ("web-0", "web-0", pid)


def test_a_namespace_that_ends_meanwhile() -> None:
    """It is reported, and is no failure of the others."""
    namespace = Namespace("brief")
    target = discover.target(namespace.path)
    namespace.close()

    report = examine(Question(), target)
    assert report
    assert report.verdict == "gone"
