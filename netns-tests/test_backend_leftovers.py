"""Rules of an earlier run in the other backend or family go, and are reported."""

from __future__ import annotations

import itertools
import re

import pytest
from installed import PROGRAM

from proxyinit.backend import title
from proxyinit.host import Host
from proxyinit.lab import WORLD, Lab, Namespace

ARGUMENTS = ("-p", "4143", "-o", "4140", "-u", "2102")
OTHER = {"legacy": "nft", "nft": "legacy"}
PAIRS = [
    pytest.param(first, second, id=f"{first} then {second}")
    for first, second in itertools.permutations(("legacy", "nft", "nftables"), 2)
]
FRONTENDS = ("iptables-legacy", "ip6tables-legacy", "iptables-nft", "ip6tables-nft")
NATIVE = ["nft", "list", "table", "inet", "proxy_init"]


def ours(namespace: Namespace) -> dict[str, int]:
    """How many lines of each frontend's dump mention our chains, where any do."""
    dumps = {n: namespace.exec([f"{n}-save", "-t", "nat"]).stdout for n in FRONTENDS}
    dumps["nftables"] = namespace.exec(NATIVE).stdout
    counts = {n: len(re.findall("PROXY_INIT_", d)) for n, d in dumps.items()}
    return {name: count for name, count in counts.items() if count}


def install(namespace: Namespace, *arguments: str) -> list[str]:
    """Run to success; the warnings."""
    done = namespace.exec([PROGRAM, *ARGUMENTS, *arguments])
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if "level=warning" in line]


def frontends(mode: str) -> set[str]:
    """Whose dumps show our rules when they are installed in that mode."""
    if mode == "nftables":
        return {"nftables"}
    return {f"iptables-{mode}", f"ip6tables-{mode}"}


@pytest.mark.parametrize(("before", "mode"), PAIRS)
def test_other_backend_is_cleared_and_reported(
    namespace: Namespace, before: str, mode: str
) -> None:
    """After a change of mode only the new backend holds our rules; one line each."""
    assert install(namespace, "--iptables-mode", before) == []
    warnings = install(namespace, "--iptables-mode", mode)
    assert set(ours(namespace)) == frontends(mode)
    families = ("inet",) if before == "nftables" else ("IPv4", "IPv6")
    for family, warning in zip(families, warnings, strict=True):
        removed = f"{family}: removed rules of an earlier run from {title(before)}"
        assert removed in warning
    assert install(namespace, "--iptables-mode", mode) == []


def test_ipv6_is_cleared_when_not_wanted_any_more(
    namespace: Namespace, iptables_mode: str
) -> None:
    """With --ipv6=false the rules of an earlier run with IPv6 go, and only those."""
    mode = iptables_mode
    install(namespace, "--iptables-mode", mode)
    (warning,) = install(namespace, "--iptables-mode", mode, "--ipv6=false")
    assert "IPv6: removed rules of an earlier run" in warning
    assert set(ours(namespace)) == {f"iptables-{mode}"}


def test_all_places_are_looked_at(namespace: Namespace, mode: str) -> None:
    """Leftovers without any jump, in every backend and family, are found."""
    for command in ("table", "chain"):
        name = " PROXY_INIT_OUTPUT" if command == "chain" else ""
        argv = f"nft add {command} inet proxy_init{name}".split()
        assert namespace.exec(argv).returncode == 0
    for name in FRONTENDS:
        command = f"{name} -t nat -N PROXY_INIT_OUTPUT"
        assert namespace.exec(command.split()).returncode == 0
    warnings = install(namespace, "--iptables-mode", mode, "--ipv6=false")
    assert set(ours(namespace)) == {title(mode)}
    assert len(warnings) == 4


def test_rules_of_others_in_the_other_backend_stay(
    namespace: Namespace, iptables_mode: str
) -> None:
    """Only what is ours is taken from the backend that is left."""
    mode = iptables_mode
    other = f"iptables-{OTHER[mode]}"
    install(namespace, "--iptables-mode", OTHER[mode])
    for change in ("-N MINE", "-A MINE -j RETURN", "-I OUTPUT -p udp -j MINE"):
        argv = [other, "-t", "nat", *change.split()]
        assert namespace.exec(argv).returncode == 0
    install(namespace, "--iptables-mode", mode)
    dump = namespace.exec([f"{other}-save", "-t", "nat"]).stdout
    rules = [line for line in dump.splitlines() if line.startswith("-A")]
    assert rules == ["-A OUTPUT -p udp -j MINE", "-A MINE -j RETURN"]


@pytest.mark.parametrize(
    ("mode", "other"),
    [("legacy", "nft"), ("nft", "legacy"), ("nftables", "nft"), ("nftables", "legacy")],
)
def test_redirection_of_others_in_the_other_backend_is_pointed_out(
    namespace: Namespace, mode: str, other: str
) -> None:
    """Which backend sees a connection first can't be told: a warning, no error."""
    for rule in ("-p tcp -j REDIRECT --to-ports 9", "-p udp -j REDIRECT --to-ports 9"):
        argv = [f"iptables-{other}", "-t", "nat", "-A", "OUTPUT", *rule.split()]
        assert namespace.exec(argv).returncode == 0
    (warning,) = install(namespace, "--iptables-mode", mode)
    assert f"iptables-{other}" in warning
    assert "-A OUTPUT -p tcp -j REDIRECT --to-ports 9" in warning


def test_auto_stays_with_the_backend_that_holds_ours(
    namespace: Namespace, mode: str
) -> None:
    """Mode auto never moves rules that stand, whatever it would choose afresh."""
    install(namespace, "--iptables-mode", mode)
    before = ours(namespace)
    warnings = install(namespace, "--iptables-mode", "auto")
    assert (warnings, ours(namespace)) == ([], before)


def test_auto_goes_where_others_have_rules(
    namespace: Namespace, iptables_mode: str
) -> None:
    """Without rules of ours, mode auto joins the backend that is in use."""
    command = f"ip6tables-{iptables_mode} -t nat -A POSTROUTING -j MASQUERADE"
    assert namespace.exec(command.split()).returncode == 0
    install(namespace, "--iptables-mode", "auto")
    assert set(ours(namespace)) == frontends(iptables_mode)


def test_auto_takes_nft_where_nothing_is(namespace: Namespace) -> None:
    """In an empty namespace mode auto takes nft, and makes no legacy table."""
    install(namespace, "--iptables-mode", "auto")
    assert namespace.exec(["cat", "/proc/net/ip_tables_names"]).stdout == ""
    assert set(ours(namespace)) == {"iptables-nft", "ip6tables-nft"}


def test_install_through_nft_makes_no_legacy_table(namespace: Namespace) -> None:
    """Looking for leftovers has no side effect."""
    install(namespace, "--iptables-mode", "nft")
    for names in ("ip_tables_names", "ip6_tables_names"):
        assert namespace.exec(["cat", f"/proc/net/{names}"]).stdout == ""


def test_install_through_legacy_makes_no_nft_table(namespace: Namespace) -> None:
    """Looking for leftovers has no side effect there either."""
    install(namespace, "--iptables-mode", "legacy")
    assert namespace.exec(["nft", "list", "tables"]).stdout == ""


def test_after_every_change_of_mode_the_proxy_answers(lab: Lab, version: int) -> None:
    """There and back again: in both directions connections reach the proxy."""
    lab.proxy()
    lab.app(8080)
    lab.world(9090)
    for mode in ("legacy", "nft", "nftables", "legacy", "nftables", "nft"):
        install(lab.pod, "--iptables-mode", mode)
        assert lab.inbound(8080, version=version).who == "proxy"
        assert lab.outbound(WORLD[version], 9090).who == "proxy"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(first, second, id=f"{first} then {second}")
        for first, second in itertools.permutations(
            ("legacy", "nft", "nftables", "auto"), 2
        )
    ],
)
def test_every_change_of_mode_leaves_every_jump_once(
    namespace: Namespace, first: str, second: str
) -> None:
    """Whatever mode follows which, each family has two jumps, in one backend."""
    install(namespace, "--iptables-mode", first)
    install(namespace, "--iptables-mode", second)
    jumps = []
    for name in FRONTENDS:
        dump = namespace.exec([f"{name}-save", "-t", "nat"]).stdout
        jumps.append(dump.count("-j PROXY_INIT_"))
    jumps.append(namespace.exec(NATIVE).stdout.count("jump PROXY_INIT_"))
    assert jumps in ([2, 2, 0, 0, 0], [0, 0, 2, 2, 0], [0, 0, 0, 0, 2])


def test_a_thread_is_told_of_its_own_namespace(namespace: Namespace) -> None:
    """Which tables there are is asked where the thread lives, not its process."""
    other = Namespace("empty")
    try:
        install(namespace, "--iptables-mode", "legacy")
        assert namespace.run(Host().legacy_has_nat, 4) is True
        assert other.run(Host().legacy_has_nat, 4) is False
    finally:
        other.close()
