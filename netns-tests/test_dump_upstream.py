"""Our rules beside those of upstream's commands, run one at a time: the same text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from installed import PROGRAM, install, printed

from proxyinit.lab import Namespace

LINKERD = (
    *("--incoming-proxy-port", "4143", "--outgoing-proxy-port", "4140"),
    *("--proxy-uid", "2102"),
    *("--inbound-ports-to-ignore", "4190,4191,4567,4568"),
    *("--outbound-ports-to-ignore", "4567,4568"),
)
"""What the chart gave to linkerd-init; the chart added --ipv6=false."""


@pytest.fixture(scope="module")
def mode(iptables_mode: str) -> str:
    """The backends of iptables, which this module is about."""
    return iptables_mode


@pytest.fixture
def second() -> Iterator[Namespace]:
    """One more empty namespace, for upstream's rules."""
    made = Namespace("upstream")
    yield made
    made.close()


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """A configuration as upstream's commands spell it, multiports already packed."""

    arguments: tuple[str, ...]
    ignored_in: tuple[str, ...] = ()
    ignored_out: tuple[str, ...] = ()
    redirected: tuple[int, ...] = ()
    sources: dict[int, tuple[str, ...]] | None = None
    uid: int | None = 2102
    gid: int | None = None
    inbound: int = 4143
    outbound: int = 4140

    def commands(self, version: int) -> Iterator[str]:
        """What follows ``iptables -t nat``, in upstream's order and spelling."""
        chain = "PROXY_INIT_REDIRECT"
        yield f"-N {chain}"
        yield from self._ignored(chain, self.ignored_in)
        for net in (self.sources or {}).get(version, ()):
            yield f"-A {chain} -p all -j RETURN -s {net}{why(f'ignore-subnet-{net}')}"
        to_proxy = f"-j REDIRECT --to-port {self.inbound}"
        for port in self.redirected:
            reason = why(f"redirect-port-{port}-to-proxy-port")
            yield f"-A {chain} -p tcp --destination-port {port} {to_proxy}{reason}"
        if not self.redirected:
            reason = why("redirect-all-incoming-to-proxy-port")
            yield f"-A {chain} -p tcp {to_proxy}{reason}"
        yield f"-A PREROUTING -j {chain}{why('install-proxy-init-prerouting')}"

        chain = "PROXY_INIT_OUTPUT"
        yield f"-N {chain}"
        owner = f"-A {chain} -m owner"
        if self.uid is not None:
            reason = why("ignore-proxy-user-id")
            yield f"{owner} --uid-owner {self.uid} -j RETURN{reason}"
        if self.gid is not None:
            reason = why("ignore-proxy-group-id")
            yield f"{owner} --gid-owner {self.gid} -j RETURN{reason}"
        yield f"-A {chain} -o lo -j RETURN{why('ignore-loopback')}"
        yield from self._ignored(chain, self.ignored_out)
        to_proxy = f"-j REDIRECT --to-port {self.outbound}"
        reason = why("redirect-all-outgoing-to-proxy-port")
        yield f"-A {chain} -p tcp {to_proxy}{reason}"
        yield f"-A OUTPUT -j {chain}{why('install-proxy-init-output')}"

    @staticmethod
    def _ignored(chain: str, groups: Sequence[str]) -> Iterator[str]:
        for group in groups:
            ports = f"--match multiport --dports {group}"
            reason = why(f"ignore-port-{group}")
            yield f"-A {chain} -p tcp {ports} -j RETURN{reason}"


def why(reason: str) -> str:
    return f" -m comment --comment proxy-init/{reason}"


PORTS = ("-p", "4143", "-o", "4140")


def numbers(first: int, last: int) -> str:
    return ",".join(map(str, range(first, last + 1)))


CONFIGURATIONS = [
    pytest.param(
        Upstream(
            arguments=LINKERD,
            ignored_in=("4190,4191,4567,4568",),
            ignored_out=("4567,4568",),
        ),
        id="Linkerd's chart",
    ),
    pytest.param(Upstream(arguments=PORTS, uid=None), id="only the proxy's ports"),
    pytest.param(
        Upstream(
            arguments=("-p", "8080", "-o", "1", "-u", "1"),
            inbound=8080,
            outbound=1,
            uid=1,
        ),
        id="other ports of the proxy",
    ),
    pytest.param(
        Upstream(arguments=(*PORTS, "-u", "2102", "-g", "2103"), gid=2103),
        id="user and group",
    ),
    pytest.param(
        Upstream(
            arguments=(*PORTS, "-g", "4294967294"),
            uid=None,
            gid=4294967294,
        ),
        id="the highest group there is, and no user",
    ),
    pytest.param(
        Upstream(
            arguments=(
                *(*PORTS, "-u", "2102"),
                *("--inbound-ports-to-ignore", "25, 4567-4568,80-80,1-65535"),
                *("--outbound-ports-to-ignore", "443,3306-3309"),
            ),
            ignored_in=("25,4567:4568,80,1:65535",),
            ignored_out=("443,3306:3309",),
        ),
        id="ranges",
    ),
    pytest.param(
        Upstream(
            arguments=(
                *(*PORTS, "-u", "2102"),
                *("--inbound-ports-to-ignore", numbers(6001, 6015)),
                *("--outbound-ports-to-ignore", numbers(6001, 6016)),
            ),
            ignored_in=(numbers(6001, 6015),),
            ignored_out=(numbers(6001, 6015), "6016"),
        ),
        id="one multiport full, and one port more",
    ),
    pytest.param(
        Upstream(
            arguments=(
                *(*PORTS, "-u", "2102"),
                *("--inbound-ports-to-ignore", f"{numbers(6001, 6014)},7000-7001,7010"),
                *("--outbound-ports-to-ignore", "1-2,3-4,5-6,7-8,9-10,11-12,13-14"),
                *("--outbound-ports-to-ignore", "15-16,17"),
            ),
            ignored_in=(numbers(6001, 6014), "7000:7001,7010"),
            ignored_out=("1:2,3:4,5:6,7:8,9:10,11:12,13:14", "15:16,17"),
        ),
        id="ranges that do not fit into the last slot",
    ),
    pytest.param(
        Upstream(
            arguments=(
                *(*PORTS, "-u", "2102"),
                *("--inbound-ports-to-ignore", "4190,25,4190"),
            ),
            ignored_in=("4190,25,4190",),
        ),
        id="neither sorted nor without doubles",
    ),
    pytest.param(
        Upstream(
            arguments=(*PORTS, "-u", "2102", "-r", "9099,80", "-r", "65535"),
            redirected=(9099, 80, 65535),
        ),
        id="listed ports",
    ),
    pytest.param(
        Upstream(
            arguments=(
                *(*PORTS, "-u", "2102", "-r", "9090"),
                *("--inbound-ports-to-ignore", "9090"),
                *("--subnets-to-ignore", "10.0.0.0/8, 192.0.2.1/32,198.51.100.128/25"),
                *("--subnets-to-ignore", "fd00::/8,2001:db8::1/128"),
            ),
            ignored_in=("9090",),
            redirected=(9090,),
            sources={
                4: ("10.0.0.0/8", "192.0.2.1/32", "198.51.100.128/25"),
                6: ("fd00::/8", "2001:db8::1/128"),
            },
        ),
        id="listed ports, ignored ports and sources",
    ),
    pytest.param(
        Upstream(
            arguments=(*PORTS, "-u", "2102", "--subnets-to-ignore", "0.0.0.0/0,::/0"),
            sources={4: ("0.0.0.0/0",), 6: ("::/0",)},
        ),
        id="every source",
    ),
]
CHAINS = ("PREROUTING", "OUTPUT", "PROXY_INIT_REDIRECT", "PROXY_INIT_OUTPUT")


def shown(namespace: Namespace, mode: str) -> dict[str, str]:
    """All that people can look at: dumps of all tables, and listings of nat.

    nft lists chains in the order they were made in, which is of no consequence;
    so it is asked for one after the other.
    """
    families = ("ip", "ip6")
    looks = [
        f"{family}tables-{mode}{suffix}"
        for family in families
        for suffix in ("-save", " -t nat -S", " -t nat -L -n -v", " -t nat -L")
    ]
    if mode == "nft":
        looks += [f"nft list chain {f} nat {c}" for f in families for c in CHAINS]
    return {look: printed(namespace, *look.split()) for look in looks}


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_side_by_side_with_upstreams_commands(
    namespace: Namespace, second: Namespace, mode: str, configuration: Upstream
) -> None:
    """Every dump and listing of both namespaces is the same text."""
    install(namespace, *configuration.arguments, mode=mode)
    for version, family in ((4, "ip"), (6, "ip6")):
        program = f"{family}tables-{mode} -t nat"
        commands = configuration.commands(version)
        script = "\n".join(f"{program} {command}" for command in commands)
        done = second.exec(["sh", "-ec", script])
        assert done.returncode == 0, done.stderr
    assert shown(namespace, mode) == shown(second, mode)


OTHERS = (
    "-N KUBE-LIKE",
    "-A KUBE-LIKE -p udp -j ACCEPT",
    "-A PREROUTING -p udp -j KUBE-LIKE",
    "-A OUTPUT -p udp -j ACCEPT",
    "-A POSTROUTING -o eth9 -j MASQUERADE",
)


def test_side_by_side_among_rules_of_others(
    namespace: Namespace, second: Namespace, mode: str
) -> None:
    """The jumps stand behind what was there, where upstream would put them."""
    configuration = CONFIGURATIONS[0].values[0]
    assert isinstance(configuration, Upstream)
    for place, commands in (
        (namespace, OTHERS),
        (second, (*OTHERS, *configuration.commands(4))),
    ):
        for command in commands:
            done = place.exec([f"iptables-{mode}", "-t", "nat", *command.split()])
            assert done.returncode == 0, done.stderr
    install(namespace, *LINKERD, "--ipv6=false", mode=mode)
    dumps = [printed(place, f"iptables-{mode}-save") for place in (namespace, second)]
    assert dumps[0] == dumps[1]


def test_rules_that_upstream_left_are_taken_as_they_are(
    namespace: Namespace, mode: str
) -> None:
    """After an upgrade from upstream nothing has to be written."""
    configuration = CONFIGURATIONS[0].values[0]
    assert isinstance(configuration, Upstream)
    for version, family in ((4, "ip"), (6, "ip6")):
        for command in configuration.commands(version):
            argv = [f"{family}tables-{mode}", "-t", "nat", *command.split()]
            done = namespace.exec(argv)
            assert done.returncode == 0, done.stderr
    before = shown(namespace, mode)
    done = namespace.exec([PROGRAM, *configuration.arguments, "--iptables-mode", mode])
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("nothing written") == 2
    assert "<<EOF" not in done.stderr
    assert shown(namespace, mode) == before
