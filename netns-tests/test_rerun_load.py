"""No connection slips past the proxy while the rules are written again under load."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from installed import PROGRAM

from proxyinit.lab import POD, WORLD, Lab, Load, load

FIRST = ("-p", "4143", "-o", "4140", "-u", "2102")
OTHER = (*FIRST, "--inbound-ports-to-ignore", "4190,4191,5000-6000", "-g", "2102")
RERUNS = 20

APP_PORT = 8080
WORLD_PORT = 9090
INBOUND = tuple((address, APP_PORT) for address in POD.values())
OUTBOUND = tuple((address, WORLD_PORT) for address in WORLD.values())


@pytest.fixture
def served(lab: Lab) -> Lab:
    """A lab where proxy, application and world all answer."""
    lab.proxy()
    lab.app(APP_PORT)
    lab.world(WORLD_PORT)
    return lab


def run(lab: Lab, *arguments: str) -> None:
    done = lab.pod.exec([PROGRAM, *arguments])
    assert done.returncode == 0, done.stderr


def under_load(lab: Lab, *, outbound: bool, work: Callable[[], object]) -> Load:
    """What four clients saw while the work was done."""
    namespace, targets = (lab.pod, OUTBOUND) if outbound else (lab.client, INBOUND)
    with load(namespace, targets, threads=4) as seen:
        work()
    return seen


def assert_nothing_slipped(seen: Load) -> None:
    assert seen.errors == []
    assert seen.answers == {"proxy": seen.total}
    assert seen.total > RERUNS  # else nothing was proved


directions = pytest.mark.parametrize(
    "outbound",
    [
        pytest.param(False, id="inbound, into the pod"),
        pytest.param(True, id="outbound, from the pod"),
    ],
)


@directions
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((FIRST,), id="nothing to write: the same arguments"),
        pytest.param((OTHER, FIRST), id="all rules written anew each time"),
    ],
)
def test_rerun_lets_nothing_past(
    served: Lab, mode: str, arguments: tuple[tuple[str, ...], ...], *, outbound: bool
) -> None:
    """Every connection during twenty re-runs reaches the proxy, none fails."""
    run(served, *FIRST, "--iptables-mode", mode)

    def rerun() -> None:
        for chosen in itertools.islice(itertools.cycle(arguments), RERUNS):
            run(served, *chosen, "--iptables-mode", mode)

    assert_nothing_slipped(under_load(served, outbound=outbound, work=rerun))


@directions
def test_backend_switch_lets_nothing_past(served: Lab, *, outbound: bool) -> None:
    """Every connection reaches the proxy while the rules move between backends."""
    run(served, *FIRST, "--iptables-mode", "legacy")

    def switch() -> None:
        for mode in ("nft", "nftables", "legacy") * 4:
            run(served, *FIRST, "--iptables-mode", mode)

    assert_nothing_slipped(under_load(served, outbound=outbound, work=switch))


def doubled_jump(mode: str) -> Iterator[str]:
    if mode == "nftables":
        yield "nft insert rule inet proxy_init PREROUTING jump PROXY_INIT_REDIRECT"
        return
    for program in ("iptables", "ip6tables"):
        yield f"{program}-{mode} -t nat -I PREROUTING -j PROXY_INIT_REDIRECT"


def test_repair_of_a_doubled_jump_lets_nothing_past(served: Lab, mode: str) -> None:
    """Every connection reaches the proxy while a doubled jump is taken away."""
    run(served, *FIRST, "--iptables-mode", mode)

    def damage_and_repair() -> None:
        for _ in range(5):
            for command in doubled_jump(mode):
                assert served.pod.exec(command.split()).returncode == 0
            run(served, *FIRST, "--iptables-mode", mode)

    seen = under_load(served, outbound=False, work=damage_and_repair)
    assert_nothing_slipped(seen)


def one_command_at_a_time(mode: str) -> Iterator[str]:
    """What upstream does on a re-run: flush each chain, then add rule by rule."""
    if mode == "nftables":
        for chain, port in (("REDIRECT", 4143), ("OUTPUT", 4140)):
            name = f"inet proxy_init PROXY_INIT_{chain}"
            yield f"nft flush chain {name}"
            if chain == "OUTPUT":
                yield f"nft add rule {name} meta skuid 2102 return"
                yield f"nft add rule {name} oifname lo return"
            yield f"nft add rule {name} meta l4proto tcp redirect to :{port}"
        return
    for program in (f"iptables-{mode}", f"ip6tables-{mode}"):
        for chain, port in (("REDIRECT", 4143), ("OUTPUT", 4140)):
            name = f"PROXY_INIT_{chain}"
            yield f"{program} -t nat -F {name}"
            if chain == "OUTPUT":
                yield f"{program} -t nat -A {name} -m owner --uid-owner 2102 -j RETURN"
                yield f"{program} -t nat -A {name} -o lo -j RETURN"
            redirect = f"-p tcp -j REDIRECT --to-port {port}"
            yield f"{program} -t nat -A {name} {redirect}"


def test_load_sees_the_leak_of_single_commands(served: Lab, mode: str) -> None:
    """The same load catches connections that slip past a rule-by-rule re-install."""
    run(served, *FIRST, "--iptables-mode", mode)

    def rerun() -> None:
        for _ in range(RERUNS):
            for command in one_command_at_a_time(mode):
                assert served.pod.exec(command.split()).returncode == 0

    seen = under_load(served, outbound=False, work=rerun)
    assert seen.answers.get("app", 0) > 0
