"""Whatever the flags accept, the kernel keeps it as it was planned.

What the kernel keeps is read back and compared by every run; one that finds
other words for the same rule would fail, or write for ever.
"""

from __future__ import annotations

import ipaddress

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from installed import PROGRAM

from proxyinit.lab import Namespace
from proxyinit.lab.tables import dump, versions_of

ids = st.one_of(st.integers(0, 4294967294), st.sampled_from([0, 2**31, 4294967294]))
ports = st.integers(1, 65535)


@st.composite
def ranges(draw: st.DrawFn) -> str:
    """A port, or a range, also of one port."""
    low = draw(ports)
    high = draw(st.one_of(st.just(low), st.integers(low, 65535)))
    return str(low) if draw(st.booleans()) and low == high else f"{low}-{high}"


@st.composite
def subnets(draw: st.DrawFn) -> str:
    """A CIDR of either family, with host bits or without."""
    address = draw(st.ip_addresses())
    if draw(st.booleans()):  # IPv6 addresses that are written with dots
        four = draw(st.ip_addresses(v=4))
        address = ipaddress.IPv6Address(
            draw(st.sampled_from([0, 0xFFFF << 32])) | int(four)
        )
    return f"{address}/{draw(st.integers(0, address.max_prefixlen))}"


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """Arguments without a mistake."""
    inbound, outbound = draw(st.lists(ports, min_size=2, max_size=2, unique=True))
    lists = {
        "--proxy-uid": ids,
        "--proxy-gid": ids,
        "--ports-to-redirect": ports,
        "--inbound-ports-to-ignore": ranges(),
        "--outbound-ports-to-ignore": ranges(),
        "--subnets-to-ignore": subnets(),
        "--outbound-subnets-to-ignore": subnets(),
    }
    line = [f"-p={inbound}", f"-o={outbound}"]
    for flag, items in lists.items():
        chosen = draw(st.lists(items, max_size=20))
        if chosen:
            line.append(f"{flag}={','.join(map(str, chosen))}")
    return line


@settings(
    max_examples=25,
    deadline=None,  # the machine is not ours alone
    derandomize=True,
    # One namespace for all examples: each run replaces what the last one left.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(line=command_lines())
def test_kernel_keeps_what_was_planned(
    namespace: Namespace, mode: str, line: list[str]
) -> None:
    """A first run puts it in place, a second one finds nothing to write."""
    arguments = [PROGRAM, *line, "--iptables-mode", mode]
    first = namespace.exec(arguments)
    assert first.returncode == 0, first.stderr
    second = namespace.exec(arguments)
    assert second.returncode == 0, second.stderr
    assert second.stderr.count("nothing written") == len(versions_of(mode))


def test_thousands_of_ports(namespace: Namespace, mode: str) -> None:
    """Every second port there is, one by one, fills two thousand rules, or one set."""
    arguments = ["-p", "4143", "-o", "4140", "-u", "2102", "--iptables-mode", mode]
    for first in range(1, 65536, 8192):  # one argument holds 128 KiB
        odd = ",".join(map(str, range(first, first + 8192, 2)))
        arguments += ["--inbound-ports-to-ignore", odd]
    arguments += ["--log-level", "warn"]
    done = namespace.exec([PROGRAM, *arguments])
    assert (done.returncode, done.stderr) == (0, "")
    version = versions_of(mode)[-1]
    lists = dump(namespace, mode, version).count("dport")
    assert lists == (1 if mode == "nftables" else -(-32768 // 15))
