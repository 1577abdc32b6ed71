"""Why a program did not do its work, when it is not the kernel's no."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from proxyinit.backend import title
from proxyinit.errors import CommandFailed, ProgramMissing
from proxyinit.failures import explained, no_backend, unusable
from proxyinit.iptables_rule import DumpError
from proxyinit.iptables_save import parse
from proxyinit.nft_list import parse_tables
from proxyinit.options import Options
from proxyinit.rules import IPV4
from proxyinit.testing import FakeKernel, run_on


@pytest.mark.parametrize(
    ("status", "stderr", "cause", "advice"),
    [
        pytest.param(
            -9,
            "",
            "signal 9 ended it, mostly for want of memory",
            "memory limit",
            id="the kernel's out-of-memory killer",
        ),
        pytest.param(
            -11,
            "",
            "signal 11 ended it",
            "reinstall the iptables package",
            id="a crash",
        ),
        pytest.param(
            -9,
            "stopped: it gave no answer within 31 s",
            "it gave no answer in time",
            "--lock-wait-secs",
            id="too slow",
        ),
    ],
)
def test_a_program_that_did_not_end_by_itself(
    status: int, stderr: str, cause: str, advice: str
) -> None:
    """Nobody refused a rule: what ended the program is said."""
    session = run_on(FakeKernel(), Options()).session
    failure = CommandFailed(["/sbin/iptables-nft-save"], status, stderr)

    said = str(explained(session, failure))

    assert said.startswith(f"iptables-nft-save failed with status {status}: {cause}")
    assert advice in said
    assert "refused" not in said


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE])
def test_limits_of_the_container_choose_no_backend(number: int) -> None:
    """What may pass in a moment is an error, and no other iptables is tried."""
    session = run_on(FakeKernel(), Options()).session
    said = f"can't start: {os.strerror(number)}"
    failure = CommandFailed(["/sbin/iptables-nft-save"], 127, said)

    with pytest.raises(CommandFailed, match="raise the container's limits"):
        unusable(session, "nft", failure)


def test_no_file_left_is_a_failure_like_others() -> None:
    """Where no file can be opened, the program that needed one is named."""
    code = (
        "import resource\n"
        "from proxyinit.errors import CommandFailed\n"
        "from proxyinit.runner import SystemRunner\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (5, 5))\n"
        "try:\n"
        "    SystemRunner().run(['/bin/true'])\n"
        "except CommandFailed as error:\n"
        "    print(error)\n"
        "    print(sum(open('/dev/null') is not None for _ in range(2)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    assert done.stdout == (
        "/bin/true failed with status 127: can't start: Too many open files\n2\n"
    )


@pytest.mark.parametrize("other_users", [True, False])
def test_users_of_a_namespace_of_their_own(*, other_users: bool) -> None:
    """iptables takes no rule for them from outside: then another backend may do it."""
    kernel = FakeKernel()
    kernel.other_users = other_users
    session = run_on(kernel, Options()).session
    failure = CommandFailed(
        ["/sbin/iptables-legacy-restore"],
        1,
        "iptables-restore: line 9 failed",
        stdin="-A PROXY_INIT_OUTPUT -m owner --uid-owner 2102 -j RETURN\n",
    )

    if other_users:
        assert "hostUsers: false" in str(unusable(session, "legacy", failure))
    else:
        with pytest.raises(CommandFailed, match="refused the rules"):
            unusable(session, "legacy", failure)


def test_a_folder_without_the_programs_is_named() -> None:
    """Who names a folder is told that only there was looked."""
    session = run_on(FakeKernel(), Options(bin_dir="/opt/fw/")).session
    missing = ProgramMissing("not found: iptables-save, ip6tables-save")

    said = str(no_backend([unusable(session, "plain", missing)]))

    assert said == (
        "nothing can redirect traffic here: iptables can't be used here: "
        "not found: iptables-save, ip6tables-save, in /opt/fw/. Next: put the programs "
        "there, or give --firewall-bin-path without a folder"
    )


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        ("plain", "iptables"),
        ("nft", "iptables-nft"),
        ("legacy", "iptables-legacy"),
        ("nftables", "nftables"),
    ],
)
def test_modes_have_the_names_of_their_programs(mode: str, name: str) -> None:
    """No program is called iptables-plain."""
    assert title(mode) == name


LONG = 'x" ' * 100_000


@pytest.mark.parametrize(
    "dump",
    [
        pytest.param(f"*nat\n{LONG}\nCOMMIT\n", id="no rule"),
        pytest.param(f"*nat\n:{LONG.replace(' ', '')}\nCOMMIT\n", id="no chain"),
        pytest.param(
            f'*nat\n-A OUTPUT -s "{"y" * 99_999}" -m\nCOMMIT', id="half a rule"
        ),
    ],
)
def test_a_message_quotes_the_start_of_what_makes_no_sense(dump: str) -> None:
    """Megabytes of garbage don't become megabytes of log."""
    with pytest.raises(DumpError) as told:
        parse(dump, IPV4)
    assert len(str(told.value)) < 1000


def test_a_message_quotes_the_start_of_a_strange_listing() -> None:
    """The same for what nft prints."""
    with pytest.raises(DumpError) as told:
        parse_tables(f"what is {'this ' * 100_000}")
    assert len(str(told.value)) < 1000
