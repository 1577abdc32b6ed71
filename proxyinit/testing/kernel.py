"""A kernel in memory: what iptables, nft and /proc answer, without root or a machine.

`FakeKernel` takes the place of `runner.SystemRunner` and of `host.Host`. It keeps
a nat table per kernel interface and IP version and the native tables, answers the
save and restore programs of iptables 1.8.9 and nft 1.0.6, swaps tables as a whole
or not at all, and can be told to lack, to refuse and to be interfered with; the
texts are those of the real programs (contract, interception 5). `cases` holds it to
the real kernel: the same cases pass here and there.
"""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxyinit.backend import Tables
from proxyinit.errors import CommandFailed, NamespaceBusy, SysctlError
from proxyinit.host import Host
from proxyinit.journal import Journal
from proxyinit.logs import Log
from proxyinit.options import Options
from proxyinit.privileges import LockHolder, Privileges
from proxyinit.rules import INET
from proxyinit.runner import Output
from proxyinit.session import Session
from proxyinit.testing.native import FakeNative, NativeRefused
from proxyinit.testing.table import FakeTable, Kind, Refused

if TYPE_CHECKING:
    from proxyinit.rules import Version

KINDS: tuple[Kind, ...] = ("legacy", "nft")
VERSIONS: tuple[Version, ...] = (4, 6)
LOCK_FILE = "/run/xtables.lock"
OURS = "inet proxy_init"
"""Our native table."""
FOLDER = "/usr/sbin"
"""Where every program of this machine lies."""


# === what can be wrong with a machine ===


@dataclass
class Fault:
    """Makes programs fail whose name matches the pattern `program`, `times` often."""

    program: str
    status: int
    stderr: str
    times: int = 1000

    def hits(self, program: str) -> bool:
        """Whether a run of the program fails by this fault; counts it."""
        if self.times == 0 or not fnmatch.fnmatchcase(program, self.program):
            return False
        self.times -= 1
        return True


_V = "v1.8.9"

CONDITIONS: dict[str, list[Fault]] = {}
"""What a machine may be like, and how programs fail there, word for word."""

for _line in r"""
no ip_tables | *-legacy-save | 1 | iptables-save v1.8.9 (legacy): Cannot initialize: iptables who? (do you need to insmod?)
no ip_tables | *-legacy-restore | 2 | iptables-restore v1.8.9 (legacy): iptables-restore: unable to initialize table 'nat'\n\nError occurred at line: 2
no legacy nat table | *-legacy-save | 1 | iptables-save v1.8.9 (legacy): Cannot initialize: Table does not exist (do you need to insmod?)
no legacy nat table | *-legacy-restore | 2 | iptables-restore v1.8.9 (legacy): iptables-restore: unable to initialize table 'nat'\n\nError occurred at line: 2
no nfnetlink | *-nft-* | 1 | iptables-nft-save/1.8.9 (nf_tables) Failed to initialize nft: Protocol not supported
no nf_tables | *-nft-* | 4 | iptables-nft-save v1.8.9 (nf_tables): Could not fetch rule set generation id: Invalid argument
no capabilities | *-legacy-* | 1 | iptables-save v1.8.9 (legacy): Cannot initialize: Permission denied (you must be root)
no capabilities | *-nft-* | 4 | iptables-nft-save v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)
SELinux | *-legacy-* | 1 | iptables-save v1.8.9 (legacy): Cannot initialize: Permission denied
read-only lock file | *-legacy-restore | 4 | Fatal: can't open lock file /run/xtables.lock: Read-only file system
lock file of root | *-legacy-restore | 4 | Fatal: can't open lock file /run/xtables.lock: Permission denied
no lock file | *-legacy-restore | 4 | Fatal: can't open lock file /nonexistent/dir/lock: No such file or directory
held lock | *-legacy-restore | 4 | Can't lock /run/xtables.lock: Resource temporarily unavailable\nAnother app is currently holding the xtables lock. Stopped waiting after 5s.
no REDIRECT | *-legacy-restore | 1 | Warning: Extension REDIRECT revision 0 not supported, missing kernel module?\niptables-restore: line 9 failed
no REDIRECT | *-nft-restore | 4 | Warning: Extension REDIRECT revision 0 not supported, missing kernel module?\niptables-nft-restore v1.8.9 (nf_tables): \nline 5: RULE_APPEND failed (No such file or directory): rule in chain PROXY_INIT_REDIRECT
rules refused | *-legacy-restore | 1 | iptables-restore: line 9 failed
rules refused | *-nft-restore | 4 | iptables-nft-restore v1.8.9 (nf_tables): \nline 5: RULE_APPEND failed (Invalid argument): rule in chain PREROUTING
no nfnetlink | nft | 3 | mnl.c:60: Unable to initialize Netlink socket: Protocol not supported
no nf_tables | nft | 1 | netlink: Error: cache initialization failed: Invalid argument
no capabilities | nft | 1 | Operation not permitted (you must be root)\nnetlink: Error: cache initialization failed: Operation not permitted
no REDIRECT | nft | 1 | /dev/stdin:19:28-35: Error: Could not process rule: No such file or directory
rules refused | nft | 1 | /dev/stdin:9:1-9: Error: Could not process rule: Invalid argument
no IPv6 | ip6tables-legacy-* | 1 | ip6tables-save v1.8.9 (legacy): Cannot initialize: Address family not supported by protocol
""".strip().splitlines():  # noqa: E501  (the texts are looked for as they are)
    _name, _program, _status, _text = _line.split(" | ")
    CONDITIONS.setdefault(_name, []).append(
        Fault(_program, int(_status), _text.replace(r"\n", "\n") + "\n")
    )


@dataclass(frozen=True)
class Call:
    """A program that was run, or a setting that was checked or made."""

    argv: tuple[str, ...]
    stdin: str = ""

    @property
    def program(self) -> str:
        """The name without its folder."""
        return self.argv[0].rpartition("/")[2]

    @property
    def feeds(self) -> bool:
        """Whether it is to change tables."""
        return self.program.endswith("-restore") or self.argv[1:] == ("-f", "-")


# === the kernel ===


class FakeKernel(Host):
    """Stands for `runner.Runner` and for `host.Host` at once.

    `plain` is what ``iptables`` without a suffix drives, in each family. All else
    is said by changing the attributes:

    - `programs`: names of those that are installed
    - `tables`: by (kind, version); a table that was never touched is not there
    - `native`: the tables of nf_tables that are not iptables' own
    - `faults`: why programs fail, the first that hits decides; see `impose`
    - `interference`: called one by one, each before the next transaction is taken,
      as other programs would change tables between a reading and a writing
    - `silent`: kinds of which the kernel does not say whether nat exists
    - `asleep`: IP versions whose nft nat table is dormant
    - `ipv6`, `holders`, `held`, `capable`, `other_users`, `sysctl_fault`, `busy`:
      what Host's methods tell

    `calls` is all that was done, in order; `close_wait` the sysctl as it was set.
    """

    def __init__(self, *, plain: Kind = "nft") -> None:
        self.plain: dict[Version, Kind] = dict.fromkeys(VERSIONS, plain)
        self.programs = {
            f"ip{six}tables{variant}-{action}"
            for six in ("", "6")
            for variant in ("", "-legacy", "-nft")
            for action in ("save", "restore")
        }
        self.programs.add("nft")
        self.tables: dict[tuple[Kind, Version], FakeTable] = {}
        self.native = FakeNative()
        self.faults: list[Fault] = []
        self.interference: list[Callable[[FakeKernel], object]] = []
        self.silent: set[str] = set()
        self.asleep: set[Version] = set()
        self.ipv6 = True
        self.holders: list[LockHolder] = []
        self.held = Privileges(0, 0x3000, 0x3000, no_new_privs=False)
        self.capable: set[str] = set()
        self.sysctl_fault = ""
        self.busy = ""
        self.other_users = False
        self.close_wait: int | None = None
        self.calls: list[Call] = []

    def impose(self, condition: str, program: str = "*", times: int = 1000) -> None:
        """Let one of `CONDITIONS` hold, for the programs that match the pattern."""
        for fault in CONDITIONS[condition]:
            self.faults += (
                Fault(name, fault.status, fault.stderr, times)
                for name in sorted(self.programs)
                if fnmatch.fnmatchcase(name, fault.program)
                and fnmatch.fnmatchcase(name, program)
            )

    def load(self, kind: Kind, version: Version, *lines: str) -> None:
        """Feed lines of a transaction, as another program that leaves no `Call`."""
        script = "\n".join(["*nat", *lines, "COMMIT", ""])
        self.table(kind, version).feed(script)

    def table(self, kind: Kind, version: Version) -> FakeTable:
        """The table, made when it was not there."""
        return self.tables.setdefault((kind, version), FakeTable())

    def state(self) -> dict[tuple[str, Version], str]:
        """Every table that exists, as a dump: equal states have equal answers."""
        state: dict[tuple[str, Version], str] = {
            key: table.dump() for key, table in sorted(self.tables.items())
        }
        for name in sorted(self.native.tables):
            kind = "nftables" if name == OURS else name
            state[kind, INET] = self.native.listing(name)
        return state

    def fed(self) -> list[str]:
        """What the restore programs and nft were given, in order, refused or not."""
        return [call.stdin for call in self.calls if call.feeds]

    # --- Runner ---

    def find(self, name: str) -> str | None:
        """The path of a program that is installed."""
        return f"{FOLDER}/{name}" if name in self.programs else None

    def run(self, argv: Sequence[str], stdin: str = "") -> Output:
        """Run a save or restore program."""
        call = Call(tuple(argv), stdin)
        self.calls.append(call)
        if argv[0] != self.find(call.program):
            raise CommandFailed(argv, 127, "can't start: No such file or directory")
        if call.program == "nft":
            return self._nft(call)
        head, _, action = call.program.rpartition("-")
        family, _, variant = head.partition("-")
        version: Version = 6 if family == "ip6tables" else 4
        kind = self.plain[version]
        if variant:
            kind = "nft" if variant == "nft" else "legacy"
        name = f"{head if kind == 'nft' else family}-{action}"
        if argv[1:] == ["--version"]:
            self._fail(call, call.program)
            title = "legacy" if kind == "legacy" else "nf_tables"
            return Output(f"{name} {_V} ({title})\n", "")
        if action == "restore" and self.interference:
            self.interference.pop(0)(self)
        self._fail(call, f"{family}-{kind}-{action}")
        if action == "save":
            return self._save(kind, version, name, list(argv[1:]))
        if "--noflush" not in argv:
            raise ValueError(f"a table would be emptied first: {' '.join(argv)}")
        return self._restore(kind, version, name, call)

    def run_all(self, commands: Sequence[Sequence[str]]) -> list[Output]:
        """Run programs in turn; all run before the first that failed is raised."""
        outputs: list[Output] = []
        errors: list[CommandFailed] = []
        for argv in commands:
            try:
                outputs.append(self.run(argv))
            except CommandFailed as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return outputs

    def _fail(self, call: Call, program: str) -> None:
        if program.startswith("ip6") and not self.ipv6:
            self.impose("no IPv6")
        for fault in self.faults:
            if fault.hits(program):
                raise CommandFailed(
                    call.argv, fault.status, fault.stderr, stdin=call.stdin
                )

    def _save(
        self, kind: Kind, version: Version, name: str, options: list[str]
    ) -> Output:
        warning = ""
        if kind == "nft" and ("legacy", version) in self.tables:
            warning = (
                "# Warning: iptables-legacy tables present, use iptables-legacy-save "
                "to see them\n"
            )
        if options not in ([], ["-t", "nat"]):
            raise ValueError(f"expected no options or '-t nat': {options}")
        if not options and (kind, version) not in self.tables:
            return Output("", warning)
        # Only legacy creates the table that is asked for.
        table = self.tables.get((kind, version), FakeTable())
        if kind == "legacy":
            table = self.table(kind, version)
        title = f"{name} {_V}{'' if kind == 'legacy' else ' (nf_tables)'}"
        date = "on Fri Nov 20 11:34:28 2026"
        return Output(
            f"# Generated by {title} {date}\n{table.dump()}# Completed {date}\n",
            warning,
        )

    def _restore(self, kind: Kind, version: Version, name: str, call: Call) -> Output:
        changed = copy.deepcopy(self.tables.get((kind, version), FakeTable()))
        try:
            changed.feed(call.stdin)
        except Refused as refusal:
            status, said = refusal.said[kind]
            stderr = f"{name}: {said}\n"
            failed = CommandFailed(call.argv, status, stderr, stdin=call.stdin)
            raise failed from refusal
        self.tables[kind, version] = changed
        return Output("", "")

    def _nft(self, call: Call) -> Output:
        if call.feeds and self.interference:
            self.interference.pop(0)(self)
        self._fail(call, "nft")
        numeric, verb, *what = call.argv[1:] if not call.feeds else ("", "feed")
        try:
            if verb == "feed":
                self.native.feed(call.stdin)
                return Output("", "")
            if (numeric, verb, *what[:1]) == ("-nnn", "list", "table"):
                return Output(self.native.listing(" ".join(what[1:])), "")
        except NativeRefused as refusal:
            said = f"{refusal}"
            failed = CommandFailed(call.argv, 1, said, stdin=call.stdin)
            raise failed from refusal
        if (numeric, verb, *what) == ("-nnn", "list", "ruleset"):
            return Output(self.native.dump(), "")
        raise ValueError(f"expected a script or a listing: {' '.join(call.argv)}")

    # --- Host ---

    def has_ipv6(self) -> bool:
        """Whether the kernel speaks IPv6."""
        return self.ipv6

    def legacy_has_nat(self, version: Version) -> bool | None:
        """Whether a legacy nat table was made; None when the kernel is silent."""
        return self._has_nat("legacy", version)

    def nft_has_nat(self, version: Version) -> bool | None:
        """Whether an nft nat table was made; None when the kernel is silent."""
        return self._has_nat("nft", version)

    def nftables_has_ours(self) -> bool | None:
        """Whether our native table was made; None when the kernel is silent."""
        return None if "nftables" in self.silent else OURS in self.native.tables

    def nft_nat_is_dormant(self, version: Version) -> bool:
        """Whether `asleep` says so."""
        return version in self.asleep

    def has_native_tables(self) -> bool:
        """Whether there are native tables besides ours."""
        return bool(self.native.tables.keys() - {OURS})

    def _has_nat(self, kind: Kind, version: Version) -> bool | None:
        return None if kind in self.silent else (kind, version) in self.tables

    def has_other_users(self) -> bool:
        """What `other_users` says."""
        return self.other_users

    def privileges(self) -> Privileges:
        """What `held` says."""
        return self.held

    def file_capabilities(self, path: str) -> int:
        """NET_ADMIN and NET_RAW for paths among `capable`, nothing for others."""
        return 0x3000 if path in self.capable else 0

    def lock_file(self) -> str:
        """The default path."""
        return LOCK_FILE

    def lock_holders(self) -> list[LockHolder]:
        """What `holders` says."""
        return self.holders

    def lock_namespace(self, wait_s: float) -> None:
        """Raises `NamespaceBusy` when `busy` is set."""
        self.calls.append(Call(("lock_namespace", f"{wait_s:g}")))
        if self.busy:
            raise NamespaceBusy(self.busy)

    def check_sysctl(self) -> None:
        """Raises `SysctlError` when `sysctl_fault` is set."""
        self.calls.append(Call(("check_sysctl",)))
        if self.sysctl_fault:
            raise SysctlError(self.sysctl_fault)

    def set_close_wait(self, seconds: int) -> None:
        """Kept in `close_wait`."""
        self.calls.append(Call(("set_close_wait", str(seconds))))
        self.close_wait = seconds


@dataclass(frozen=True)
class FakeRun:
    """A session on a fake kernel; `logged` and `shown` collect what it says."""

    session: Session
    logged: list[str]
    shown: list[str]

    def said(self, level: str) -> list[str]:
        """The log lines of a level."""
        return [line for line in self.logged if f" level={level} " in line]


def run_on(kernel: FakeKernel, options: Options, level: str = "debug") -> FakeRun:
    """A session with everything of the kernel's; its clock stands still."""
    logged: list[str] = []
    shown: list[str] = []
    log = Log(level, write=logged.append, clock=lambda: 0)
    tables = Tables(kernel, log, options.lock_wait_s)
    session = Session(options, log, kernel, kernel, tables, Journal(), shown.append)
    return FakeRun(session, logged, shown)
