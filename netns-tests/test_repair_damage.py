"""Damaged rules of ours are put right; a second run finds nothing to do."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from installed import PROGRAM, sh

from proxyinit.backend import ALL_VERSIONS, program_name
from proxyinit.config import RedirectConfig
from proxyinit.iptables_save import parse
from proxyinit.lab import Namespace
from proxyinit.plan import plan
from proxyinit.reconcile import differences
from proxyinit.rules import PortRange

ARGUMENTS = (
    *("-p", "4143", "-o", "4140", "-u", "2102"),
    *("--inbound-ports-to-ignore", "4190,4191,4567-4568"),
    *("--outbound-ports-to-ignore", "4567"),
)
CONFIG = RedirectConfig(
    4143,
    4140,
    (2102,),
    inbound_ports_to_ignore=(
        PortRange(4190, 4190),
        PortRange(4191, 4191),
        PortRange(4567, 4568),
    ),
    outbound_ports_to_ignore=(PortRange(4567, 4567),),
)
IN = '-m comment --comment "proxy-init/install-proxy-init-prerouting"'
OUT = '-m comment --comment "proxy-init/install-proxy-init-output"'

FOREIGN = """\
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-LIKE - [0:0]
:PROXY_INIT_OUTPUT_NOT_OURS - [0:0]
-A PREROUTING -p udp -j KUBE-LIKE
-A PREROUTING -i eth9 -p tcp -m comment --comment "\\"-j PROXY_INIT_OUTPUT\\"" -j LOG
-A OUTPUT -p udp -m udp --dport 53 -j ACCEPT
-A POSTROUTING -o eth9 -j MASQUERADE
-A KUBE-LIKE -p udp -j RETURN
-A PROXY_INIT_OUTPUT_NOT_OURS -p udp -j ACCEPT
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:PROXY_INIT_OUTPUT - [0:0]
-A OUTPUT -p tcp -m tcp --dport 9 -j PROXY_INIT_OUTPUT
-A PROXY_INIT_OUTPUT -j REJECT
COMMIT
*mangle
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A POSTROUTING -p tcp -m tcp --dport 7 -j MARK --set-xmark 0x1/0xffffffff
COMMIT
*raw
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A PREROUTING -p udp -j NOTRACK
COMMIT
"""
"""Others' rules in every table; some look like ours, none is."""


@pytest.fixture(scope="module")
def mode(iptables_mode: str) -> str:
    """The backends of iptables, which this module is about."""
    return iptables_mode


def saved(namespace: Namespace, mode: str) -> str:
    """All tables of both families, without counters, dates and our part of nat."""
    text = ""
    for version in ALL_VERSIONS:
        dump = namespace.exec([program_name(mode, version, "-save")]).stdout
        for table in dump.split("\n*")[1:]:
            lines = re.sub(r"\[\d+:\d+\]", "[0:0]", table).splitlines()
            if table.startswith("nat\n"):
                lines = [line for line in lines if not belongs_to_us(line)]
            kept = [line for line in lines if not line.startswith("#")]
            text += "\n".join((f"IPv{version}", *sorted_chains(kept), ""))
    return text


def dumps(namespace: Namespace, mode: str) -> list[str]:
    """All tables of both families, line by line, ours included."""
    text = ""
    for version in ALL_VERSIONS:
        text += namespace.exec([program_name(mode, version, "-save")]).stdout
    lines = re.sub(r"\[\d+:\d+\]", "", text).splitlines()
    return [line for line in lines if not line.startswith("#")]


def belongs_to_us(line: str) -> bool:
    chain = line.lstrip(":").removeprefix("-A ").split(" ")[0]
    target = re.search(r"-[jg] (PROXY_INIT_\w+)$", line)
    ours = ("PROXY_INIT_REDIRECT", "PROXY_INIT_OUTPUT")
    return chain in ours or bool(target and target[1] in ours)


def sorted_chains(lines: list[str]) -> list[str]:
    """Chain declarations in one order: nft lists a chain made anew last."""
    chains = sorted(line for line in lines if line.startswith(":"))
    return chains + [line for line in lines if not line.startswith(":")]


def install(namespace: Namespace, mode: str) -> str:
    done = namespace.exec([PROGRAM, *ARGUMENTS, "--iptables-mode", mode])
    assert done.returncode == 0, done.stderr
    return done.stderr


def assert_in_place(namespace: Namespace, mode: str) -> None:
    for version in ALL_VERSIONS:
        save = program_name(mode, version, "-save")
        live = parse(namespace.exec([save, "-t", "nat"]).stdout, version)
        assert differences(plan(CONFIG, version), live) == []


def add_foreign(namespace: Namespace, mode: str) -> None:
    for version in ALL_VERSIONS:
        restore = program_name(mode, version, "-restore")
        done = namespace.exec([restore], text=FOREIGN)
        assert done.returncode == 0, done.stderr


DAMAGES = [
    pytest.param("-D PROXY_INIT_OUTPUT 2", id="a rule is missing"),
    pytest.param("-A PROXY_INIT_OUTPUT -j RETURN", id="a rule too many at the end"),
    pytest.param("-I PROXY_INIT_REDIRECT -j ACCEPT", id="a rule too many in front"),
    pytest.param(
        "-D PROXY_INIT_OUTPUT 1; "
        "-A PROXY_INIT_OUTPUT -m owner --uid-owner 2102 "
        '-m comment --comment "proxy-init/ignore-proxy-user-id" -j RETURN',
        id="rules in another order",
    ),
    pytest.param(
        "-R PROXY_INIT_REDIRECT 2 -p tcp -m comment --comment "
        '"proxy-init/redirect-all-incoming-to-proxy-port" '
        "-j REDIRECT --to-ports 4144",
        id="a wrong port behind the right comment",
    ),
    pytest.param(
        "-R PROXY_INIT_OUTPUT 1 -m owner --uid-owner 2103 "
        '-m comment --comment "proxy-init/ignore-proxy-user-id" -j RETURN',
        id="a wrong user",
    ),
    pytest.param(
        "-R PROXY_INIT_OUTPUT 2 -o lo -j RETURN", id="a rule without its comment"
    ),
    pytest.param(
        "-I PROXY_INIT_REDIRECT -j KUBE-LIKE", id="a jump to a chain of others"
    ),
    pytest.param(
        "-I PROXY_INIT_OUTPUT -j PROXY_INIT_REDIRECT",
        id="one of our chains leads to the other",
    ),
    pytest.param("-F PROXY_INIT_REDIRECT", id="a chain is flushed"),
    pytest.param(
        f"-D OUTPUT {OUT} -j PROXY_INIT_OUTPUT; "
        "-F PROXY_INIT_OUTPUT; -X PROXY_INIT_OUTPUT",
        id="a chain is gone",
    ),
    pytest.param(f"-D PREROUTING {IN} -j PROXY_INIT_REDIRECT", id="a jump is missing"),
    pytest.param(
        f"-A PREROUTING {IN} -j PROXY_INIT_REDIRECT; "
        f"-I PREROUTING {IN} -j PROXY_INIT_REDIRECT",
        id="a jump stands there three times",
    ),
    pytest.param(
        f"-D PREROUTING {IN} -j PROXY_INIT_REDIRECT; "
        f"-I OUTPUT {IN} -j PROXY_INIT_REDIRECT",
        id="a jump in the wrong builtin chain",
    ),
    pytest.param(
        "-A KUBE-LIKE -p tcp -j PROXY_INIT_REDIRECT; "
        "-A PROXY_INIT_OUTPUT_NOT_OURS -g PROXY_INIT_OUTPUT",
        id="jumps from chains that are none of ours",
    ),
    pytest.param(
        f"-D PREROUTING {IN} -j PROXY_INIT_REDIRECT; "
        "-A PREROUTING -m comment --comment mine -j PROXY_INIT_REDIRECT",
        id="a jump with another comment",
    ),
    pytest.param(
        f"-D PREROUTING {IN} -j PROXY_INIT_REDIRECT; "
        f"-A PREROUTING -i eth9 {IN} -j PROXY_INIT_REDIRECT",
        id="a jump for one interface only",
    ),
    pytest.param(
        f"-D OUTPUT {OUT} -j PROXY_INIT_OUTPUT; "
        f"-A OUTPUT ! -o lo -p tcp -m tcp ! --dport 1:5 {OUT} -g PROXY_INIT_OUTPUT",
        id="a jump with conditions, as goto",
    ),
    pytest.param(
        "-I OUTPUT -m limit --limit 3/min -j PROXY_INIT_OUTPUT; "
        "-I OUTPUT -m statistic --mode random --probability 0.3 -j PROXY_INIT_OUTPUT; "
        "-I OUTPUT -m string --algo bm --hex-string '|00ff|a b' -j PROXY_INIT_OUTPUT; "
        '-I OUTPUT -m comment --comment "a \\"b\\" -j ACCEPT" -j PROXY_INIT_OUTPUT',
        id="jumps with matches that are hard to spell",
    ),
    pytest.param(
        "-I OUTPUT -m comment --comment \"$(printf 'a\\377b')\" -j PROXY_INIT_OUTPUT",
        id="a jump whose comment is no UTF-8",
    ),
    pytest.param(
        "-A OUTPUT -p tcp -j PROXY_INIT_OUTPUT; "
        "-I OUTPUT -m recent --name seen --set -j PROXY_INIT_OUTPUT; "
        "-I OUTPUT 3 -m connlimit --connlimit-above 3 -j PROXY_INIT_OUTPUT; "
        "-I OUTPUT -p tcp -j PROXY_INIT_OUTPUT",
        id="jumps that iptables does not find by their own text",
    ),
    pytest.param(
        "-I OUTPUT -m comment --comment 'a\n-F OUTPUT\n#' -j PROXY_INIT_OUTPUT",
        id="a jump whose comment spells a rule on a line of its own",
    ),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_repaired_and_others_rules_stay(
    namespace: Namespace, mode: str, damage: str
) -> None:
    """One run puts our rules right in both families; not a byte of others changes."""
    add_foreign(namespace, mode)
    before = saved(namespace, mode)
    install(namespace, mode)
    assert saved(namespace, mode) == before
    for version in ALL_VERSIONS:
        for change in damage.split("; "):
            sh(namespace, f"{program_name(mode, version)} -t nat {change}")
    install(namespace, mode)
    assert_in_place(namespace, mode)
    assert saved(namespace, mode) == before


def test_damage_in_one_family_leaves_the_other_alone(
    namespace: Namespace, mode: str
) -> None:
    """A repair writes only to the table that needs it."""
    install(namespace, mode)
    sh(namespace, f"ip6tables-{mode} -t nat -F PROXY_INIT_OUTPUT")
    log = install(namespace, mode)
    assert_in_place(namespace, mode)
    assert f"ip6tables-{mode}-restore" in log
    assert f"iptables-{mode}-restore" not in log.replace("ip6tables", "")


def interfere(tmp_path: Path, mode: str, script: str) -> list[str]:
    """A run whose restore program has somebody else change the rules around it."""
    name = f"iptables-{mode}-restore"
    text = f'#!/bin/sh\nfeed() {{ {shutil.which(name)} "$@"; }}\n{script}\n'
    (tmp_path / name).write_text(text)
    (tmp_path / name).chmod(0o755)
    return [
        *("env", f"PATH={tmp_path}:{os.environ['PATH']}"),
        *(PROGRAM, *ARGUMENTS, "--iptables-mode", mode),
    ]


def test_change_between_reading_and_writing(
    namespace: Namespace, mode: str, tmp_path: Path
) -> None:
    """A jump to be deleted is gone by then: read again, written again, in place."""
    install(namespace, mode)
    sh(namespace, f"iptables-{mode} -t nat -I OUTPUT -j PROXY_INIT_OUTPUT")
    gone = f"iptables-{mode} -t nat -D OUTPUT -j PROXY_INIT_OUTPUT 2> /dev/null"
    argv = interfere(tmp_path, mode, f'{gone}\nfeed "$@"')
    done = namespace.exec(argv)
    assert done.returncode == 0, done.stderr
    assert_in_place(namespace, mode)


def test_somebody_who_always_changes_it_back(
    namespace: Namespace, mode: str, tmp_path: Path
) -> None:
    """After some tries the run gives up, with the difference, and undoes its part."""
    before = dumps(namespace, mode)
    flush = f"iptables-{mode} -t nat -F PROXY_INIT_OUTPUT"
    argv = interfere(tmp_path, mode, f'feed "$@" && {flush} 2> /dev/null || :')
    done = namespace.exec(argv)
    assert done.returncode == 1
    error = done.stderr.splitlines()[-1]
    assert "another program may be changing the same rules" in error
    assert "IPv4: rule 1 of PROXY_INIT_OUTPUT" in error
    ours = [line for line in dumps(namespace, mode) if "PROXY_INIT" in line]
    assert ours == [line for line in before if "PROXY_INIT" in line]


def test_renamed_chain_is_replaced_and_pointed_out(
    namespace: Namespace, mode: str
) -> None:
    """A renamed chain is not ours any more: ours comes back, the other is named."""
    install(namespace, mode)
    sh(namespace, f"iptables-{mode} -t nat -E PROXY_INIT_OUTPUT PROXY_INIT_OUTPUT_OLD")
    before = saved(namespace, mode)
    log = install(namespace, mode)
    assert_in_place(namespace, mode)
    assert saved(namespace, mode) == before
    warnings = [line for line in log.splitlines() if "level=warning" in line]
    assert len(warnings) == 1
    assert "rule 1 of OUTPUT" in warnings[0]
    assert "PROXY_INIT_OUTPUT_OLD" in warnings[0]


# === nothing to do ===


def counters(namespace: Namespace, mode: str) -> list[str]:
    """Our rules with their packet counters."""
    dump = namespace.exec([f"iptables-{mode}-save", "-c", "-t", "nat"]).stdout
    return [line for line in dump.splitlines() if "PROXY_INIT" in line]


def test_second_run_keeps_counters(namespace: Namespace, mode: str) -> None:
    """Counters of our rules survive a second run, so it did not write them anew."""
    install(namespace, mode)
    namespace.exec(["timeout", "2", "bash", "-c", "echo > /dev/tcp/127.0.0.1/9"])
    before = counters(namespace, mode)
    assert any(not line.startswith("[0:0]") for line in before if line[0] == "[")
    log = install(namespace, mode)
    assert counters(namespace, mode) == before
    assert log.count("already in place") == len(ALL_VERSIONS)


_WRITES = {
    "legacy": ("setsockopt", "SO_SET_REPLACE"),
    "nft": ("sendmsg", "NFNL_MSG_BATCH_BEGIN"),
}
"""The system call of a commit, and what strace shows of it."""


def traced_writes(namespace: Namespace, mode: str, trace: Path) -> int:
    """How often a run writes to the kernel's tables, by its system calls."""
    call, commit = _WRITES[mode]
    argv = ["strace", "-f", "-qq", "-e", f"trace={call}", "-o", str(trace)]
    argv += [PROGRAM, *ARGUMENTS, "--iptables-mode", mode]
    assert namespace.exec(argv).returncode == 0
    return trace.read_text().count(commit)


def test_second_run_writes_nothing(
    namespace: Namespace, mode: str, tmp_path: Path
) -> None:
    """System calls show it: the first run writes to the kernel, the second never."""
    assert traced_writes(namespace, mode, tmp_path / "first") > 0
    assert traced_writes(namespace, mode, tmp_path / "second") == 0
