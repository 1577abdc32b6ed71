"""The native table, damaged or spoiled meanwhile: one run puts it right, atomically."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from installed import PROGRAM, sh

from proxyinit.config import RedirectConfig, parse_subnet
from proxyinit.lab import WORLD, Lab, Namespace, load
from proxyinit.lab.tables import dump, live, planned
from proxyinit.reconcile import differences
from proxyinit.rules import INET, PortRange

MODE = ("--iptables-mode", "nftables")
ARGUMENTS = (
    *("-p", "4143", "-o", "4140", "-u", "2102"),
    *("--inbound-ports-to-ignore", "4190,4191,4567-4568"),
    *("--outbound-subnets-to-ignore", "198.51.100.0/24,2001:db8:1::/48"),
)
CONFIG = RedirectConfig(
    4143,
    4140,
    (2102,),
    inbound_ports_to_ignore=(PortRange(4190, 4191), PortRange(4567, 4568)),
    outbound_subnets_to_ignore=(
        parse_subnet("198.51.100.0/24"),
        parse_subnet("2001:db8:1::/48"),
    ),
)
OURS = "inet proxy_init"
JUMP = "jump PROXY_INIT_REDIRECT"

FOREIGN = """\
table inet proxy_init_too {
	set mine {
		type ipv4_addr
		flags interval
		elements = { 10.0.0.0/8 }
	}

	chain PREROUTING {
		type nat hook prerouting priority dstnat; policy accept;
		udp dport 53 counter packets 0 bytes 0 redirect to :5353
	}
}
table ip proxy_init {
	chain PROXY_INIT_OUTPUT {
		ip saddr 10.0.0.1 drop
	}
}
"""


def install(namespace: Namespace, *through: str) -> str:
    done = namespace.exec([*through, PROGRAM, *ARGUMENTS, *MODE])
    assert done.returncode == 0, done.stderr
    return done.stderr


def assert_in_place(namespace: Namespace) -> None:
    assert differences(planned(CONFIG, INET), live(namespace, "nftables", INET)) == []


def others(namespace: Namespace) -> str:
    """Every table but ours."""
    looks = ("inet proxy_init_too", "ip proxy_init")
    argv = (["nft", "list", "table", *look.split()] for look in looks)
    return "".join(namespace.exec(look).stdout for look in argv)


DAMAGES = [
    pytest.param("flush chain {ours} PROXY_INIT_REDIRECT", id="a chain is flushed"),
    pytest.param("flush table {ours}", id="all chains are flushed"),
    pytest.param("delete table {ours} | add table {ours}", id="an empty table"),
    pytest.param("insert rule {ours} PREROUTING accept", id="accepted in front"),
    pytest.param(
        "add rule {ours} PREROUTING {jump}", id="a jump stands there twice"
    ),
    pytest.param("flush chain {ours} OUTPUT", id="a jump is missing"),
    pytest.param(
        'flush chain {ours} PREROUTING | add rule {ours} PREROUTING iifname "eth9" '
        '{jump} comment "proxy-init/install-proxy-init-prerouting"',
        id="a jump for one interface",
    ),
    pytest.param(
        "flush chain {ours} PREROUTING | add rule {ours} PREROUTING goto "
        "PROXY_INIT_REDIRECT",
        id="a goto",
    ),
    pytest.param(
        "add rule {ours} PREROUTING jump PROXY_INIT_OUTPUT", id="to the wrong chain"
    ),
    pytest.param("insert rule {ours} PROXY_INIT_OUTPUT return", id="a rule in front"),
    pytest.param("add rule {ours} PROXY_INIT_OUTPUT drop", id="a rule behind"),
    pytest.param(
        "add chain {ours} MINE | insert rule {ours} PROXY_INIT_OUTPUT jump MINE",
        id="a foreign chain that is jumped to",
    ),
    pytest.param(
        "add set {ours} s {{ type inet_service; }} | "
        "insert rule {ours} PROXY_INIT_REDIRECT tcp dport @s return",
        id="a foreign set, in use",
    ),
    pytest.param(
        "add map {ours} m {{ type inet_service : verdict; }} | "
        "insert rule {ours} PROXY_INIT_REDIRECT tcp dport vmap @m",
        id="a foreign map, in use",
    ),
    pytest.param("add counter {ours} c", id="a foreign object"),
    pytest.param(
        "add chain {ours} early {{ type nat hook output priority -150; }} | "
        "add rule {ours} early meta l4proto tcp redirect to :9",
        id="one more base chain",
    ),
    pytest.param(
        "delete table {ours} | add table {ours} | add chain {ours} PREROUTING "
        "{{ type nat hook prerouting priority -90; }}",
        id="another priority",
    ),
    pytest.param(
        "delete table {ours} | add table {ours} | add chain {ours} PREROUTING "
        "{{ type nat hook output priority -100; }}",
        id="another hook",
    ),
    pytest.param(
        "delete table {ours} | add table {ours} | add chain {ours} PREROUTING "
        "{{ type filter hook prerouting priority -100; }}",
        id="another type",
    ),
    pytest.param(
        "delete table {ours} | add table {ours} | add chain {ours} PREROUTING",
        id="no base chain",
    ),
    pytest.param(
        "add chain {ours} OUTPUT {{ policy drop; }}", id="another policy"
    ),
    pytest.param("add table {ours} {{ flags dormant; }}", id="put to sleep"),
    pytest.param("rename chain {ours} PROXY_INIT_OUTPUT OLD", id="a renamed chain"),
    pytest.param(
        "insert rule {ours} OUTPUT ct state established,related "
        'log prefix "}} chain {{ " counter accept comment "{jump}"',
        id="words that are hard to read",
    ),
    pytest.param(
        "insert rule {ours} PROXY_INIT_REDIRECT ip saddr . tcp dport "
        "{{ 10.0.0.1 . 80, 10.0.0.2 . 81 }} return",
        id="a concatenation",
    ),
    pytest.param(
        "insert rule {ours} PREROUTING jump {{ tcp dport 80 accept; }}",
        id="a chain without a name",
    ),
]  # fmt: skip


def spoil(namespace: Namespace, damage: str) -> None:
    """Change our table as somebody else might."""
    script = damage.format(ours=OURS, jump=JUMP).replace(" | ", "\n")
    done = namespace.exec(["nft", "-f", "-"], text=f"{script}\n")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_repaired_and_others_tables_stay(
    namespace: Namespace, damage: str
) -> None:
    """One run puts our table right; not a byte of others' changes."""
    assert namespace.exec(["nft", "-f", "-"], text=FOREIGN).returncode == 0
    before = others(namespace)
    install(namespace)
    spoil(namespace, damage)
    assert differences(planned(CONFIG, INET), live(namespace, "nftables", INET))

    install(namespace)

    assert_in_place(namespace)
    assert "nothing written" in install(namespace)
    assert others(namespace) == before


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_was_there_is_put_back_when_the_run_fails(
    namespace: Namespace, damage: str
) -> None:
    """Whatever stood in our table, a run that fails late leaves the same there."""
    install(namespace)
    spoil(namespace, damage)
    before = live(namespace, "nftables", INET)
    script = 'mount -o bind,ro /proc/sys /proc/sys && exec "$@"'
    late = ["unshare", "--mount", "sh", "-c", script, "sh"]
    done = namespace.exec([*late, *refusing_the_sysctl(), *ARGUMENTS, *MODE])

    assert done.returncode == 1, done.stderr
    assert "put back what was there" in done.stderr
    assert live(namespace, "nftables", INET) == before


def refusing_the_sysctl() -> list[str]:
    """proxy-init with a setting that fails only behind the install."""
    code = (
        "import sys; from proxyinit.host import Host; "
        "Host.check_sysctl = lambda self: None; "
        "from proxyinit.entry import main; sys.exit(main(sys.argv[1:]))"
    )
    return [sys.executable, "-c", code, "--timeout-close-wait-secs", "9"]


def interfere(tmp_path: Path, script: str) -> list[str]:
    """Through an nft around whose feeding somebody else changes our table."""
    nft = shutil.which("nft")
    text = f'#!/bin/sh\nnft() {{ {nft} "$@"; }}\n[ "$1" = -f ] || exec {nft} "$@"\n'
    (tmp_path / "nft").write_text(text + script)
    (tmp_path / "nft").chmod(0o755)
    return ["env", f"PATH={tmp_path}:{os.environ['PATH']}"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("delete table inet proxy_init", id="it is gone by then"),
        pytest.param("add chain inet proxy_init MINE", id="it has got a chain more"),
        pytest.param("add rule inet proxy_init OUTPUT drop", id="and a rule more"),
    ],
)
def test_change_between_reading_and_writing(
    namespace: Namespace, tmp_path: Path, change: str
) -> None:
    """Written, read back, and written again where that is needed: in place."""
    install(namespace)
    sh(namespace, f"nft flush chain {OURS} PROXY_INIT_OUTPUT")
    install(namespace, *interfere(tmp_path, f'nft {change}\nnft "$@"\n'))
    assert_in_place(namespace)


def test_somebody_who_always_changes_it_back(
    namespace: Namespace, tmp_path: Path
) -> None:
    """After some tries the run gives up, with the difference, and undoes its part."""
    spoil = f'nft "$@"; nft flush chain {OURS} OUTPUT 2> /dev/null || :\n'
    argv = [*interfere(tmp_path, spoil), PROGRAM, *ARGUMENTS, *MODE]
    done = namespace.exec(argv)
    assert done.returncode == 1
    error = done.stderr.splitlines()[-1]
    assert "another program may be changing the same rules" in error
    assert "inet: rule 1 of OUTPUT: expected" in error
    assert dump(namespace, "nftables", INET) == ""


def test_program_that_does_nothing_is_found_out(
    namespace: Namespace, tmp_path: Path
) -> None:
    """The rules are read back: a script that is only said to be taken is an error."""
    argv = [*interfere(tmp_path, "cat > /dev/null\n"), PROGRAM, *ARGUMENTS, *MODE]
    done = namespace.exec(argv)
    assert done.returncode == 1
    assert "inet: chain PREROUTING is missing" in done.stderr.splitlines()[-1]


# === nothing to do ===


def test_second_run_keeps_counters(namespace: Namespace) -> None:
    """Counters of our rules survive a second run, so it did not write them anew."""
    install(namespace)
    namespace.exec(["timeout", "2", "bash", "-c", "echo > /dev/tcp/127.0.0.1/9"])
    before = dump(namespace, "nftables", INET)
    assert "packets 1" in before
    assert install(namespace).count("already in place") == 1
    assert dump(namespace, "nftables", INET) == before


def test_second_run_writes_nothing(namespace: Namespace, tmp_path: Path) -> None:
    """System calls show it: the first run writes to the kernel, the second never."""
    counts = []
    for number in range(2):
        trace = tmp_path / f"{number}"
        argv = ["strace", "-f", "-qq", "-e", "trace=sendmsg", "-o", str(trace)]
        install(namespace, *argv)
        counts.append(trace.read_text().count("NFNL_MSG_BATCH_BEGIN"))
    assert counts[0] == 1
    assert counts[1] == 0


# === in the kernel's own order ===


def test_long_lists_change_under_load_and_nothing_slips(lab: Lab) -> None:
    """Sets of hundreds of members are swapped with the rules that look into them.

    The connections' port and address are never among them, so each must be
    redirected whatever moment it falls into; and all are answered.
    """
    lab.proxy()
    lab.app(8080)
    base = ("-p", "4143", "-o", "4140", "-u", "2102")

    def lists(start: int) -> tuple[str, ...]:
        ports = ",".join(f"{n}-{n + 5}" for n in range(start, start + 5000, 10))
        nets = ",".join(f"172.16.{n}.0/{25 + start % 3}" for n in range(250))
        six = ",".join(f"fd01:{n:x}::/{48 + start % 3}" for n in range(1, 250))
        ignored = ("--inbound-ports-to-ignore", ports)
        return (*base, *ignored, "--inbound-subnets-to-ignore", f"{nets},{six}")

    first, second = lists(20000), lists(30001)
    done = lab.pod.exec([PROGRAM, *first, *MODE])
    assert done.returncode == 0, done.stderr
    targets = [(address, 8080) for address in ("10.1.0.2", "fd00:1::2")]
    with load(lab.client, targets) as seen:
        for number in range(10):
            chosen = second if number % 2 == 0 else first
            done = lab.pod.exec([PROGRAM, *chosen, *MODE])
            assert done.returncode == 0, done.stderr
    assert seen.errors == []
    assert set(seen.answers) == {"proxy"}
    assert seen.total > 300


def test_an_accept_of_another_table_does_not_stop_ours(lab: Lab, version: int) -> None:
    """In nftables every table's nat chain is asked, so an accept is no obstacle."""
    lab.proxy()
    lab.app(8080)
    lab.world(9090)
    for hook in ("prerouting", "output"):
        chain = f"{{ type nat hook {hook} priority -150; policy accept; }}"
        sh(
            lab.pod,
            f"nft add table inet first; nft add chain inet first {hook} '{chain}';"
            f"nft add rule inet first {hook} counter accept",
        )
    log = install(lab.pod)
    assert "level=warning" not in log
    assert lab.inbound(8080, version=version).who == "proxy"
    assert lab.outbound(WORLD[version], 9090).who == "proxy"


def test_a_table_that_takes_everything_first_is_refused(lab: Lab, version: int) -> None:
    """With such a table in front no connection would reach the proxy, and none does."""
    lab.proxy()
    lab.app(8080)
    lab.stand_in(lab.pod, "other", [15006], uid=1337)
    install(lab.pod)
    chain = "{ type nat hook prerouting priority -101; policy accept; }"
    sh(
        lab.pod,
        f"nft add table inet istio; nft add chain inet istio in '{chain}';"
        "nft add rule inet istio in meta l4proto tcp redirect to :15006",
    )
    assert lab.inbound(8080, version=version).who == "other"
    done = lab.pod.exec([PROGRAM, *ARGUMENTS, *MODE])
    assert done.returncode == 1
    assert "table inet istio holds 'in: meta l4proto tcp" in done.stderr
    sh(lab.pod, "nft delete table inet istio")
    install(lab.pod)
    assert lab.inbound(8080, version=version).who == "proxy"


def test_a_redirection_of_another_table_is_pointed_out(lab: Lab, version: int) -> None:
    """One that is asked before ours takes the connection, and the warning said so."""
    lab.proxy()
    lab.app(8080)
    lab.stand_in(lab.pod, "other", [15006], uid=1337)
    chain = "{ type nat hook prerouting priority -150; policy accept; }"
    sh(
        lab.pod,
        f"nft add table inet istio; nft add chain inet istio in '{chain}';"
        "nft add rule inet istio in tcp dport 8080 redirect to :15006",
    )
    log = install(lab.pod)
    (warning,) = [line for line in log.splitlines() if "level=warning" in line]
    assert "nftables: table inet istio holds 'in: tcp dport 8080" in warning
    assert lab.inbound(8080, version=version).who == "other"
    assert lab.inbound(8081, version=version).who == "proxy"
