"""What verify says beside the rules: IPv6, who listens, connection tracking."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proxyinit.config import RedirectConfig
from proxyinit.plan import plan
from proxyinit.rules import IPV4, IPV6
from proxyinit.verify.checks import FAIL, OK, UNKNOWN, WARN
from proxyinit.verify.facts import Facts, Listener, Survey
from proxyinit.verify.readback import Wanted
from proxyinit.verify.verdict import judge
from tests.namespace_facts import CONFIG, POD, PROXY, WANTED, facts, told


def only_ipv4(**changes: Any) -> Facts:
    tables = {("nft", IPV4): plan(CONFIG, IPV4)}
    return facts(survey=Survey(tables, {}), **changes)


@pytest.mark.parametrize(
    ("found", "given", "state"),
    [
        pytest.param(only_ipv4(), None, FAIL, id="in use and not redirected"),
        pytest.param(
            only_ipv4(), Wanted(CONFIG, ipv6=False), WARN, id="as --ipv6=false asks"
        ),
        pytest.param(only_ipv4(addresses=POD[:1]), None, OK, id="not in use"),
        pytest.param(only_ipv4(ipv6=False), None, OK, id="a kernel without IPv6"),
        pytest.param(only_ipv4(ipv6=False), WANTED, OK, id="asked of such a kernel"),
        pytest.param(facts(), None, OK, id="redirected"),
    ],
)
def test_ipv6(found: Facts, given: Wanted | None, state: str) -> None:
    """IPv6 that is in use passes by the proxy unless it is redirected as well."""
    (check,) = [c for c in judge(found, given).checks if c.name == "IPv6"]

    assert check.state == state


def listening(*changes: Listener) -> Facts:
    return facts(listeners=changes)


IN4, OUT4, IN6, OUT6 = (PROXY[n] for n in (0, 1, 2, 3))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        pytest.param(listening(*PROXY), [], id="a socket for each version"),
        pytest.param(
            listening(replace(IN6, dual=True), replace(OUT6, dual=True)),
            [],
            id="one socket for both versions",
        ),
        pytest.param(
            listening(
                IN4,
                IN6,
                replace(OUT4, address="127.0.0.1"),
                replace(OUT6, address="::1"),
            ),
            [],
            id="outbound on loopback is enough",
        ),
        pytest.param(
            listening(),
            [(WARN, "inbound proxy"), (WARN, "outbound proxy")],
            id="no proxy yet",
        ),
        pytest.param(
            listening(Listener(4, "0.0.0.0", 8080, 1000)),  # noqa: S104
            [(WARN, "inbound proxy"), (WARN, "outbound proxy")],
            id="the application alone",
        ),
        pytest.param(
            listening(IN4, IN6), [(FAIL, "outbound proxy")], id="half of a proxy"
        ),
        pytest.param(
            listening(IN4, OUT4),
            [(FAIL, "inbound proxy"), (FAIL, "outbound proxy")],
            id="a proxy that does not hear IPv6",
        ),
        pytest.param(
            listening(replace(IN4, port=4144), replace(OUT4, port=4141)),
            [(FAIL, "inbound proxy"), (FAIL, "outbound proxy")],
            id="a proxy on other ports",
        ),
        pytest.param(
            listening(
                replace(IN4, address="127.0.0.1"),
                replace(IN6, address="::1"),
                OUT4,
                OUT6,
            ),
            [(FAIL, "inbound proxy"), (FAIL, "inbound proxy")],
            id="inbound on loopback hears nobody",
        ),
        pytest.param(
            listening(*(replace(one, uid=0) for one in PROXY)),
            [(FAIL, "inbound proxy"), (FAIL, "outbound proxy")],
            id="another user's program",
        ),
        pytest.param(
            facts(listeners=None),
            [(UNKNOWN, "inbound proxy"), (UNKNOWN, "outbound proxy")],
            id="sockets that can't be seen",
        ),
    ],
)
def test_who_listens(found: Facts, said: list[tuple[str, str]]) -> None:
    """The proxy has to hear what is sent to it, as the user whose traffic passes."""
    assert [(state, name) for state, name, _ in told(found)] == said


def test_another_user_of_a_group_that_may_pass() -> None:
    """The kernel tells no socket's group, so with --proxy-gid it is a warning."""
    config = RedirectConfig(4143, 4140, (2102,), (2102,))
    found = facts(
        survey=Survey({("nft", v): plan(config, v) for v in (IPV4, IPV6)}, {}),
        listeners=tuple(replace(one, uid=0) for one in PROXY),
    )

    assert {state for state, *_ in told(found)} == {WARN}


@pytest.mark.parametrize(
    ("count", "states"),
    [
        pytest.param((899, 1000), [], id="room enough"),
        pytest.param((900, 1000), [WARN], id="nearly full"),
        pytest.param((1000, 1000), [FAIL], id="full"),
        pytest.param(None, [], id="not told by the kernel"),
        pytest.param((10, 0), [], id="no limit"),
    ],
)
def test_conntrack(count: tuple[int, int] | None, states: list[str]) -> None:
    """A connection that can't be tracked is dropped, redirect or not."""
    assert [state for state, *_ in told(facts(conntrack=count))] == states
