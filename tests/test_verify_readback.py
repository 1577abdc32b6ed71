"""What was planned is read back from its rules, as the flags that ask for it."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit import options
from proxyinit.config import RedirectConfig, parse_subnet
from proxyinit.flags import INSTALL_FLAGS
from proxyinit.intervals import merge_ports, merge_subnets
from proxyinit.iptables_rule import render_rule
from proxyinit.iptables_save import parse, render
from proxyinit.pflag import parse as parse_flags
from proxyinit.plan import plan, plan_inet
from proxyinit.rules import INET, IPV4, IPV6, PortRange, Ruleset, Subnet
from proxyinit.verify.readback import Wanted, flags, readback

PROPERTY = settings(deadline=None, max_examples=200)

PORTS = st.integers(1, 65535)
RANGES = st.builds(
    lambda a, b: PortRange(min(a, b), max(a, b)), PORTS, PORTS
) | PORTS.map(lambda port: PortRange(port, port))
IDS = st.lists(st.integers(0, 4294967294), max_size=3, unique=True).map(tuple)


def subnets() -> st.SearchStrategy[tuple[Subnet, ...]]:
    of_ipv4 = st.builds(
        lambda address, prefix: parse_subnet(f"{address}/{prefix}"),
        st.ip_addresses(v=4),
        st.integers(0, 32),
    )
    of_ipv6 = st.builds(
        lambda address, prefix: parse_subnet(f"{address}/{prefix}"),
        st.ip_addresses(v=6),
        st.integers(0, 128),
    )
    return st.lists(of_ipv4 | of_ipv6, max_size=6).map(tuple)


CONFIGS = st.builds(
    RedirectConfig,
    PORTS,
    PORTS,
    proxy_uids=IDS,
    proxy_gids=IDS,
    ports_to_redirect=st.lists(PORTS, max_size=5).map(tuple),
    inbound_ports_to_ignore=st.lists(RANGES, max_size=40).map(tuple),
    outbound_ports_to_ignore=st.lists(RANGES, max_size=20).map(tuple),
    inbound_subnets_to_ignore=subnets(),
    outbound_subnets_to_ignore=subnets(),
)


def by_version(wanted: tuple[Subnet, ...], *versions: int) -> tuple[Subnet, ...]:
    """Subnets as two tables keep them: IPv4's first, the order within each as given."""
    return tuple(s for version in versions for s in wanted if s.version == version)


def changed(config: RedirectConfig, **values: object) -> RedirectConfig:
    return RedirectConfig(**{**config.__dict__, **values})


@PROPERTY
@given(CONFIGS, st.booleans())
def test_iptables(config: RedirectConfig, ipv6: bool) -> None:  # noqa: FBT001
    """Every configuration comes back from the dumps of its tables, word for word."""
    versions = (IPV4, IPV6) if ipv6 else (IPV4,)
    tables = {v: parse(render(plan(config, v)), v) for v in versions}

    assert readback(tables) == Wanted(
        changed(
            config,
            inbound_subnets_to_ignore=by_version(
                config.inbound_subnets_to_ignore, *versions
            ),
            outbound_subnets_to_ignore=by_version(
                config.outbound_subnets_to_ignore, *versions
            ),
        ),
        ipv6,
    )


@PROPERTY
@given(CONFIGS, st.booleans())
def test_nftables(config: RedirectConfig, ipv6: bool) -> None:  # noqa: FBT001
    """Native rules give it back with its sets in their one form."""
    versions = (IPV4, IPV6) if ipv6 else (IPV4,)

    def merged(wanted: tuple[Subnet, ...]) -> tuple[Subnet, ...]:
        groups = [by_version(wanted, version) for version in versions]
        return tuple(s for group in groups for s in merge_subnets(group))

    redirected = merge_ports([PortRange(p, p) for p in config.ports_to_redirect])
    normal = changed(
        config,
        ports_to_redirect=tuple(
            p for ports in redirected for p in range(ports.low, ports.high + 1)
        ),
        inbound_ports_to_ignore=merge_ports(config.inbound_ports_to_ignore),
        outbound_ports_to_ignore=merge_ports(config.outbound_ports_to_ignore),
        inbound_subnets_to_ignore=merged(config.inbound_subnets_to_ignore),
        outbound_subnets_to_ignore=merged(config.outbound_subnets_to_ignore),
    )
    live = plan_inet(config, ipv6=ipv6)
    found = readback({INET: live})

    assert found == Wanted(normal, ipv6)
    assert found.table(INET) == live


@PROPERTY
@given(CONFIGS, st.booleans())
def test_flags(config: RedirectConfig, ipv6: bool) -> None:  # noqa: FBT001
    """The flags shown are read by the install as that very configuration."""
    words = shlex.split(" ".join(flags(Wanted(config, ipv6))))
    arguments = parse_flags(words, INSTALL_FLAGS)

    assert (arguments.problems, arguments.words) == ((), ())
    assert options.redirect_config(arguments) == config
    assert options.options(arguments).ipv6 == ipv6


CONFIG = RedirectConfig(
    4143, 4140, (2102,), inbound_ports_to_ignore=(PortRange(4190, 4191),)
)


def damaged(version: int, *lines: str) -> Ruleset:
    """The table of `CONFIG` without the rules that any of the texts occurs in."""
    table = plan(CONFIG, 4 if version == 4 else 6)
    kept = [
        type(chain)(
            chain.name,
            tuple(
                rule
                for rule in chain.rules
                if not any(text in render_rule(rule) for text in lines)
            ),
        )
        for chain in table.chains
    ]
    return Ruleset(table.version, tuple(kept))


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        pytest.param({}, None, id="nothing says nothing"),
        pytest.param(
            {IPV4: damaged(4, "--to-ports 4143")},
            None,
            id="a direction without a redirect says no configuration",
        ),
        pytest.param(
            {IPV4: damaged(4, "4190"), IPV6: plan(CONFIG, IPV6)},
            Wanted(changed(CONFIG, inbound_ports_to_ignore=()), ipv6=True),
            id="of two whole families the first counts",
        ),
        pytest.param(
            {IPV4: damaged(4, "-o lo", "4190"), IPV6: plan(CONFIG, IPV6)},
            Wanted(CONFIG, ipv6=True),
            id="a whole family counts before a damaged one",
        ),
        pytest.param(
            {IPV4: damaged(4, "-o lo")},
            Wanted(CONFIG, ipv6=False),
            id="a rule that is always there is not needed for reading",
        ),
    ],
)
def test_damaged(tables: dict[int, Ruleset], expected: Wanted | None) -> None:
    """What can't be told is not told; what can be is told in spite of damage."""
    assert readback(tables) == expected  # type: ignore[arg-type]  # ints as versions
