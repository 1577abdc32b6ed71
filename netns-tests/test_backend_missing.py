"""Machines without some of the programs: the other backend, or a list of what lacks."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from installed import PROGRAM

from proxyinit.backend import title
from proxyinit.lab import Namespace

ARGUMENTS = ("-p", "4143", "-o", "4140", "-u", "2102")
SBIN = Path(shutil.which("iptables-legacy") or "/usr/sbin").parent
"""Where this machine has its iptables; each test puts its own folder there."""

SUFFIXES = ("", "-save", "-restore")
LEGACY4 = tuple(f"iptables-legacy{suffix}" for suffix in SUFFIXES)
LEGACY6 = tuple(f"ip6tables-legacy{suffix}" for suffix in SUFFIXES)
NFT4 = tuple(f"iptables-nft{suffix}" for suffix in SUFFIXES)
NFT6 = tuple(f"ip6tables-nft{suffix}" for suffix in SUFFIXES)
LEGACY, NFT = (*LEGACY4, *LEGACY6), (*NFT4, *NFT6)


@pytest.fixture(scope="module")
def mode(iptables_mode: str) -> str:
    """The backends of iptables, which this module is about."""
    return iptables_mode


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(namespace: Namespace, tmp_path: Path) -> Run:
    """Runs proxy-init on a machine that has the named programs of iptables only.

    A name may be a pair: how it is called, and which program it is.
    """
    real = tmp_path / "real"
    real.mkdir()
    for name in (*LEGACY, *NFT, "nft"):
        shutil.copy((SBIN / name).resolve(), real)
    folder = tmp_path / "sbin"
    folder.mkdir()

    def run_with(
        programs: Sequence[str | tuple[str, str]], *arguments: str
    ) -> subprocess.CompletedProcess[str]:
        for program in programs:
            name, target = program if isinstance(program, tuple) else (program, program)
            binary = (SBIN / target).resolve().name
            # xtables programs go by the name they are called, so no plain link.
            (folder / name).write_text(
                f'#!/bin/bash\nexec -a {target} {real}/{binary} "$@"\n'
            )
            (folder / name).chmod(0o755)
        script = f'mount --bind {folder} {SBIN} && exec "$@"'
        unshared = ["unshare", "--mount", "sh", "-c", script, "sh"]
        return namespace.exec([*unshared, PROGRAM, *ARGUMENTS, *arguments])

    return run_with


def jumps(namespace: Namespace) -> dict[str, int]:
    """How many jumps to our chains each frontend shows, where there are any."""
    names = ("iptables-legacy", "ip6tables-legacy", "iptables-nft", "ip6tables-nft")
    counts = {}
    for name in names:
        dump = namespace.exec([f"{name}-save", "-t", "nat"]).stdout
        counts[name] = dump.count("-j PROXY_INIT_")
    return {name: count for name, count in counts.items() if count}


ON_LEGACY = {"iptables-legacy": 2, "ip6tables-legacy": 2}
ON_NFT = {"iptables-nft": 2, "ip6tables-nft": 2}


def lines(done: subprocess.CompletedProcess[str], level: str) -> list[str]:
    return [line for line in done.stderr.splitlines() if f"level={level}" in line]


FALLBACKS = [
    pytest.param(NFT, "legacy", ON_NFT, id="only nft, legacy asked for"),
    pytest.param(LEGACY, "nft", ON_LEGACY, id="only legacy, nft asked for"),
    pytest.param((*NFT, *LEGACY4), "legacy", ON_NFT, id="no ip6tables-legacy"),
    pytest.param((*LEGACY, *NFT6), "nft", ON_LEGACY, id="no iptables-nft for IPv4"),
    pytest.param(
        (*NFT, "iptables-legacy-save", "ip6tables-legacy-save"),
        "legacy",
        ON_NFT,
        id="legacy can only save",
    ),
    pytest.param(
        (*LEGACY, "iptables-nft-restore", "ip6tables-nft-restore"),
        "nft",
        ON_LEGACY,
        id="nft can only restore",
    ),
    pytest.param(NFT, "plain", ON_NFT, id="no plain iptables, nft first"),
    pytest.param(LEGACY, "plain", ON_LEGACY, id="no plain iptables, legacy left"),
    pytest.param(
        (
            *LEGACY,
            *zip(("iptables", "iptables-save", "iptables-restore"), NFT4, strict=True),
            *zip(
                ("ip6tables", "ip6tables-save", "ip6tables-restore"),
                LEGACY6,
                strict=True,
            ),
        ),
        "plain",
        ON_LEGACY,
        id="plain is nft for IPv4 and legacy for IPv6",
    ),
]


@pytest.mark.parametrize(("programs", "mode", "expected"), FALLBACKS)
def test_other_backend_does_the_job_of_both_families(
    namespace: Namespace,
    run: Run,
    programs: Sequence[str],
    mode: str,
    expected: dict[str, int],
) -> None:
    """Exit 0; both families on the one backend that is whole; one warning says why."""
    done = run(programs, "--iptables-mode", mode)
    assert done.returncode == 0, done.stderr
    assert jumps(namespace) == expected
    why = f"{title(mode)} can't be used here"
    warnings = [w for w in lines(done, "warning") if why in w]
    assert len(warnings) == 1
    if mode != "plain":
        assert len(lines(done, "warning")) == 1


@pytest.mark.parametrize("asked", ["legacy", "nft", "plain", "auto", "nftables"])
def test_nft_alone_is_enough(namespace: Namespace, run: Run, asked: str) -> None:
    """A machine without any iptables is redirected natively, whatever was asked for."""
    done = run(("nft",), "--iptables-mode", asked)
    assert done.returncode == 0, done.stderr
    listing = namespace.exec(["nft", "list", "table", "inet", "proxy_init"]).stdout
    assert listing.count("jump PROXY_INIT_") == 2
    assert jumps(namespace) == {}
    warnings = lines(done, "warning")
    assert (warnings == []) == (asked == "nftables")
    assert all("can't be used here: not found: " in line for line in warnings)


@pytest.mark.parametrize(
    ("programs", "expected"),
    [
        pytest.param((*NFT, *LEGACY), ON_NFT, id="iptables-nft first"),
        pytest.param(LEGACY, ON_LEGACY, id="then legacy"),
    ],
)
def test_without_nft_iptables_takes_over(
    namespace: Namespace, run: Run, programs: Sequence[str], expected: dict[str, int]
) -> None:
    """Native was asked for, and the first warning names the program that lacks."""
    done = run(programs, "--iptables-mode", "nftables")
    assert done.returncode == 0, done.stderr
    assert jumps(namespace) == expected
    first = lines(done, "warning")[0]
    assert "nftables can't be used here: not found: nft; trying iptables-nft" in first


def test_ipv4_programs_are_enough_for_ipv4(namespace: Namespace, run: Run) -> None:
    """With --ipv6=false nothing of ip6tables is asked for; no warning."""
    done = run(LEGACY4, "--ipv6=false")
    assert done.returncode == 0, done.stderr
    assert jumps(namespace) == {"iptables-legacy": 2}
    assert lines(done, "warning") == []


@pytest.mark.parametrize(
    ("programs", "missing"),
    [
        pytest.param(
            (),
            ("iptables-legacy-save", "ip6tables-legacy-restore", "iptables-nft-save"),
            id="no iptables at all",
        ),
        pytest.param(
            (*LEGACY4, *NFT4),
            ("ip6tables-legacy-save", "ip6tables-nft-restore"),
            id="IPv4 only, in both",
        ),
        pytest.param(
            (*NFT4, *LEGACY6),
            ("iptables-legacy-restore", "ip6tables-nft-save"),
            id="iptables-nft and ip6tables-legacy: no split of the families",
        ),
        pytest.param(
            [name for name in (*LEGACY, *NFT) if name.endswith("-save")],
            ("iptables-legacy-restore", "ip6tables-nft-restore"),
            id="save only",
        ),
    ],
)
def test_no_whole_backend_is_an_error_that_lists_what_lacks(
    namespace: Namespace,
    run: Run,
    mode: str,
    programs: Sequence[str],
    missing: tuple[str, ...],
) -> None:
    """Exit 1, all that is missing is named, and nothing is written anywhere."""
    done = run(programs, "--iptables-mode", mode)
    assert done.returncode == 1
    assert jumps(namespace) == {}
    (error,) = lines(done, "error")
    for name in missing:
        assert name in error
    assert "install" in error
    for name in programs:
        assert f"{name}," not in error


def test_folder_of_a_programs_name_is_no_program(
    namespace: Namespace, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder on the search path that is called like a program is passed over."""
    (tmp_path / "iptables-legacy-save").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    done = run(LEGACY)
    assert done.returncode == 0, done.stderr
    assert jumps(namespace) == ON_LEGACY


def test_a_path_means_that_folder_and_no_other(
    namespace: Namespace, run: Run, tmp_path: Path
) -> None:
    """Programs named by a path that leads nowhere are not replaced by others."""
    path = tmp_path / "nowhere" / "iptables-nft"
    done = run((*LEGACY, *NFT), "--firewall-bin-path", str(path))
    assert done.returncode == 1
    assert "not found: iptables-nft-save" in done.stderr
    assert jumps(namespace) == {}


def test_program_that_is_none_is_given_up(
    namespace: Namespace, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that the kernel can't run counts as a backend that can't be used."""
    for name in LEGACY:
        (tmp_path / name).write_bytes(b"\x7fELF, of another machine")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    done = run(NFT)
    assert done.returncode == 0, done.stderr
    assert jumps(namespace) == ON_NFT
    (warning,) = lines(done, "warning")
    assert "can't be started" in warning


def test_cleanup_without_programs_tells_of_what_it_can_not_see(
    namespace: Namespace, run: Run
) -> None:
    """Rules of ours in a backend whose programs are gone: exit 1, not "nothing"."""
    assert run((*LEGACY, *NFT), "--iptables-mode", "legacy").returncode == 0
    script = f'mount -t tmpfs none {SBIN} && exec "$@"'
    argv = ["unshare", "--mount", "sh", "-c", script, "sh", PROGRAM, "cleanup"]
    done = namespace.exec(argv)
    assert done.returncode == 1
    told = "\n".join(lines(done, "error"))
    assert " iptables-legacy-save" in told
    assert "ip6tables-legacy-save" in told
    assert "nothing to remove" not in done.stderr
