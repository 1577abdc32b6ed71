"""Cleanup removes our rules wherever they are, and nothing else."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from installed import PROGRAM, sh

from proxyinit.lab import WORLD, Lab, Namespace

ARGUMENTS = ("-p", "4143", "-o", "4140", "-u", "2102")
MODES = ("legacy", "nft")
PREFIXES = ("iptables", "ip6tables")
FRONTENDS = tuple(f"{p}-{m}" for m, p in itertools.product(MODES, PREFIXES))

FOREIGN = """\
*raw
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A PREROUTING -p udp -j NOTRACK
COMMIT
*mangle
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUMA_LIKE - [0:0]
-A POSTROUTING -p tcp -j KUMA_LIKE
-A KUMA_LIKE -p tcp -m tcp --dport 7 -j MARK --set-xmark 0x1/0xffffffff
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUMA_LIKE - [0:0]
:PROXY_INIT_OUTPUT_NOT_OURS - [0:0]
-A PREROUTING -p udp -j KUMA_LIKE
-A OUTPUT -p udp -m comment --comment "proxy-init/not \\"ours\\"" -j KUMA_LIKE
-A POSTROUTING -o eth9 -j MASQUERADE
-A KUMA_LIKE -p udp -m udp --dport 53 -j REDIRECT --to-ports 15053
-A PROXY_INIT_OUTPUT_NOT_OURS -p tcp -m multiport --dports 1:5,9 -j RETURN
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:PROXY_INIT_REDIRECT - [0:0]
-A INPUT -p tcp -m tcp --dport 9 -j PROXY_INIT_REDIRECT
-A PROXY_INIT_REDIRECT -j DROP
COMMIT
"""
"""Others' rules, as each iptables prints them; some look like ours, none is."""
FOREIGN_NATIVE = """\
table inet proxy_init_not_ours {
    set ports { type inet_service; elements = { 53, 5353 }; }
    chain PREROUTING { type nat hook prerouting priority -100; udp dport @ports counter jump PROXY_INIT_REDIRECT
    }
    chain PROXY_INIT_REDIRECT { meta l4proto udp redirect to :15053 comment "proxy-init/no"
    }
}
"""  # noqa: E501  (one line a rule)


def everything(namespace: Namespace) -> str:
    """All tables of all backends and families, without counters and dates."""
    dumps = (namespace.exec([f"{name}-save"]).stdout for name in FRONTENDS)
    text = "".join(f"{n}:\n{d}" for n, d in zip(FRONTENDS, dumps, strict=True))
    native = namespace.exec(["nft", "--stateless", "list", "ruleset", "inet"]).stdout
    return re.sub(r"#.*\n|\[\d+:\d+\]", "", text) + f"nftables:\n{native}"


def ours(namespace: Namespace) -> list[str]:
    """What is in any nat table that belongs to our chains."""
    found = []
    for name in FRONTENDS:
        dump = namespace.exec([f"{name}-save"]).stdout
        nat = dump.partition("*nat")[2].partition("COMMIT")[0]
        pattern = r".*\bPROXY_INIT_(?:REDIRECT|OUTPUT)\b.*"
        found += re.findall(pattern, nat)
    tables = namespace.exec(["nft", "list", "tables", "inet"]).stdout
    return found + re.findall(r"table inet proxy_init\n", tables)


def install(namespace: Namespace, mode: str) -> None:
    done = namespace.exec([PROGRAM, *ARGUMENTS, "--iptables-mode", mode])
    assert done.returncode == 0, done.stderr


def cleanup(namespace: Namespace, *arguments: str) -> str:
    """Run cleanup to success; what it logged."""
    done = namespace.exec([PROGRAM, "cleanup", *arguments])
    assert done.returncode == 0, done.stderr
    return done.stderr


def add_foreign(namespace: Namespace) -> None:
    for name in FRONTENDS:
        done = namespace.exec([f"{name}-restore"], text=FOREIGN)
        assert done.returncode == 0, done.stderr
    done = namespace.exec(["nft", "-f", "-"], text=FOREIGN_NATIVE)
    assert done.returncode == 0, done.stderr


def test_install_and_cleanup_leave_every_table_as_it_was(
    namespace: Namespace, mode: str
) -> None:
    """Others' rules in every table, save, install, cleanup, save: the same bytes."""
    add_foreign(namespace)
    before = everything(namespace)
    install(namespace, mode)
    assert len(ours(namespace)) > 0
    assert everything(namespace) != before
    cleanup(namespace)
    assert everything(namespace) == before


def test_cleanup_of_nothing_creates_nothing(namespace: Namespace) -> None:
    """Exit 0, and neither backend has a table that it did not have before."""
    assert "nothing to remove" in cleanup(namespace)
    for names in ("ip_tables_names", "ip6_tables_names"):
        assert namespace.exec(["cat", f"/proc/net/{names}"]).stdout == ""
    assert namespace.exec(["nft", "list", "tables"]).stdout == ""


def test_cleanup_twice(namespace: Namespace, mode: str) -> None:
    """The second time there is nothing left to remove; that is no error."""
    install(namespace, mode)
    assert "removed" in cleanup(namespace)
    after = everything(namespace)
    assert "nothing to remove" in cleanup(namespace)
    assert everything(namespace) == after


def both_backends(namespace: Namespace) -> None:
    install(namespace, "legacy")
    save = {p: namespace.exec([f"{p}-legacy-save", "-t", "nat"]) for p in PREFIXES}
    for prefix, dump in save.items():
        restored = namespace.exec([f"{prefix}-nft-restore"], text=dump.stdout)
        assert restored.returncode == 0, restored.stderr


def half_in_each_backend(namespace: Namespace) -> None:
    install(namespace, "legacy")
    sh(
        namespace,
        "ip6tables-legacy -t nat -F PROXY_INIT_REDIRECT;"
        "ip6tables-legacy -t nat -D PREROUTING 2;"
        "ip6tables-legacy -t nat -X PROXY_INIT_REDIRECT;"
        "ip6tables-nft -t nat -N PROXY_INIT_REDIRECT;"
        "ip6tables-nft -t nat -A PREROUTING -j PROXY_INIT_REDIRECT",
    )


def several_jumps(namespace: Namespace) -> None:
    install(namespace, "nft")
    for name in ("iptables-nft", "ip6tables-nft"):
        sh(
            namespace,
            f"{name} -t nat -I OUTPUT -j PROXY_INIT_OUTPUT;"
            f"{name} -t nat -A OUTPUT -j PROXY_INIT_OUTPUT;"
            f"{name} -t nat -A OUTPUT -p tcp -m limit --limit 9/hour"
            " -g PROXY_INIT_OUTPUT",
        )


def jumps_of_others(namespace: Namespace) -> None:
    install(namespace, "legacy")
    sh(
        namespace,
        "iptables-legacy -t nat -A KUMA_LIKE -j PROXY_INIT_REDIRECT;"
        "iptables-legacy -t nat -I KUMA_LIKE -p tcp -j PROXY_INIT_REDIRECT;"
        "iptables-legacy -t nat -A PROXY_INIT_OUTPUT -j PROXY_INIT_REDIRECT",
    )


def native_besides(namespace: Namespace) -> None:
    install(namespace, "nftables")
    done = namespace.exec(["nft", "-s", "list", "table", "inet", "proxy_init"])
    both_backends(namespace)
    restored = namespace.exec(["nft", "-f", "-"], text=done.stdout)
    assert restored.returncode == 0, restored.stderr


def native_changed(namespace: Namespace) -> None:
    install(namespace, "nftables")
    sh(
        namespace,
        "nft add chain inet proxy_init MINE;"
        "nft add set inet proxy_init mine '{ type ipv4_addr; }';"
        "nft add rule inet proxy_init OUTPUT jump MINE;"
        "nft add rule inet proxy_init MINE ip daddr @mine drop",
    )


def native_empty(namespace: Namespace) -> None:
    sh(namespace, "nft add table inet proxy_init")


def chain_without_jump(namespace: Namespace) -> None:
    for name in FRONTENDS:
        sh(namespace, f"{name} -t nat -N PROXY_INIT_REDIRECT")
    sh(
        namespace,
        "ip6tables-nft -t nat -A PROXY_INIT_REDIRECT -p tcp -j REDIRECT --to-ports 9",
    )


LEFTOVERS = [
    pytest.param(both_backends, id="both backends, both families"),
    pytest.param(half_in_each_backend, id="half of it in each backend"),
    pytest.param(several_jumps, id="a jump doubled, with conditions, as goto"),
    pytest.param(jumps_of_others, id="jumps from chains that are none of ours"),
    pytest.param(chain_without_jump, id="chains without a jump"),
    pytest.param(native_besides, id="every backend at once"),
    pytest.param(native_changed, id="a native table with what is not ours in it"),
    pytest.param(native_empty, id="an empty native table"),
]


@pytest.mark.parametrize("leave", LEFTOVERS)
def test_cleanup_finds_ours_wherever_it_is(
    namespace: Namespace, leave: Callable[[Namespace], None]
) -> None:
    """Whatever is left of ours, in any backend and family, goes; the rest stays."""
    add_foreign(namespace)
    before = everything(namespace)
    leave(namespace)
    assert len(ours(namespace)) > 0
    cleanup(namespace)
    assert ours(namespace) == []
    assert everything(namespace) == before


def test_connections_go_straight_after_cleanup(
    lab: Lab, mode: str, version: int
) -> None:
    """Before cleanup the proxy answers, afterwards the application and the world."""
    lab.proxy()
    lab.app(8080)
    lab.world(9090)
    install(lab.pod, mode)
    assert lab.inbound(8080, version=version).who == "proxy"
    assert lab.outbound(WORLD[version], 9090).who == "proxy"
    cleanup(lab.pod)
    assert lab.inbound(8080, version=version).who == "app"
    assert lab.outbound(WORLD[version], 9090).who == "world"


def test_simulated_cleanup_prints_and_changes_nothing(
    namespace: Namespace, mode: str
) -> None:
    """What is printed is what a cleanup feeds, and everything stays as it is."""
    install(namespace, mode)
    before = everything(namespace)
    done = namespace.exec([PROGRAM, "cleanup", "--simulate"])
    assert done.returncode == 0
    assert everything(namespace) == before
    if mode == "nftables":
        assert "delete table inet proxy_init\n" in done.stdout
    else:
        for name in (f"iptables-{mode}", f"ip6tables-{mode}"):
            assert f"{name}-restore --noflush" in done.stdout
        assert done.stdout.count("-D PREROUTING ") == 2
        assert done.stdout.count("-X PROXY_INIT_OUTPUT") == 2
    fed = re.findall(r"<<EOF\\n(.*?)EOF", cleanup(namespace))
    assert "".join(fed).replace(r"\n", "\n").replace(r"\"", '"') == done.stdout


def test_simulated_cleanup_of_nothing_creates_nothing(namespace: Namespace) -> None:
    """Nothing is printed where nothing would be removed, and no table appears."""
    done = namespace.exec([PROGRAM, "cleanup", "--simulate"])
    assert (done.returncode, done.stdout) == (0, "")
    assert namespace.exec(["nft", "list", "tables"]).stdout == ""
    assert namespace.exec(["cat", "/proc/net/ip_tables_names"]).stdout == ""


def test_cleanup_goes_on_after_a_failure(namespace: Namespace, tmp_path: Path) -> None:
    """With the legacy lock out of reach, nft is cleaned all the same; exit 1."""
    both_backends(namespace)
    lock = tmp_path / "no such folder" / "lock"
    argv = ["env", f"XTABLES_LOCKFILE={lock}", PROGRAM, "cleanup"]
    done = namespace.exec(argv)
    assert done.returncode == 1
    assert str(lock) in done.stderr
    left = everything(namespace)
    assert "PROXY_INIT" in left.partition("iptables-nft:")[0]
    assert "PROXY_INIT" not in left.partition("iptables-nft:")[2]
    assert cleanup(namespace).count("removed") == 2
    assert ours(namespace) == []
