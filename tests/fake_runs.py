"""Runs on a kernel in memory: those that succeed, those that change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proxyinit import nft_list
from proxyinit.cleanup import cleanup
from proxyinit.config import RedirectConfig
from proxyinit.errors import ProxyInitError
from proxyinit.install import install
from proxyinit.iptables_save import parse
from proxyinit.options import Options
from proxyinit.plan import plan, plan_inet
from proxyinit.reconcile import differences, ours
from proxyinit.rules import INET, PortRange
from proxyinit.runner import Output
from proxyinit.testing import FakeKernel, FakeRun, run_on
from proxyinit.testing.kernel import Call

if TYPE_CHECKING:
    from proxyinit.rules import Version


CONFIG = RedirectConfig(4143, 4140, (2102,))
OTHER = RedirectConfig(4144, 4140, (2102,), inbound_ports_to_ignore=(PortRange(1, 9),))
JUMP = '-A OUTPUT -m comment --comment "proxy-init/install-proxy-init-output" '
JUMP += "-j PROXY_INIT_OUTPUT"
OURS = (":PROXY_INIT_OUTPUT - [0:0]", JUMP)
FOREIGN = ("-A PREROUTING -p tcp -m tcp --dport 22 -j LOG", "-A INPUT -p tcp -j ACCEPT")
NATIVE: tuple[str, Version] = ("nftables", INET)
"""Where the native table stands in `FakeKernel.state`."""
RIVAL = """\
table inet istio {
	chain mine {
		type nat hook output priority -100; policy accept;
		meta l4proto tcp counter jump more
	}

	chain more {
		tcp dport 80 redirect to :15001
	}
}
"""


def done(
    kernel: FakeKernel, config: RedirectConfig = CONFIG, **options: object
) -> FakeRun:
    """A run that must succeed."""
    run = run_on(kernel, Options(**options))  # type: ignore[arg-type]
    install(run.session, config)
    return run


def failed(
    kernel: FakeKernel, error: type[ProxyInitError], said: str, **options: object
) -> FakeRun:
    """A run that must fail so, and leave everything as it was."""
    before = held(kernel)
    run = run_on(kernel, Options(**options))  # type: ignore[arg-type]
    with pytest.raises(error) as caught:
        install(run.session, CONFIG)
    assert said in str(caught.value)
    assert held(kernel) == before
    assert kernel.close_wait is None
    return run


def cleaned(kernel: FakeKernel, **options: object) -> FakeRun:
    """A cleanup that must succeed."""
    run = run_on(kernel, Options(**options))  # type: ignore[arg-type]
    cleanup(run.session)
    return run


def held(kernel: FakeKernel) -> dict[tuple[str, Version], str]:
    """All tables with anything in them: reading legacy nat makes an empty one."""
    empty = FakeKernel().table("nft", 4).dump()
    return {key: dump for key, dump in kernel.state().items() if dump != empty}


def in_place(
    kernel: FakeKernel, config: RedirectConfig = CONFIG, *, ipv6: bool = True
) -> set[tuple[str, Version]]:
    """Where the redirect stands whole; nothing of ours may be anywhere else."""
    found = set()
    for (kind, version), dump in kernel.state().items():
        if (kind, version) == NATIVE:
            assert nft_list.parse(dump) == plan_inet(config, ipv6=ipv6)
            found.add(NATIVE)
        elif version != INET:
            table = parse(dump, version)
            if ours(table).chains:
                assert differences(plan(config, version), table) == []
                found.add((kind, version))
    return found


def both(kind: str) -> set[tuple[str, Version]]:
    return {(kind, 4), (kind, 6)}


def writes(kernel: FakeKernel) -> list[str]:
    """The programs that were fed something, in order, nft among them."""
    return [call.program for call in kernel.calls if call.feeds]


def feed(kernel: FakeKernel, script: str) -> None:
    """As another program that leaves no `Call`."""
    kernel.native.feed(script)


class After(FakeKernel):
    """A kernel where another program feeds a script behind each of ours, at first."""

    def __init__(self, script: str, times: int = 99) -> None:
        super().__init__()
        self.script = script
        self.times = times

    def _nft(self, call: Call) -> Output:
        output = super()._nft(call)
        if call.feeds and self.times:
            self.times -= 1
            feed(self, self.script)
        return output
