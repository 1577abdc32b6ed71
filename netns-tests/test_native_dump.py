"""What nft itself says of the native table: the witness of writer and reader."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from installed import PROGRAM

from proxyinit.config import RedirectConfig, parse_ports, parse_subnet
from proxyinit.lab import Namespace
from proxyinit.nft_list import parse, parse_tables
from proxyinit.nft_script import render
from proxyinit.plan import plan_inet
from proxyinit.rules import Extension

MODE = ("--iptables-mode", "nftables")
ARGUMENTS = (
    *("-p", "4143", "-o", "4140", "-u", "2102,0", "-g", "7"),
    *("--inbound-ports-to-ignore", "22,80,81,4190-4191,60000-65535"),
    *("--outbound-ports-to-ignore", "25"),
    *("--subnets-to-ignore", "1.0.0.0/8,2.0.0.0/8,fe00::/7,::ffff:1.2.3.4/128"),
    *("--outbound-subnets-to-ignore", "10.0.0.1/32,::/0"),
    *("-r", "80,443,444"),
)
CONFIG = RedirectConfig(
    4143,
    4140,
    (2102, 0),
    (7,),
    (80, 443, 444),
    tuple(map(parse_ports, ("22", "80", "81", "4190-4191", "60000-65535"))),
    (parse_ports("25"),),
    tuple(
        map(
            parse_subnet,
            ("1.0.0.0/8", "2.0.0.0/8", "fe00::/7", "::ffff:1.2.3.4/128"),
        )
    ),
    (parse_subnet("10.0.0.1/32"), parse_subnet("::/0")),
)


@pytest.fixture(scope="module")
def place() -> Iterator[Namespace]:
    """One namespace for many examples: each replaces what the last one left."""
    made = Namespace("dump")
    yield made
    made.close()


def install(namespace: Namespace, *through: str) -> str:
    done = namespace.exec([*through, PROGRAM, *ARGUMENTS, *MODE])
    assert done.returncode == 0, done.stderr
    return done.stderr


def listed(namespace: Namespace, *options: str) -> str:
    done = namespace.exec(["nft", *options, "list", "ruleset"])
    assert done.returncode == 0, done.stderr
    return done.stdout


STYLES = [
    *((), ("-n",), ("-nn",), ("-nnn",), ("-a",), ("-s",), ("-y",), ("-p",), ("-u",)),
    *(("-t",), ("-n", "-a", "-s", "-u"), ("-N",), ("-S",)),
]
NAMED = 3
"""So many rules, of either style, have what may be shown by name: ports or owners."""


@pytest.mark.parametrize("options", STYLES, ids=" ".join)
def test_every_way_to_list_it_reads_the_same(
    namespace: Namespace, options: tuple[str, ...]
) -> None:
    """Names or numbers, with handles, without counters: it is what was planned.

    Ports and users by name the model does not know: those rules are kept word for
    word, and all others are as planned.
    """
    install(namespace)
    found = parse(listed(namespace, *options))
    wanted = plan_inet(CONFIG, ipv6=True)
    if not {"-S", "-u"} & set(options):
        assert found == wanted
        return
    unread = 0
    for chain in wanted.chains:
        for planned, read in zip(chain.rules, found.rules(chain.name), strict=True):
            kept = any(isinstance(match, Extension) for match in read.matches)
            assert kept or read == planned
            unread += kept
    assert unread <= NAMED


def test_what_nft_lists_is_what_we_write(namespace: Namespace) -> None:
    """Character by character, but for counts and for how nft joins neighbours."""
    plain = RedirectConfig(4143, 4140, (2102,), inbound_subnets_to_ignore=())
    done = namespace.exec([PROGRAM, "-p", "4143", "-o", "4140", "-u", "2102", *MODE])
    assert done.returncode == 0, done.stderr
    text = re.sub(r" packets \d+ bytes \d+", "", listed(namespace))
    text = text.replace("priority dstnat;", "priority -100;")
    assert text == render(plan_inet(plain, ipv6=True))


def test_a_check_by_nft_finds_nothing_wrong(namespace: Namespace) -> None:
    """``nft -c -f`` takes what a simulation prints, and nothing is changed."""
    argv = [PROGRAM, *ARGUMENTS, *MODE, "--simulate"]
    script = namespace.exec(argv).stdout
    done = namespace.exec(["nft", "-c", "-f", "-"], text=script)
    assert (done.returncode, done.stderr) == (0, "")
    assert listed(namespace) == ""


def test_no_file_of_names_is_needed(namespace: Namespace) -> None:
    """In an image without /etc/protocols, /etc/services and users it works the same."""
    hide = 'mount -t tmpfs none /etc && exec "$@"'
    through = ("unshare", "--mount", "sh", "-c", hide, "sh")
    install(namespace, *through)
    assert "nothing written" in install(namespace, *through)
    assert parse(listed(namespace)) == plan_inet(CONFIG, ipv6=True)


# === others' rules: what is read can be written again ===

MATCHES = [
    *('iifname "eth0"', 'oifname "veth*"', "meta l4proto tcp", "meta l4proto udp"),
    *("ip saddr 10.0.0.0/8", "ip daddr != { 10.0.0.1, 10.1.0.0/16 }", "tcp dport 80"),
    *("tcp dport { 80, 443, 8080-8090 }", "tcp dport != 22", "meta nfproto ipv6"),
    *("ip6 daddr { ::1, fd00::/8, 2001:db8::/33 }", "ip6 saddr fe80::/10"),
    *("meta skuid 1337", "meta skgid != 0", "meta mark 0x00000003", "meta skuid 5-9"),
    *("ct state established,related", "ct direction original", "udp dport 53"),
    *("ip saddr 10.0.0.1-10.0.0.9", "ip dscp cs1", "limit rate 5/second"),
    *("fib daddr type local", "ct status dnat", 'log prefix "a { b " level debug'),
    *("tcp dport @ports", "ip saddr . tcp dport { 10.0.0.1 . 80, 10.0.0.2 . 81 }"),
    *("tcp flags & (fin | syn) == syn", "meta mark set 0x00000001", "ip protocol tcp"),
]
VERDICTS = [
    *("", "accept", "drop", "return", "jump OTHER", "goto OTHER", "masquerade"),
    *("redirect", "redirect to :4143", "redirect to :15001 random", "queue num 3"),
    *("dnat ip to 10.0.0.1:80", "dnat ip6 to [fd00::1]:80", "dnat ip to 10.0.0.7"),
    *("tcp dport vmap { 80 : accept, 90-99 : jump OTHER }", "snat ip to 10.0.0.3"),
]
lines = st.builds(
    lambda matches, verdict, comment: " ".join(
        [*matches, "counter", verdict, f'comment "{comment}"' if comment else ""]
    ),
    st.lists(st.sampled_from(MATCHES), max_size=3, unique=True),
    st.sampled_from(VERDICTS),
    st.sampled_from(["", "why", "kube-proxy: { a } 'b' \\ #c;"]),
)
BASE = """\
table inet proxy_init {
  set ports { type inet_service; elements = { 1, 2 }; }
  chain OTHER { counter return comment "other"
  }
  chain PREROUTING { type nat hook prerouting priority -100; policy accept; }
  chain OUTPUT { type nat hook output priority -90; policy accept; }
  chain POSTROUTING { type nat hook postrouting priority 100; policy accept; }
}
"""


@settings(
    max_examples=60, deadline=None, suppress_health_check=list(HealthCheck),
    derandomize=True,
)  # fmt: skip
@given(st.lists(lines, min_size=1, max_size=12))
def test_others_rules_are_read_and_can_be_written_again(
    place: Namespace, rules: list[str]
) -> None:
    """Random rules, as far as nft takes them: listed, read, written, read: equal."""
    assert place.exec(["nft", "flush", "ruleset"]).returncode == 0
    assert place.exec(["nft", "-f", "-"], text=BASE).returncode == 0
    hooks = {"snat": "POSTROUTING", "masquerade": "POSTROUTING"}
    script = ""
    taken = []
    for rule in rules:
        verdict = next((hook for word, hook in hooks.items() if word in rule), "OTHER")
        chain = "PREROUTING" if "redirect" in rule or "dnat" in rule else verdict
        if "OTHER" in rule and chain == "OTHER":
            chain = "OUTPUT"
        line = f"add rule inet proxy_init {chain} {rule}\n"
        done = place.exec(["nft", "-c", "-f", "-"], text=script + line)
        if done.returncode == 0:  # nft has its own mind about some combinations
            script += line
            taken.append(rule)
    assert place.exec(["nft", "-f", "-"], text=script).returncode == 0

    first = parse(listed(place))
    text = f"delete table inet proxy_init\n{render(first)}"
    done = place.exec(["nft", "-f", "-"], text=text)

    assert done.returncode == 0, f"{done.stderr}\n{text}"
    assert parse(listed(place)) == first
    assert sum(len(chain.rules) for chain in first.chains) == 1 + len(taken)


def test_tables_of_iptables_nft_can_be_read_beside_ours(namespace: Namespace) -> None:
    """Whatever nft makes of the extensions of iptables, it is no obstacle."""
    for program in ("iptables-nft", "ip6tables-nft"):
        for rule in (
            "-p tcp -m multiport --dports 1,2 -j REDIRECT --to-ports 9",
            "-m owner --uid-owner 5 -m comment --comment {} -j RETURN",
            "-m recent --name x --set -j LOG --log-prefix }",
        ):
            argv = [program, "-t", "nat", "-A", "OUTPUT", *rule.split()]
            assert namespace.exec(argv).returncode == 0
    install(namespace)
    tables = parse_tables(listed(namespace))
    found = {(table.family, table.name): table.ruleset for table in tables}
    assert found["inet", "proxy_init"] == plan_inet(CONFIG, ipv6=True)
    assert len(found["ip", "nat"].rules("OUTPUT")) == 3
