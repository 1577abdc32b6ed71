"""From the words of iptables to a cause and a next step."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit.diagnose import (
    LOCK_FILE,
    LOCKED,
    NOT_PERMITTED,
    REFUSED,
    UNSUPPORTED,
    describe_lock,
    diagnose,
    missing_link,
)
from proxyinit.privileges import CAP_NET_ADMIN, CAP_NET_RAW, LockHolder, Privileges
from proxyinit.testing import CONDITIONS

LEGACY = "iptables v1.8.9 (legacy): "
NFT = "iptables v1.8.9 (nf_tables): "
NO_NAT = "Table does not exist (do you need to insmod?)"
EPERM = "Permission denied (you must be root)"
GENERATION = "Could not fetch rule set generation id: "
LOCK = "Fatal: can't open lock file /run/xtables.lock: "
ANOTHER = "Another app is currently holding the xtables lock"
MODULE = "Warning: Extension ipvs revision 0 not supported, missing kernel module?\n"


@pytest.mark.parametrize(
    ("stderr", "kind", "cause", "advice"),
    [
        (
            (
                f"{LEGACY}can't initialize iptables table `nat': {NO_NAT}\n"
                "Perhaps iptables or your kernel needs to be upgraded.\n"
            ),
            UNSUPPORTED,
            "the kernel has no legacy nat table",
            "iptable_nat",
        ),
        (
            f"iptables-save v1.8.9 (legacy): Cannot initialize: {NO_NAT}\n",
            UNSUPPORTED,
            "the kernel has no legacy nat table",
            "--iptables-mode nft",
        ),
        (
            (
                "modprobe: can't change directory to '/lib/modules': No such file\n"
                "iptables-save v1.8.7 (legacy): Cannot initialize: iptables who? "
                "(do you need to insmod?)\n"
            ),
            UNSUPPORTED,
            "the kernel has no ip_tables",
            "modprobe ip_tables",
        ),
        (
            (
                "iptables-nft-save/1.8.9 (nf_tables) Failed to initialize nft: "
                "Protocol not supported\n"
            ),
            UNSUPPORTED,
            "the kernel has no nf_tables",
            "--iptables-mode legacy",
        ),
        (
            f"{NFT}{GENERATION}Invalid argument\n",
            UNSUPPORTED,
            "the kernel's nf_tables does not answer",
            "modprobe nf_tables",
        ),
        (
            f"{NFT}{GENERATION}Operation not supported\n",
            UNSUPPORTED,
            "the kernel's nf_tables does not answer",
            "modprobe nf_tables",
        ),
        (
            f"{LEGACY}can't initialize iptables table `nat': {EPERM}\n",
            NOT_PERMITTED,
            "not permitted",
            "NET_ADMIN",
        ),
        (f"{NFT}{GENERATION}{EPERM}\n", NOT_PERMITTED, "not permitted", "NET_ADMIN"),
        (
            f"{LEGACY}can't initialize iptables table `nat': Permission denied\n",
            NOT_PERMITTED,
            "a security module such as SELinux or AppArmor forbids it",
            "audit log",
        ),
        (
            f"{LOCK}Permission denied\n",
            LOCK_FILE,
            "can't be opened",
            "emptyDir at /run",
        ),
        (
            f"{LOCK}Read-only file system\n",
            LOCK_FILE,
            "can't be opened",
            "XTABLES_LOCK",
        ),
        (
            (
                "Fatal: can't open lock file /nonexistent/dir/lock: "
                "No such file or directory\n"
            ),
            LOCK_FILE,
            "can't be opened",
            "writable directory",
        ),
        (
            (
                "Can't lock /run/xtables.lock: Resource temporarily unavailable\n"
                f"{ANOTHER}. Stopped waiting after 1s.\n"
            ),
            LOCKED,
            "another program holds the xtables lock",
            "--lock-wait-secs",
        ),
        (
            f"{ANOTHER}. Perhaps you want to use the -w option?\n",
            LOCKED,
            "another program holds the xtables lock",
            "--lock-wait-secs",
        ),
        (
            f"{LEGACY}Couldn't load match `nosuch':No such file or directory\n",
            UNSUPPORTED,
            "lacks a match or target extension",
            "iptables package",
        ),
        (
            f"{MODULE}iptables-restore: line 4 failed\n",
            UNSUPPORTED,
            "the kernel lacks a match or target",
            "xt_REDIRECT",
        ),
        (
            "iptables: No chain/target/match by that name.\n",
            UNSUPPORTED,
            "the kernel lacks a match or target",
            "xt_owner",
        ),
        (
            "line 3: RULE_APPEND failed (No such file or directory): rule in chain O\n",
            UNSUPPORTED,
            "the kernel lacks a match or target",
            "xt_multiport",
        ),
        (
            "iptables: Invalid argument. Run `dmesg' for more information.\n",
            REFUSED,
            "iptables refused the rules",
            "dmesg",
        ),
        (
            f"{NFT}\nline 5: RULE_APPEND failed (Invalid argument): rule in chain P\n",
            REFUSED,
            "iptables refused the rules",
            "dmesg",
        ),
        (
            (
                "ip6tables-save v1.8.9 (legacy): Cannot initialize: "
                "Address family not supported by protocol\n"
            ),
            UNSUPPORTED,
            "the kernel was started without this IP version",
            "--ipv6=false",
        ),
        (
            (
                "Cannot initialize: Could not open socket to kernel: "
                "Address family not supported by protocol\n"
            ),
            UNSUPPORTED,
            "the kernel was started without this IP version",
            "--ipv6=false",
        ),
        (
            "can't start: No such file or directory",
            UNSUPPORTED,
            "the program can't be started",
            "reinstall",
        ),
        (
            "can't start: Operation not permitted",
            NOT_PERMITTED,
            "not permitted",
            "NET_ADMIN",
        ),
        ("iptables-restore: line 2 failed\n", REFUSED, "refused the rules", "dmesg"),
        ("", REFUSED, "refused the rules", "dmesg"),
    ],
    ids=lambda text: text.strip()[-40:] if " " in text else "",
)
def test_cause(stderr: str, kind: str, cause: str, advice: str) -> None:
    """What the program printed, word for word, leads to its cause and a next step."""
    found = diagnose(stderr)

    assert found.kind == kind
    assert cause in found.cause
    assert advice in found.advice


@settings(deadline=None)
@given(st.text())
def test_any_text_has_a_diagnosis(stderr: str) -> None:
    """A text nobody knows is a refusal to look at, never an error of ours."""
    assert diagnose(stderr).advice


def test_every_condition_of_the_fake_kernel_is_known() -> None:
    """Only what the kernel says of the rules themselves has no row in the table."""
    unknown = {
        name
        for name, faults in CONDITIONS.items()
        for fault in faults
        if diagnose(fault.stderr).kind == REFUSED
    }

    # A legacy restore says less than the save before it, which fails first.
    assert unknown <= {"rules refused", "no ip_tables", "no legacy nat table"}


@pytest.mark.parametrize(
    ("holders", "said"),
    [
        ([], "{}: /run/lock"),
        ([LockHolder(0, "x")], "{}: /run/lock"),
        (
            [LockHolder(7, "kube-proxy")],
            "{}: /run/lock, held by process 7 (kube-proxy)",
        ),
        (
            [LockHolder(7, "a"), LockHolder(0, "b"), LockHolder(9, "c")],
            "{}: /run/lock, held by process 7 (a) and process 9 (c)",
        ),
    ],
)
def test_holders_of_the_lock(holders: list[LockHolder], said: str) -> None:
    """Those of this pid namespace are named; others show as 0 and help nobody."""
    held = diagnose(ANOTHER)

    assert describe_lock(held, "/run/lock", holders) == said.format(held.cause)


# === privileges ===


ADMIN, RAW = 1 << CAP_NET_ADMIN, 1 << CAP_NET_RAW
ALL = ADMIN | RAW
PROGRAM = "/sbin/xtables-nft-multi"


@pytest.mark.parametrize(
    ("uid", "bounding", "effective", "carried", "legacy", "cause", "advice"),
    [
        pytest.param(
            *(65534, 0, 0, 0, True),
            "may never have NET_ADMIN and NET_RAW (CapBnd 0000000000000000)",
            "add NET_ADMIN, NET_RAW to securityContext.capabilities.add",
            id="not granted to the container",
        ),
        pytest.param(
            *(0, ADMIN, ADMIN, 0, True),
            "may never have NET_RAW (CapBnd 0000000000001000)",
            "add NET_RAW to",
            id="legacy needs NET_RAW as well",
        ),
        pytest.param(
            *(65534, ALL, 0, ALL, True),
            "NET_ADMIN and NET_RAW: granted to the container, not held",
            "setcap cap_net_admin,cap_net_raw+eip PYTHON",
            id="the interpreter's file has no capabilities",
        ),
        pytest.param(
            *(65534, ADMIN, 0, 0, False),
            "NET_ADMIN: granted to the container, not held",
            "run as root",
            id="nft needs NET_ADMIN alone",
        ),
        pytest.param(
            *(65534, ALL, ALL, 0, True),
            "but can't pass them on: ",
            f"setcap cap_net_admin,cap_net_raw+eip {PROGRAM}",
            id="the file of iptables has no capabilities",
        ),
        pytest.param(
            *(65534, ALL, ALL, ALL, True),
            "the kernel says no although this process holds NET_ADMIN and NET_RAW",
            "user namespace",
            id="every link is there",
        ),
        pytest.param(
            *(0, ALL, ALL, 0, False),
            "the kernel says no although this process holds NET_ADMIN:",
            "audit log",
            id="root needs no file capabilities",
        ),
    ],
)
def test_missing_link(  # noqa: PLR0917
    uid: int,
    bounding: int,
    effective: int,
    carried: int,
    legacy: bool,  # noqa: FBT001
    cause: str,
    advice: str,
) -> None:
    """The first link of the chain that is missing is the one named."""
    privileges = Privileges(uid, bounding, effective, no_new_privs=True)

    found = missing_link(privileges, PROGRAM, carried=carried, legacy=legacy)

    assert found.kind == NOT_PERMITTED
    assert cause in found.cause
    assert advice in found.advice
