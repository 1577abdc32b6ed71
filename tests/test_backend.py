"""Reading through a frontend: what its output may be, and what it can't be."""

from __future__ import annotations

import pytest

from proxyinit.backend import Backend, Tables, locate, program_name, unlocated
from proxyinit.errors import CommandFailed, ProgramMissing
from proxyinit.logs import Log
from proxyinit.rules import IPV4, IPV6
from proxyinit.runner import Output
from proxyinit.testing import FakeKernel


class Saying(FakeKernel):
    """A kernel whose save programs print one text, whatever is asked."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def _save(self, *_: object) -> Output:
        return Output(self.text, "")


def read(text: str) -> object:
    kernel = Saying(text)
    tables = Tables(kernel, Log("error", write=print), 5)
    return tables.read(locate(kernel, "nft", [IPV4]), [IPV4])


def test_output_that_makes_no_sense() -> None:
    """It fails as a program fails, with the line at fault."""
    with pytest.raises(CommandFailed, match="expected a rule, '-A CHAIN ") as caught:
        read("*nat\nWARNING: something\nCOMMIT\n")

    assert caught.value.status == 0


def test_a_table_that_iptables_nft_can_t_show() -> None:
    """Native rules in the same table are never taken for an empty one."""
    with pytest.raises(CommandFailed, match="is incompatible, use 'nft'"):
        read("# Table `nat' is incompatible, use 'nft' tool.\n")


def test_names() -> None:
    """Every program has the name that distributions give it."""
    assert program_name("legacy", IPV4) == "iptables-legacy"
    assert program_name("nft", IPV6, "-save") == "ip6tables-nft-save"
    assert program_name("plain", IPV6, "-restore") == "ip6tables-restore"


def test_all_absent_programs_are_named() -> None:
    """Not just the first."""
    kernel = FakeKernel()
    kernel.programs -= {"iptables-nft-save", "ip6tables-nft-restore"}

    with pytest.raises(ProgramMissing, match="iptables-nft-save, ip6tables-nft-rest"):
        locate(kernel, "nft", [IPV4, IPV6])


def test_located() -> None:
    """The paths found; or, for a plan without a machine, the names alone."""
    found = locate(FakeKernel(), "legacy", [IPV6])

    assert isinstance(found, Backend)
    assert found.programs[IPV6].restore == "/usr/sbin/ip6tables-legacy-restore"
    assert unlocated("nft", [IPV4]).programs[IPV4].save == "iptables-nft-save"
    assert str(found) == "iptables-legacy"
