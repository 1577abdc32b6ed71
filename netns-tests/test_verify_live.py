"""Verify in real namespaces: it reads what is there, and changes nothing."""

from __future__ import annotations

import pytest
from verify_runs import ARGUMENTS, install, only, states, verify

from proxyinit.lab import Lab, Namespace

LONG = (
    *ARGUMENTS,
    *("-g", "77", "-r", "80,443", "--inbound-ports-to-ignore", "4190,4191,4567-4568"),
    *("--outbound-ports-to-ignore", "25,587,3306"),
    *("--subnets-to-ignore", "10.9.0.0/16,fd00:9::/32"),
    *("--outbound-subnets-to-ignore", "172.16.0.0/12,2001:db8:9::/48"),
)


def everything(namespace: Namespace) -> str:
    """All that a look could change: rules with counters, tables, interfaces."""
    script = (
        "nft -s list ruleset 2>&1; iptables-nft-save -c; ip6tables-nft-save -c; "
        "iptables-legacy-save -c; ip6tables-legacy-save -c; ip addr; ip route; "
        "cat /proc/net/ip_tables_names /proc/net/ip6_tables_names"
    )
    lines = namespace.exec(["sh", "-c", script]).stdout.splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


def test_a_look_changes_nothing(namespace: Namespace, mode: str) -> None:
    """No table is made, no counter moved, before an install and after it."""
    for _ in range(2):
        before = everything(namespace)
        verify("--netns", namespace.path)
        assert everything(namespace) == before
        install(namespace, mode)


@pytest.mark.parametrize("arguments", [ARGUMENTS, LONG], ids=["few flags", "many"])
def test_flags_shown_are_those_that_were_given(
    namespace: Namespace, mode: str, arguments: tuple[str, ...]
) -> None:
    """What is read back, given to an install again, finds nothing to do."""
    install(namespace, mode, *arguments)
    code, document = verify(inside=namespace)

    assert (code, only(document)["verdict"]) == (0, "intercepted")
    shown = " ".join(only(document)["flags"]).split()
    log = install(namespace, mode, *shown)
    assert "nothing written" in log
    assert "redirect in place" not in log
    assert verify(*arguments, inside=namespace)[0] == 0


def test_other_flags_differ(namespace: Namespace, mode: str) -> None:
    """Held against flags that were not given, each difference is named."""
    install(namespace, mode)
    code, document = verify(*ARGUMENTS, "-r", "80", inside=namespace)

    assert code == 3
    assert set(states(only(document), "rules")) == {"fail"}


def test_nothing_installed(namespace: Namespace) -> None:
    """A namespace without rules is not intercepted: 3, not 1."""
    assert verify(inside=namespace)[0] == 3


def test_ipv6_in_use_is_not_passed_over(lab: Lab, mode: str) -> None:
    """Addresses of IPv6 without a redirect of IPv6 are a failure."""
    install(lab.pod, mode, *ARGUMENTS, "--ipv6=false")
    code, document = verify(inside=lab.pod)

    assert code == 3
    assert states(only(document), "IPv6") == ["fail"]
    assert "--ipv6=false" in only(document)["flags"]


def test_the_proxy_is_seen(lab: Lab, mode: str) -> None:
    """Its sockets and their user are the kernel's to tell, by sock_diag."""
    install(lab.pod, mode)
    lab.proxy()
    _, document = verify(inside=lab.pod)

    for name in ("inbound proxy", "outbound proxy"):
        assert states(only(document), name) == ["ok"]


def test_another_program_on_the_proxys_ports(lab: Lab) -> None:
    """Sockets of a user whose traffic does not pass mean a loop."""
    install(lab.pod, "nft")
    lab.stand_in(lab.pod, "impostor", (4143, 4140), uid=1000)
    code, document = verify(inside=lab.pod)

    assert code == 3
    assert set(states(only(document), "outbound proxy")) == {"fail"}
