"""One backend on this machine, iptables or nft: reading tables, feeding scripts."""

from __future__ import annotations

from proxyinit.errors import CommandFailed, ProgramMissing
from proxyinit.iptables_rule import DumpError
from proxyinit.iptables_save import parse
from proxyinit.record import Record
from proxyinit.rules import INET, IPV4, IPV6, OUR_TABLE, Ruleset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxyinit.logs import Log
    from proxyinit.rules import Version
    from proxyinit.runner import Runner

ALL_VERSIONS: tuple[Version, ...] = (IPV4, IPV6)

NFTABLES = "nftables"
KINDS = ("legacy", "nft", NFTABLES)
"""Where rules of ours can be: iptables' two kernel interfaces, and our own table of
nf_tables. `plain` is one of the first two by the machine's choice."""

PLACES: tuple[tuple[str, Version], ...] = (
    *(("legacy", version) for version in ALL_VERSIONS),
    *(("nft", version) for version in ALL_VERSIONS),
    (NFTABLES, INET),
)
"""Every table that may hold rules of ours: its kind, and whose packets it sees."""

_ABSENT = "Error: No such file or directory"
"""What nft says of a table that is not there."""

_UNREADABLE = "is incompatible, use 'nft' tool"
"""What iptables-nft-save prints, with status 0, instead of a table it can't show."""


class Programs(Record):
    """The programs of one IP version: names, or paths once they are found."""

    save: str
    restore: str


class Backend(Record):
    """A backend by its mode, the kind of tables it works on, and its programs."""

    name: str
    kind: str
    programs: dict[Version, Programs]

    def __str__(self) -> str:
        return NFTABLES if self.kind == NFTABLES else program_name(self.name, IPV4)


def title(mode: str) -> str:
    """A mode's name for people: ``iptables-nft``, ``iptables``, or ``nftables``."""
    return mode if mode == NFTABLES else program_name(mode, IPV4)


def program_name(mode: str, version: Version, suffix: str = "") -> str:
    """Such as ``ip6tables-legacy-save``."""
    variant = "" if mode == "plain" else f"-{mode}"
    return f"ip{'' if version == IPV4 else '6'}tables{variant}{suffix}"


def family(version: Version) -> str:
    """The name of an IP version for people; nft's own for a table of both."""
    return {IPV4: "IPv4", IPV6: "IPv6", INET: "inet"}[version]


def locate(runner: Runner, mode: str, versions: Sequence[Version]) -> Backend:
    """The backend with its programs found, or `ProgramMissing` naming all absent."""
    if mode == NFTABLES:
        path = runner.find("nft")
        if path is None:
            raise ProgramMissing("not found: nft")
        return Backend(mode, mode, {INET: Programs(path, path)})
    programs: dict[Version, Programs] = {}
    absent = []
    for version in versions:
        paths = []
        for suffix in ("-save", "-restore"):
            name = program_name(mode, version, suffix)
            path = runner.find(name)
            if path is None:
                absent.append(name)
            paths.append(path or name)
        programs[version] = Programs(*paths)
    if absent:
        raise ProgramMissing(f"not found: {', '.join(absent)}")
    if mode != "plain":
        return Backend(mode, mode, programs)
    kinds = {version: _plain_kind(runner, programs[version]) for version in versions}
    if len(set(kinds.values())) > 1:
        raise ProgramMissing(
            "the plain programs are not one backend: "
            + ", ".join(f"{program_name(mode, v)} is {k}" for v, k in kinds.items())
        )
    return Backend(mode, kinds[versions[0]], programs)


def unlocated(mode: str, versions: Sequence[Version]) -> Backend:
    """The backend by its programs' names alone, for a plan without a machine."""
    if mode == NFTABLES:
        return Backend(mode, mode, {INET: Programs("nft", "nft")})
    programs = {
        version: Programs(
            program_name(mode, version, "-save"),
            program_name(mode, version, "-restore"),
        )
        for version in versions
    }
    return Backend(mode, mode, programs)


def _plain_kind(runner: Runner, programs: Programs) -> str:
    """Which kernel interface plain iptables drives: its version line says it."""
    try:
        said = runner.run([programs.save, "--version"]).stdout
    except CommandFailed:
        said = ""
    return "nft" if "nf_tables" in said else "legacy"


class Tables:
    """The nat tables of the namespace this process is in, through the backends."""

    def __init__(self, runner: Runner, log: Log, lock_wait_s: int) -> None:
        self._runner = runner
        self._log = log
        self._lock_wait_s = lock_wait_s
        self.dumps: dict[Version, str] = {}
        """What was last read of each family, as the program printed it."""

    def read(
        self, backend: Backend, versions: Sequence[Version]
    ) -> dict[Version, Ruleset]:
        """The live nat tables. In legacy this creates those that are absent.

        Families are read side by side; reading takes no lock.
        """
        if backend.kind == NFTABLES:
            return {INET: self._list(backend)}
        commands = [[backend.programs[v].save, "-t", "nat"] for v in versions]
        outputs = self._runner.run_all(commands)
        tables = {}
        for version, argv, output in zip(versions, commands, outputs, strict=True):
            self._log.debug(" ".join(argv), stdout=output.stdout)
            self.dumps[version] = output.stdout
            if _UNREADABLE in output.stdout:
                raise CommandFailed(argv, 0, output.stdout)
            try:
                tables[version] = parse(output.stdout, version)
            except DumpError as error:
                message = f"its output makes no sense: {error}"
                raise CommandFailed(argv, 0, message) from error
        return tables

    def _list(self, backend: Backend) -> Ruleset:
        """Our native table; empty when there is none."""
        # Numbers for all that has a name: once was not enough before nft 0.9.1,
        # and looking names up can mean asking a directory server.
        argv = [backend.programs[INET].save, "-nnn", "list", "table", "inet", OUR_TABLE]
        try:
            listing = self._runner.run(argv).stdout
        except CommandFailed as error:
            if _ABSENT not in error.stderr:
                raise
            listing = ""
        self._log.debug(" ".join(argv), stdout=listing)
        self.dumps[INET] = listing
        from proxyinit.nft_list import parse as parse_listing  # noqa: PLC0415

        try:
            return parse_listing(listing)
        except DumpError as error:
            message = f"its output makes no sense: {error}"
            raise CommandFailed(argv, 0, message) from error

    def feed(self, backend: Backend, version: Version, script: str) -> None:
        """Let the kernel take a whole script as one transaction, or nothing of it."""
        argv = self._restore(backend, version)
        transaction = self.transaction(backend, version, script)
        self._log.info(f"{' '.join(argv)} <<EOF\n{transaction}EOF")
        self._runner.run(argv, transaction)

    def transaction(self, backend: Backend, version: Version, script: str) -> str:
        """The exact bytes that are fed: the script under a line that says to what."""
        path, *options = self._restore(backend, version)
        program = path.rpartition("/")[2]
        return f"# {family(version)}: {' '.join((program, *options))}\n{script}"

    def _restore(self, backend: Backend, version: Version) -> list[str]:
        if backend.kind == NFTABLES:
            return [backend.programs[version].restore, "-f", "-"]
        # Without --wait iptables-legacy 1.8.8 to 1.8.10 blocks for ever on a held
        # lock, others fail at once (contract, interception 3.13).
        wait = f"--wait={self._lock_wait_s}"
        return [backend.programs[version].restore, "--noflush", wait]
