"""The rules that Linkerd's own init container logged, character by character."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence

import pytest
from installed import install, printed

from proxyinit.lab import Namespace

LINKERD = (
    *("--incoming-proxy-port", "4143", "--outgoing-proxy-port", "4140"),
    *("--proxy-uid", "2102"),
    *("--inbound-ports-to-ignore", "4190,4191,4567,4568"),
    *("--outbound-ports-to-ignore", "4567,4568"),
)
"""What the chart gave to linkerd-init; the chart added --ipv6=false."""

LOGGED = """\
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:PROXY_INIT_OUTPUT - [0:0]
:PROXY_INIT_REDIRECT - [0:0]
-A PREROUTING -m comment --comment "proxy-init/install-proxy-init-prerouting" \
-j PROXY_INIT_REDIRECT
-A OUTPUT -m comment --comment "proxy-init/install-proxy-init-output" \
-j PROXY_INIT_OUTPUT
-A PROXY_INIT_OUTPUT -m owner --uid-owner 2102 \
-m comment --comment "proxy-init/ignore-proxy-user-id" -j RETURN
-A PROXY_INIT_OUTPUT -o lo \
-m comment --comment "proxy-init/ignore-loopback" -j RETURN
-A PROXY_INIT_OUTPUT -p tcp -m multiport --dports 4567,4568 \
-m comment --comment "proxy-init/ignore-port-4567,4568" -j RETURN
-A PROXY_INIT_OUTPUT -p tcp \
-m comment --comment "proxy-init/redirect-all-outgoing-to-proxy-port" \
-j REDIRECT --to-ports 4140
-A PROXY_INIT_REDIRECT -p tcp -m multiport --dports 4190,4191,4567,4568 \
-m comment --comment "proxy-init/ignore-port-4190,4191,4567,4568" -j RETURN
-A PROXY_INIT_REDIRECT -p tcp \
-m comment --comment "proxy-init/redirect-all-incoming-to-proxy-port" \
-j REDIRECT --to-ports 4143
COMMIT
"""
"""What iptables-legacy-save then printed in a pod of Linkerd's."""

LISTED = """\
Chain PREROUTING (policy ACCEPT)
PROXY_INIT_REDIRECT all -- anywhere anywhere \
/* proxy-init/install-proxy-init-prerouting */
Chain INPUT (policy ACCEPT)
Chain OUTPUT (policy ACCEPT)
PROXY_INIT_OUTPUT all -- anywhere anywhere /* proxy-init/install-proxy-init-output */
Chain POSTROUTING (policy ACCEPT)
Chain PROXY_INIT_OUTPUT (1 references)
RETURN all -- anywhere anywhere owner UID match 2102 \
/* proxy-init/ignore-proxy-user-id */
RETURN all -- anywhere anywhere /* proxy-init/ignore-loopback */
RETURN tcp -- anywhere anywhere multiport dports {2},{3} \
/* proxy-init/ignore-port-4567,4568 */
REDIRECT tcp -- anywhere anywhere \
/* proxy-init/redirect-all-outgoing-to-proxy-port */ redir ports 4140
Chain PROXY_INIT_REDIRECT (1 references)
RETURN tcp -- anywhere anywhere multiport dports {0},{1},{2},{3} \
/* proxy-init/ignore-port-4190,4191,4567,4568 */
REDIRECT tcp -- anywhere anywhere \
/* proxy-init/redirect-all-incoming-to-proxy-port */ redir ports 4143
"""
"""What ``iptables-legacy -t nat -L`` showed on its node, blanks aside.

It gives ports the names that the machine knows; there 4190 was "sieve".
"""


@pytest.fixture(scope="module")
def mode(iptables_mode: str) -> str:
    """The backends of iptables, which this module is about."""
    return iptables_mode


def rules_of(dump: str) -> list[str]:
    """The rules of a dump."""
    return re.findall(r"(?m)^-A .*$", dump)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((*LINKERD, "--ipv6=false"), id="IPv4 alone, as logged"),
        pytest.param(LINKERD, id="with IPv6"),
        pytest.param(("--simulate=false", "-w", *LINKERD), id="with other flags"),
    ],
)
def test_legacy_dump_is_the_logged_one(
    namespace: Namespace, arguments: Sequence[str]
) -> None:
    """The whole dump, chains and their order included."""
    install(namespace, *arguments)
    assert printed(namespace, "iptables-legacy-save", "-t", "nat") == LOGGED


def test_every_dump_has_the_logged_rules(
    namespace: Namespace, mode: str, version: int
) -> None:
    """Through either frontend and in either family, rule for rule in order."""
    install(namespace, *LINKERD, mode=mode)
    program = f"ip{'' if version == 4 else '6'}tables-{mode}"
    dump = printed(namespace, f"{program}-save", "-t", "nat")
    assert rules_of(dump) == rules_of(LOGGED)
    listing = printed(namespace, program, "-t", "nat", "-S")
    assert rules_of(listing) == rules_of(LOGGED)


@pytest.mark.parametrize("chain", ["PROXY_INIT_REDIRECT", "PROXY_INIT_OUTPUT"])
def test_chains_are_listed_by_their_names(
    namespace: Namespace, mode: str, version: int, chain: str
) -> None:
    """``-S CHAIN`` and ``-L CHAIN``, as people and dashboards use them."""
    install(namespace, *LINKERD, mode=mode)
    program = f"ip{'' if version == 4 else '6'}tables-{mode}"
    specification = printed(namespace, program, "-t", "nat", "-S", chain)
    expected = [f"-N {chain}"]
    expected += [r for r in rules_of(LOGGED) if r.startswith(f"-A {chain} ")]
    assert specification.splitlines() == expected
    listing = printed(namespace, program, "-t", "nat", "-L", chain, "-n")
    assert listing.startswith(f"Chain {chain} (1 references)\n")
    assert len(listing.splitlines()) == len(expected) + 1  # the line of titles


def test_listing_is_what_the_node_showed(namespace: Namespace) -> None:
    """``iptables-legacy -t nat -L``, as a reader of Linkerd's documents knows it."""
    install(namespace, *LINKERD)
    lines = printed(namespace, "iptables-legacy", "-t", "nat", "-L").splitlines()
    shown = [" ".join(line.split()) for line in lines]
    listed = LISTED.format(*map(name_of, (4190, 4191, 4567, 4568)))
    assert [s for s in shown if s and s[:6] != "target"] == listed.splitlines()


def name_of(port: int) -> str:
    """What this machine calls a TCP port."""
    try:
        return socket.getservbyport(port, "tcp")
    except OSError:
        return str(port)


# === ours beyond upstream's ===

BEYOND = """\
-A PROXY_INIT_OUTPUT -m owner --uid-owner 2102 \
-m comment --comment "proxy-init/ignore-proxy-user-id" -j RETURN
-A PROXY_INIT_OUTPUT -m owner --uid-owner 0 \
-m comment --comment "proxy-init/ignore-proxy-user-id" -j RETURN
-A PROXY_INIT_OUTPUT -m owner --gid-owner 7 \
-m comment --comment "proxy-init/ignore-proxy-group-id" -j RETURN
-A PROXY_INIT_OUTPUT -m owner --gid-owner 0 \
-m comment --comment "proxy-init/ignore-proxy-group-id" -j RETURN
-A PROXY_INIT_OUTPUT -o lo \
-m comment --comment "proxy-init/ignore-loopback" -j RETURN
-A PROXY_INIT_OUTPUT -p tcp -m multiport --dports 25 \
-m comment --comment "proxy-init/ignore-port-25" -j RETURN
-A PROXY_INIT_OUTPUT -d {0} \
-m comment --comment "proxy-init/ignore-subnet-{0}" -j RETURN
-A PROXY_INIT_OUTPUT -p tcp \
-m comment --comment "proxy-init/redirect-all-outgoing-to-proxy-port" \
-j REDIRECT --to-ports 4140
"""


def test_rules_beyond_upstreams(namespace: Namespace, mode: str, version: int) -> None:
    """Further users stand beside the first, destinations behind the ignored ports."""
    install(
        namespace,
        *("-p", "4143", "-o", "4140", "-u", "2102,0", "-g", "7", "-g", "0"),
        *("--outbound-ports-to-ignore", "25"),
        *("--outbound-subnets-to-ignore", "10.1.2.3/8, 2001:DB8:0::/32"),
        *("--iptables-mode", mode),
    )
    program = f"ip{'' if version == 4 else '6'}tables-{mode}-save"
    rules = rules_of(printed(namespace, program))
    ours = [rule for rule in rules if rule.startswith("-A PROXY_INIT_OUTPUT ")]
    subnet = {4: "10.0.0.0/8", 6: "2001:db8::/32"}[version]
    assert ours == BEYOND.format(subnet).splitlines()
