"""A redirect that connections can't get to is refused; what only may, is a warning."""

from __future__ import annotations

import re

import pytest
from installed import PROGRAM

from proxyinit.lab import Lab, Namespace

ARGUMENTS = ("-p", "4143", "-o", "4140", "-u", "2102")


@pytest.fixture(scope="module")
def mode(iptables_mode: str) -> str:
    """The backends of iptables, which this module is about."""
    return iptables_mode


def dumps(namespace: Namespace, mode: str) -> list[str]:
    """The rules and chains of the nat tables of both families, counters aside."""
    text = ""
    for program in (f"iptables-{mode}-save", f"ip6tables-{mode}-save"):
        text += namespace.exec([program, "-t", "nat"]).stdout
    lines = re.sub(r"\[\d+:\d+\]", "", text).splitlines()
    return [line for line in lines if line.startswith("-A") or " - " in line]


def tables(namespace: Namespace, mode: str, changes: str) -> None:
    """Make changes to the nat table of IPv4."""
    for change in changes.split("; "):
        done = namespace.exec(
            ["sh", "-c", f"iptables-{mode} -t nat {change}"],
        )
        assert done.returncode == 0, done.stderr


def install(namespace: Namespace, mode: str) -> tuple[int, list[str]]:
    """The exit code, and the lines of the log that are warnings or errors."""
    done = namespace.exec([PROGRAM, *ARGUMENTS, "--iptables-mode", mode])
    lines = done.stderr.splitlines()
    return done.returncode, [line for line in lines if "level=info" not in line]


BLOCKING = [
    pytest.param("-A PREROUTING -j ACCEPT", "ACCEPT", id="accept everything"),
    pytest.param(
        "-A PREROUTING -p tcp -m tcp --dport 22 -j ACCEPT",
        "-p tcp -m tcp --dport 22 -j ACCEPT",
        id="accept one port",
    ),
    pytest.param(
        "-A OUTPUT -d 10.96.0.1/32 -p tcp -j DNAT --to-destination 10.1.0.9:80",
        "10.96.0.1/32",
        id="send one address elsewhere",
    ),
    pytest.param("-A OUTPUT -j RETURN", "-j RETURN", id="return from OUTPUT"),
    pytest.param(
        "-A PREROUTING -p tcp -j REDIRECT --to-ports 9",
        "REDIRECT --to-ports 9",
        id="redirect to another proxy",
    ),
    pytest.param(
        "-N OTHER; -A OTHER -p tcp -j ACCEPT; -A PREROUTING -j OTHER",
        "-j OTHER",
        id="a chain that always accepts",
    ),
    pytest.param(
        "-N OTHER; -A PREROUTING -g OTHER",
        "-g OTHER",
        id="goto never comes back, even from an empty chain",
    ),
    pytest.param(
        "-N OTHER; -A PREROUTING -s 10.1.0.0/24 -g OTHER",
        "-g OTHER",
        id="goto for some",
    ),
]


@pytest.mark.parametrize(("foreign", "named"), BLOCKING)
@pytest.mark.parametrize(
    "installed",
    [pytest.param(False, id="fresh"), pytest.param(True, id="pushed in front later")],
)
def test_rule_that_takes_connections_first_is_refused(
    namespace: Namespace, mode: str, foreign: str, named: str, *, installed: bool
) -> None:
    """Exit 1, the rule is named with its place, and neither family is touched."""
    if installed:
        assert install(namespace, mode) == (0, [])
        tables(namespace, mode, re.sub("-A (PREROUTING|OUTPUT)", r"-I \1", foreign))
    else:
        tables(namespace, mode, foreign)
    before = dumps(namespace, mode)
    code, said = install(namespace, mode)
    assert code == 1
    assert len(said) == 1
    assert "level=error" in said[0]
    chain = "OUTPUT" if "OUTPUT" in foreign else "PREROUTING"
    assert f"rule 1 of {chain}" in said[0]
    assert named in said[0]
    assert dumps(namespace, mode) == before


def test_rule_of_one_family_stops_both(namespace: Namespace, mode: str) -> None:
    """A rule in front in IPv6 alone is found before IPv4 is written."""
    accept = f"ip6tables-{mode} -t nat -A OUTPUT -p tcp -j ACCEPT"
    assert namespace.exec(accept.split()).returncode == 0
    before = dumps(namespace, mode)
    code, said = install(namespace, mode)
    assert code == 1
    assert "IPv6: rule 1 of OUTPUT, '-p tcp -j ACCEPT'" in said[0]
    assert dumps(namespace, mode) == before


DOCKER_LIKE = (
    "-N DOCKER; -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER; "
    "-A DOCKER -p tcp -m tcp --dport 81 -j DNAT --to-destination 10.1.0.9:80"
)


def test_chain_that_takes_some_connections_is_a_warning(
    namespace: Namespace, mode: str
) -> None:
    """A chain such as Docker's in front of the jump is told of, and no failure."""
    tables(namespace, mode, DOCKER_LIKE)
    code, said = install(namespace, mode)
    assert code == 0
    assert len(said) == 1
    assert "level=warning" in said[0]
    assert "rule 1 of PREROUTING" in said[0]
    assert "chain DOCKER" in said[0]


@pytest.mark.parametrize(
    "harmless",
    [
        pytest.param("-A PREROUTING -p udp -j ACCEPT", id="no TCP"),
        pytest.param("-A PREROUTING -i lo -j ACCEPT", id="loopback only"),
        pytest.param("-A OUTPUT -d 127.0.0.0/8 -j ACCEPT", id="to loopback only"),
        pytest.param("-A PREROUTING -p tcp -j LOG", id="goes on to the next rule"),
        pytest.param("-A PREROUTING -p tcp", id="counts only"),
        pytest.param(
            "-N OTHER; -A OTHER -p tcp -j RETURN; -A OTHER -j ACCEPT; "
            "-A PREROUTING -j OTHER",
            id="a chain that lets TCP return",
        ),
        pytest.param("-A POSTROUTING -j ACCEPT", id="another hook"),
    ],
)
def test_rule_that_takes_no_connection_is_no_matter(
    namespace: Namespace, mode: str, harmless: str
) -> None:
    """Rules that no TCP connection from or to elsewhere ends at are not mentioned."""
    tables(namespace, mode, harmless)
    assert install(namespace, mode) == (0, [])


def test_rule_behind_the_jump_stays_behind(lab: Lab, mode: str) -> None:
    """Others' rules behind our jump stay there, and connections reach the proxy."""
    lab.proxy()
    lab.app(8080)
    assert install(lab.pod, mode) == (0, [])
    tables(lab.pod, mode, "-A PREROUTING -j ACCEPT; -A OUTPUT -p tcp -j RETURN")
    tables(lab.pod, mode, "-F PROXY_INIT_REDIRECT")
    before = [line for line in dumps(lab.pod, mode) if "-A PRE" in line]
    assert install(lab.pod, mode) == (0, [])
    after = [line for line in dumps(lab.pod, mode) if "-A PRE" in line]
    assert after == before
    assert after[1] == "-A PREROUTING -j ACCEPT"
    assert lab.inbound(8080).who == "proxy"


def test_refused_redirect_would_not_have_been_reached(lab: Lab, mode: str) -> None:
    """The kernel agrees: with the rule that is refused, the application answers."""
    lab.proxy()
    lab.app(8080)
    assert install(lab.pod, mode) == (0, [])
    assert lab.inbound(8080).who == "proxy"
    tables(lab.pod, mode, "-N OTHER; -I PREROUTING -g OTHER")
    assert lab.inbound(8080).who == "app"
    assert install(lab.pod, mode)[0] == 1


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize(
    ("change", "named"),
    [
        pytest.param(
            "chain {table} OUTPUT {{ policy drop; }}",
            "the policy of OUTPUT is DROP",
            id="the policy drops",
        ),
        pytest.param(
            "add table {table} {{ flags dormant; }}", "is dormant", id="put to sleep"
        ),
    ],
)
def test_what_only_nft_can_do_to_the_table_is_refused(
    namespace: Namespace, version: int, change: str, named: str
) -> None:
    """A whole set of rules that does nothing is no success; the advice mends it."""
    assert install(namespace, "nft") == (0, [])
    table = "ip nat" if version == 4 else "ip6 nat"
    argv = ["nft", change.format(table=table)]
    assert namespace.exec(argv).returncode == 0
    code, said = install(namespace, "nft")
    assert code == 1
    assert f"IPv{version}: " in said[0]
    assert named in said[0]
    advice = re.search(r'(?:wake it|set it back): ([^"]+)', said[0])
    assert advice
    assert namespace.exec(advice[1].split()).returncode == 0
    assert install(namespace, "nft") == (0, [])
