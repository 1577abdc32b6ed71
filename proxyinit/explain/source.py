"""The rules that a packet is followed through: planned, saved, or live."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from proxyinit import netns, options
from proxyinit.backend import Tables
from proxyinit.errors import CommandFailed, ProxyInitError
from proxyinit.explain.dump import is_nat, read_dump
from proxyinit.explain.flags import is_planned, quiet
from proxyinit.explain.own import (
    FIB_TRIE,
    IPV6_ROUTE,
    own_of_fib_trie,
    own_of_ipv6_route,
)
from proxyinit.explain.packet import version_of
from proxyinit.host import Host, read_text
from proxyinit.iptables_rule import DumpError
from proxyinit.journal import Journal
from proxyinit.logs import Log
from proxyinit.nft_list import parse_tables
from proxyinit.pflag import Arguments
from proxyinit.plan import plan, plan_inet
from proxyinit.rules import INET, IPV4, IPV6, OUR_TABLE, Ruleset, Subnet
from proxyinit.runner import SystemRunner
from proxyinit.session import Session
from proxyinit.survey import survey

MAX_DUMP_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """Tables by name, and the addresses of the namespace they are from, if known.

    `unread` says of tables that exist and could not be read, why.
    """

    tables: tuple[tuple[str, Ruleset], ...]
    own: tuple[Subnet, ...] | None = None
    unread: tuple[str, ...] = ()


def source(arguments: Arguments) -> Source:
    """The rules that the arguments name; raises `ProxyInitError` without any."""
    if is_planned(arguments):
        return Source(tuple(_planned(arguments)))
    if "dump" in arguments.given:
        name = arguments.given["dump"][-1]
        target: Any = arguments.values["to"]
        version = version_of(target.address)
        dump = read_dump(_contents(name), version)
        return Source(dump.tables, unread=dump.unread)
    return _live(arguments)


def _planned(arguments: Arguments) -> list[tuple[str, Ruleset]]:
    config = options.redirect_config(arguments)
    chosen = options.options(quiet(arguments))
    if chosen.mode == "nftables":
        return [("planned, nftables", plan_inet(config, ipv6=chosen.ipv6))]
    versions = (IPV4, IPV6) if chosen.ipv6 else (IPV4,)
    name = f"planned, {chosen.mode}"
    return [(name, plan(config, version)) for version in versions]


def _contents(name: str) -> str:
    """A file's text, or standard input's; bytes that are no UTF-8 survive."""
    try:
        fd = os.dup(0) if name == "-" else os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        with open(fd, "rb") as file:  # noqa: PTH123  (a descriptor, not a path)
            data = file.read(MAX_DUMP_BYTES + 1)
    except OSError as error:
        raise ProxyInitError(
            f"can't read the dump {name!r}: {error.strerror}; expected a file with "
            "what iptables-save or 'nft list ruleset' printed, or - for standard input"
        ) from error
    if len(data) > MAX_DUMP_BYTES:
        raise ProxyInitError(
            f"the dump {name!r} has more than {MAX_DUMP_BYTES >> 20} MiB: expected "
            "what iptables-save or 'nft list ruleset' printed"
        )
    return data.decode("utf-8", "surrogateescape")


def _live(arguments: Arguments) -> Source:
    """What a namespace holds; the process moves there, if one is named."""
    chosen = options.options(quiet(arguments))
    if chosen.netns:
        fd = netns.open_namespace(chosen.netns)
        netns.enter(fd)
        os.close(fd)
    log = Log(str(arguments.values["log-level"]), str(arguments.values["log-format"]))
    runner = SystemRunner(chosen.bin_dir)
    tables = Tables(runner, log, chosen.lock_wait_s)
    session = Session(chosen, log, Host(), runner, tables, Journal(), _nothing)
    found = survey(session)
    named = [
        (_name(kind), _asleep(session, kind, table))
        for (kind, _), table in found.tables.items()
    ]
    unread = [
        f"{_name(kind)}, {_FAMILIES[version]}, could not be read: {problem}"
        for (kind, version), problem in found.problems.items()
    ]
    if session.host.has_native_tables():
        try:
            named += _native(runner)
        except (CommandFailed, DumpError) as error:
            unread.append(f"other tables of nftables could not be read: {error}")
    return Source(tuple(named), own_addresses(), tuple(unread))


_FAMILIES = {IPV4: "IPv4", IPV6: "IPv6", INET: "IPv4 and IPv6"}
_READ_ELSEWHERE = (("inet", OUR_TABLE), ("ip", "nat"), ("ip6", "nat"))
"""Ours, and those of iptables-nft, which its own programs can read."""


def _native(runner: SystemRunner) -> Iterator[tuple[str, Ruleset]]:
    """Other nat tables of nf_tables, from a listing that changes nothing."""
    nft = runner.find("nft")
    if nft is None:
        raise CommandFailed(["nft"], 127, "", message="nft is not installed")
    listing = runner.run([nft, "-nnn", "list", "ruleset"]).stdout
    for table in parse_tables(listing):
        if (table.family, table.name) not in _READ_ELSEWHERE and is_nat(table):
            yield f"nftables, table {table.family} {table.name}", table.ruleset


def _asleep(session: Session, kind: str, table: Ruleset) -> Ruleset:
    """The table; marked where iptables-nft's is dormant, which its dump hides."""
    if kind == "nft" and session.host.nft_nat_is_dormant(table.version):
        return Ruleset(table.version, table.chains, ("flags dormant",))
    return table


def _nothing(text: str) -> None:
    """Explaining shows nothing on the way."""


def _name(kind: str) -> str:
    return kind if kind == "nftables" else f"iptables-{kind}"


def own_addresses() -> tuple[Subnet, ...] | None:
    """The addresses of the namespace this thread is in; None when /proc is silent."""
    four, six = read_text(FIB_TRIE), read_text(IPV6_ROUTE)
    if four is None:
        return None
    own = own_of_fib_trie(four) | own_of_ipv6_route(six or "")
    return tuple(sorted(own, key=str))
