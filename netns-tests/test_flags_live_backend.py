"""Which backend gets the rules, and that finding out leaves no trace."""

from __future__ import annotations

import re
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from installed import PROGRAM

from proxyinit.lab import Namespace

LINKERD = ("-p", "4143", "-o", "4140", "-u", "2102")
OTHER = (*LINKERD, "--inbound-ports-to-ignore", "25")
SBIN = "/usr/sbin"


def run(namespace: Namespace, *arguments: str) -> CompletedProcess[str]:
    return namespace.exec([PROGRAM, *arguments])


def legacy_tables(namespace: Namespace) -> str:
    """The legacy tables of both families; empty until one is touched."""
    names = [f"/proc/net/{version}_tables_names" for version in ("ip", "ip6")]
    return namespace.exec(["cat", *names]).stdout


def nft_tables(namespace: Namespace) -> str:
    """Every table of nf_tables."""
    return namespace.exec(["nft", "list", "tables"]).stdout


def assert_only_in(namespace: Namespace, kind: str) -> None:
    """Our jumps stand in both families of one backend; the others have no table."""
    if kind == "legacy":
        assert nft_tables(namespace) == ""
    else:
        assert legacy_tables(namespace) == ""
    if kind == "nftables":
        assert nft_tables(namespace) == "table inet proxy_init\n"
    assert holders(namespace) == {kind}


def holders(namespace: Namespace) -> set[str]:
    """The backends that hold all four jumps; half a set fails the test."""
    found = set()
    for kind in ("legacy", "nft"):
        dumps = [
            namespace.exec([f"{version}tables-{kind}-save"]).stdout
            for version in ("ip", "ip6")
        ]
        jumps = [len(re.findall("-j PROXY_INIT_", dump)) for dump in dumps]
        assert jumps in ([0, 0], [2, 2])
        if jumps == [2, 2]:
            found.add(kind)
    native = namespace.exec(["nft", "list", "table", "inet", "proxy_init"]).stdout
    if native:
        assert len(re.findall("jump PROXY_INIT_", native)) == 2
        found.add("nftables")
    return found


def bin_path(name: str) -> tuple[str, ...]:
    return "--firewall-bin-path", name


def save_path(name: str) -> tuple[str, ...]:
    return "--firewall-save-bin-path", name


CHOICES = [
    pytest.param((), "legacy", id="no flag: legacy, as upstream"),
    pytest.param(
        (*bin_path("iptables-nft"), *save_path("iptables-nft-save")),
        "nft",
        id="as Linkerd's chart asks for nft",
    ),
    pytest.param(
        (*bin_path("iptables-legacy"), *save_path("iptables-legacy-save")),
        "legacy",
        id="as Linkerd's chart asks for legacy",
    ),
    pytest.param(bin_path("iptables-nft"), "nft", id="the first flag alone"),
    pytest.param(save_path("iptables-nft-save"), "nft", id="the second flag alone"),
    pytest.param(
        (*bin_path(f"{SBIN}/iptables-nft"), *save_path(f"{SBIN}/iptables-nft-save")),
        "nft",
        id="by paths",
    ),
    pytest.param(("--iptables-mode", "nft"), "nft", id="mode nft"),
    pytest.param(("--iptables-mode=legacy",), "legacy", id="mode legacy"),
    pytest.param(("--iptables-mode", "nftables"), "nftables", id="mode nftables"),
    pytest.param(("--iptables-mode", "NFTables"), "nftables", id="in capitals"),
    pytest.param(("--iptables-mode", "auto"), "nft", id="auto, where nothing is"),
    pytest.param(
        ("--iptables-mode", "legacy", *bin_path("iptables-nft")),
        "legacy",
        id="the mode overrides the path",
    ),
]


@pytest.mark.parametrize(("arguments", "kind"), CHOICES)
def test_flags_choose_the_backend(
    namespace: Namespace, arguments: tuple[str, ...], kind: str
) -> None:
    """The rules stand there; the other backend was not even looked into."""
    for _ in range(2):
        done = run(namespace, *LINKERD, *arguments)
        assert done.returncode == 0, done.stderr
        assert_only_in(namespace, kind)
    assert "nothing written" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("--iptables-mode", "plain"), id="by the mode"),
        pytest.param(
            (*bin_path("iptables"), *save_path("iptables-save")), id="by the paths"
        ),
    ],
)
def test_plain_is_what_the_machine_says(
    namespace: Namespace,
    tmp_path: Path,
    iptables_mode: str,
    arguments: tuple[str, ...],
) -> None:
    """Plain iptables is the backend that the programs of that name drive."""
    mode = iptables_mode
    for version in ("ip", "ip6"):
        for job in ("", "-save", "-restore"):
            link = tmp_path / f"{version}tables{job}"
            link.symlink_to(f"{SBIN}/xtables-{mode}-multi")
    argv = ["env", f"PATH={tmp_path}:{SBIN}:/usr/bin", PROGRAM, *LINKERD, *arguments]
    done = namespace.exec(argv)
    assert done.returncode == 0, done.stderr
    assert_only_in(namespace, mode)


def test_folder_of_the_path_is_searched_first(
    namespace: Namespace, tmp_path: Path
) -> None:
    """--firewall-bin-path DIR/iptables takes every program from DIR."""
    for version in ("ip", "ip6"):
        for job in ("", "-save", "-restore"):
            link = tmp_path / f"{version}tables{job}"
            link.symlink_to(f"{SBIN}/xtables-legacy-multi")
    done = run(namespace, *LINKERD, *bin_path(f"{tmp_path}/iptables"))
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path}/ip6tables-restore" in done.stderr
    assert_only_in(namespace, "legacy")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param((), id="no PATH"),
        pytest.param(("PATH=",), id="an empty PATH"),
        pytest.param(("PATH=/usr/bin:/bin",), id="no sbin on PATH"),
    ],
)
def test_programs_are_found_without_path(
    namespace: Namespace, mode: str, path: tuple[str, ...]
) -> None:
    """The system's own folders are searched as well: users often lack the sbin ones."""
    argv = ["env", "-i", *path, PROGRAM, *LINKERD, "--iptables-mode", mode]
    done = namespace.exec(argv)
    assert done.returncode == 0, done.stderr
    assert_only_in(namespace, mode)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(bin_path("nft"), id="another program"),
        pytest.param(bin_path("iptables-save"), id="the save program"),
        pytest.param(save_path("iptables"), id="no save program"),
        pytest.param(
            (*bin_path("iptables-nft"), *save_path("iptables-legacy-save")),
            id="two backends",
        ),
        pytest.param(bin_path("iptables-nft; reboot"), id="a command line"),
    ],
)
def test_paths_that_are_no_pair_are_refused(
    namespace: Namespace, arguments: tuple[str, ...]
) -> None:
    """Exit 2, and no backend has a table."""
    assert run(namespace, *LINKERD, *arguments).returncode == 2
    assert (legacy_tables(namespace), nft_tables(namespace)) == ("", "")


# === auto ===

AUTO = ("--iptables-mode", "auto")
FOREIGN_NAT = "-t nat -A POSTROUTING -o eth9 -j MASQUERADE"

IN_USE = [
    pytest.param(("iptables-legacy", FOREIGN_NAT), "legacy", id="others' nat, legacy"),
    pytest.param(("ip6tables-legacy", FOREIGN_NAT), "legacy", id="others', IPv6 only"),
    pytest.param(("iptables-nft", FOREIGN_NAT), "nft", id="others' nat, nft"),
    pytest.param(
        ("iptables-legacy", "-A INPUT -j ACCEPT"), "nft", id="a filter is no nat"
    ),
    pytest.param(
        ("iptables-legacy", "-t nat -S"), "nft", id="a legacy nat table without rules"
    ),
    pytest.param(
        ("iptables-legacy", "-t nat -N PROXY_INIT_OUTPUT"),
        "legacy",
        id="a chain of ours, left by a run that failed",
    ),
]


@pytest.mark.parametrize(("command", "kind"), IN_USE)
def test_auto_takes_the_backend_in_use(
    namespace: Namespace, command: tuple[str, str], kind: str
) -> None:
    """By what is there, and it stays with that however often it runs."""
    program, arguments = command
    assert namespace.exec([program, *arguments.split()]).returncode == 0
    before = legacy_tables(namespace)
    for chosen in (LINKERD, LINKERD, OTHER):
        done = run(namespace, *chosen, *AUTO)
        assert done.returncode == 0, done.stderr
        assert holders(namespace) == {kind}
    if kind == "nft":
        assert legacy_tables(namespace) == before


@pytest.mark.parametrize(
    ("mode", "other"),
    [("legacy", "nft"), ("nft", "legacy"), ("nftables", "legacy"), ("nftables", "nft")],
)
def test_auto_stays_where_ours_are(namespace: Namespace, mode: str, other: str) -> None:
    """Our own rules count more than those of others."""
    assert run(namespace, *LINKERD, "--iptables-mode", mode).returncode == 0
    foreign = [f"iptables-{other}", *FOREIGN_NAT.split()]
    assert namespace.exec(foreign).returncode == 0
    for arguments in (LINKERD, OTHER):
        assert run(namespace, *arguments, *AUTO).returncode == 0
        assert holders(namespace) == {mode}


def test_auto_after_cleanup_chooses_as_before(namespace: Namespace) -> None:
    """Install and cleanup leave nothing that would sway the next choice."""
    for _ in range(2):
        assert run(namespace, *LINKERD, *AUTO).returncode == 0
        assert_only_in(namespace, "nft")
        assert run(namespace, "cleanup").returncode == 0
        assert legacy_tables(namespace) == ""


# === no traces ===


def test_one_family_leaves_the_other_without_a_table(
    namespace: Namespace, mode: str
) -> None:
    """--ipv6=false creates no table of IPv6."""
    assert run(namespace, *LINKERD, "--ipv6=0", "--iptables-mode", mode).returncode == 0
    names = namespace.exec(["cat", "/proc/net/ip6_tables_names"]).stdout
    assert (names, "ip6" in nft_tables(namespace)) == ("", False)


def test_refused_install_leaves_no_trace_in_the_other_backend(
    namespace: Namespace, iptables_mode: str
) -> None:
    """A run that ends with an error has not touched the backend it was not to use."""
    mode = iptables_mode
    foreign = [f"iptables-{mode}", "-t", "nat", "-A", "PREROUTING", "-j", "ACCEPT"]
    assert namespace.exec(foreign).returncode == 0
    done = run(namespace, *LINKERD, "--iptables-mode", mode)
    assert done.returncode == 1
    assert (nft_tables if mode == "legacy" else legacy_tables)(namespace) == ""


def test_native_tables_of_others_stay(namespace: Namespace, mode: str) -> None:
    """What others made with nft is the same text after install and cleanup."""
    ruleset = (
        "table inet firewall { set s { type inet_service; elements = { 22, 80 }; };"
        " chain in { type filter hook input priority 0; policy accept;"
        " tcp dport @s counter accept; }; };"
        " table ip other { chain c { tcp dport 1 drop; }; }"
    )
    assert namespace.exec(["nft", "-f", "-"], text=ruleset).returncode == 0
    others = ["nft list table inet firewall", "nft list table ip other"]
    before = [namespace.exec(look.split()).stdout for look in others]
    assert run(namespace, *LINKERD, "--iptables-mode", mode).returncode == 0
    assert run(namespace, "cleanup").returncode == 0
    assert [namespace.exec(look.split()).stdout for look in others] == before
