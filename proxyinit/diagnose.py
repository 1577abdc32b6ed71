"""From what iptables or nft printed to a cause and a next step: contract 5's table.

The texts are those of iptables 1.8.9 and nft 1.0.6 and, where noted there, of
their neighbours.
The raw text is never replaced, only explained. Pure.
"""

from __future__ import annotations

from proxyinit.privileges import CAP_NET_ADMIN, CAP_NET_RAW
from proxyinit.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxyinit.privileges import LockHolder, Privileges

UNSUPPORTED = "unsupported"
NOT_PERMITTED = "not permitted"
LOCKED = "locked"
LOCK_FILE = "lock file"
REFUSED = "refused"

TOO_SLOW = "it gave no answer in time, and was stopped"
"""The cause where the runner has ended a program."""


class Diagnosis(Record):
    """Why a program failed: a kind to decide by, a cause and a next step to read."""

    kind: str
    cause: str
    advice: str


_LEGACY_MODULES = (
    "use --iptables-mode nft, or load the modules on the node: "
    "modprobe ip_tables iptable_nat ip6table_nat"
)
_NFT_MODULES = (
    "use --iptables-mode legacy, or load the modules on the node: "
    "modprobe nf_tables nft_chain_nat nft_compat"
)
_NATIVE_MODULES = (
    "use --iptables-mode legacy, or load the modules on the node: "
    "modprobe nf_tables nft_chain_nat nft_redir nft_ct"
)
_MATCH_MODULES = (
    "load them on the node: modprobe xt_REDIRECT xt_owner xt_multiport xt_comment "
    "xt_tcpudp"
)
_GRANT = "grant NET_ADMIN and NET_RAW"

_TABLE: tuple[tuple[tuple[str, ...], Diagnosis], ...] = (
    (
        ("can't start: Operation not permitted",),
        Diagnosis(NOT_PERMITTED, "not permitted", _GRANT),
    ),
    (
        (
            "can't start: Resource temporarily unavailable",
            "can't start: Cannot allocate memory",
            "can't start: Too many open files",
        ),
        Diagnosis(
            REFUSED,
            "no more programs may be started here",
            "raise the container's limits (processes, memory, open files)",
        ),
    ),
    (
        ("can't start:",),
        Diagnosis(
            UNSUPPORTED,
            "the program can't be started",
            "reinstall the iptables package",
        ),
    ),
    (
        ("stopped: it gave no answer within",),
        Diagnosis(
            REFUSED,
            TOO_SLOW,
            "see what holds it up (ps, on the node), or wait longer with "
            "--lock-wait-secs",
        ),
    ),
    (
        ("can't open lock file",),
        Diagnosis(
            LOCK_FILE,
            "the xtables lock file can't be opened",
            "mount a writable directory there (in a pod: an emptyDir at /run), "
            "set XTABLES_LOCKFILE, or use --iptables-mode nft, which takes no lock",
        ),
    ),
    (
        ("No locks available",),
        Diagnosis(
            LOCK_FILE,
            "the file system gives no locks on the xtables lock file",
            "set XTABLES_LOCKFILE to a file on a local file system, or use "
            "--iptables-mode nft, which takes no lock",
        ),
    ),
    (
        ("holding the xtables lock",),
        Diagnosis(
            LOCKED,
            "another program holds the xtables lock",
            "let it finish, or wait longer with --lock-wait-secs",
        ),
    ),
    (
        ("is incompatible, use 'nft' tool", "Parsing nftables rule failed"),
        Diagnosis(
            REFUSED,
            "the nat table holds native nftables rules that iptables-nft can't show, "
            "so it can't be told what would be changed",
            "remove them (nft list table ip nat; nft list table ip6 nat), or use "
            "--iptables-mode legacy",
        ),
    ),
    (
        ("iptables who?",),
        Diagnosis(UNSUPPORTED, "the kernel has no ip_tables", _LEGACY_MODULES),
    ),
    (
        ("Table does not exist",),
        Diagnosis(UNSUPPORTED, "the kernel has no legacy nat table", _LEGACY_MODULES),
    ),
    (
        (
            "Netlink socket: Protocol not supported",
            "Netlink socket: Address family not supported",
        ),
        Diagnosis(UNSUPPORTED, "the kernel has no nf_tables", _NATIVE_MODULES),
    ),
    (
        ("Address family not supported",),
        Diagnosis(
            UNSUPPORTED,
            "the kernel was started without this IP version",
            "use --ipv6=false where the pod has no IPv6 traffic",
        ),
    ),
    (
        ("(you must be root)", "Operation not permitted"),
        Diagnosis(NOT_PERMITTED, "not permitted", _GRANT),
    ),
    (
        ("Permission denied",),
        Diagnosis(
            NOT_PERMITTED,
            "a security module such as SELinux or AppArmor forbids it",
            "look for the denial in the node's audit log; loading the modules on the "
            "node beforehand (modprobe iptable_nat ip6table_nat) often suffices",
        ),
    ),
    (
        ("cache initialization failed",),
        Diagnosis(
            UNSUPPORTED, "the kernel's nf_tables does not answer", _NATIVE_MODULES
        ),
    ),
    (
        (
            "Could not process rule: No such file or directory",
            "Could not process rule: Operation not supported",
            "Could not process rule: Protocol not supported",
        ),
        Diagnosis(
            UNSUPPORTED,
            "the kernel's nf_tables lacks a part that the rules need (nat for both IP "
            "versions in one table came with Linux 5.2)",
            _NATIVE_MODULES,
        ),
    ),
    (
        ("Error: syntax error",),
        Diagnosis(
            UNSUPPORTED,
            "this nft does not understand the rules",
            "install nftables 0.9 or later, or use --iptables-mode nft",
        ),
    ),
    (
        ("its output makes no sense",),
        Diagnosis(
            REFUSED,
            "what it lists can't be understood, so it can't be told what would be "
            "changed",
            "see what it lists, and whether it is the iptables or nft that you expect",
        ),
    ),
    (
        ("Error: Could not process rule", "/dev/stdin:"),
        Diagnosis(
            REFUSED,
            "nft refused the rules",
            "look at what it printed (stderr) and at the kernel's log (dmesg)",
        ),
    ),
    (
        ("Failed to initialize nft",),
        Diagnosis(UNSUPPORTED, "the kernel has no nf_tables", _NFT_MODULES),
    ),
    (
        ("Could not fetch rule set generation id",),
        Diagnosis(UNSUPPORTED, "the kernel's nf_tables does not answer", _NFT_MODULES),
    ),
    (
        ("Cannot initialize:", "can't initialize"),
        Diagnosis(
            UNSUPPORTED, "the kernel's ip_tables does not answer", _LEGACY_MODULES
        ),
    ),
    (
        ("Couldn't load",),
        Diagnosis(
            UNSUPPORTED,
            "this iptables lacks a match or target extension",
            "install the complete iptables package (its xtables folder)",
        ),
    ),
    (
        (
            "missing kernel module?",
            "No chain/target/match by that name",
            "RULE_APPEND failed (No such file or directory)",
        ),
        Diagnosis(
            UNSUPPORTED,
            "the kernel lacks a match or target that the rules need",
            _MATCH_MODULES,
        ),
    ),
    (
        ("Read-only file system",),
        Diagnosis(
            REFUSED,
            "a file system is read-only",
            "mount a writable directory (in a pod: an emptyDir at /run)",
        ),
    ),
)
"""The first entry of which a text occurs decides: causes before consequences."""

_UNKNOWN = Diagnosis(
    REFUSED,
    "iptables refused the rules",
    "look at what it printed (stderr) and at the kernel's log (dmesg)",
)


def diagnose(stderr: str) -> Diagnosis:
    """The first entry of the table that knows what is in `stderr`."""
    for texts, diagnosis in _TABLE:
        if any(text in stderr for text in texts):
            return diagnosis
    return _UNKNOWN


def describe_lock(diagnosis: Diagnosis, path: str, holders: list[LockHolder]) -> str:
    """The cause, with the lock's file and whoever holds it."""
    who = " and ".join(f"process {h.pid} ({h.name})" for h in holders if h.pid)
    held = f", held by {who}" if who else ""
    return f"{diagnosis.cause}: {path}{held}"


def missing_link(
    privileges: Privileges, program: str, *, carried: int, legacy: bool
) -> Diagnosis:
    """Which link between the container's grant and the kernel is missing.

    Under no-new-privileges a program has a capability only if the one that
    started it had it and its own file carries it (contract, interception 3.18).
    A file that carries more than the bounding set allows can't be started at all.
    `carried` is the mask of the program's file.
    """
    known = {"NET_ADMIN": CAP_NET_ADMIN, "NET_RAW": CAP_NET_RAW}
    # iptables-legacy opens a raw socket; nf_tables needs none.
    needed = [name for name in known if legacy or name == "NET_ADMIN"]

    def lacking(mask: int, names: Iterable[str] = needed) -> list[str]:
        return [name for name in names if not mask >> known[name] & 1]

    wanted = [n for n in known if n in needed or carried >> known[n] & 1]
    if unbound := lacking(privileges.bounding, wanted):
        return Diagnosis(
            NOT_PERMITTED,
            f"this process may never have {' and '.join(unbound)} "
            f"(CapBnd {privileges.bounding:016x})",
            f"add {', '.join(unbound)} to securityContext.capabilities.add",
        )
    if absent := lacking(privileges.effective):
        return Diagnosis(
            NOT_PERMITTED,
            f"{' and '.join(absent)}: granted to the container, not held by this "
            f"process (uid {privileges.uid}, CapEff {privileges.effective:016x}, "
            f"NoNewPrivs {int(privileges.no_new_privs)}): the interpreter's file "
            "lacks the capabilities",
            "run as root, or set them on the interpreter that runs proxy-init: "
            "setcap cap_net_admin,cap_net_raw+eip PYTHON",
        )
    if privileges.uid != 0 and (not_passed := lacking(carried)):
        carries = f"does not carry {' and '.join(not_passed)}"
        return Diagnosis(
            NOT_PERMITTED,
            f"proxy-init holds {' and '.join(needed)} but can't pass them on: "
            f"{program} {carries if carried else 'carries no file capabilities'} "
            f"(uid {privileges.uid}, NoNewPrivs {int(privileges.no_new_privs)})",
            f"setcap cap_net_admin,cap_net_raw+eip {program}, or run as root",
        )
    return Diagnosis(
        NOT_PERMITTED,
        f"the kernel says no although this process holds {' and '.join(needed)}: "
        "another user namespace owns the network namespace, or a seccomp or security "
        "profile forbids it",
        "run in the pod's user namespace, or look for the denial in the audit log",
    )
