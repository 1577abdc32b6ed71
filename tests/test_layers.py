"""Who imports whom: pure modules stay pure, and the install stays quick."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.imports import ROOT, effects, imported

PURE = (
    *("config", "rules", "plan", "iptables_rule", "iptables_save", "reconcile"),
    *("reach", "record", "diagnose", "privileges", "flags", "pflag", "options"),
    *("intervals", "nft_script", "nft_match", "nft_rule", "nft_list", "nft_reconcile"),
    *("printable", "go_flags"),
)
COSTLY = (
    *("click", "typing", "re", "dataclasses", "logging", "subprocess", "enum", "json"),
    *("collections", "argparse", "ipaddress", "pathlib", "socket", "signal", "shutil"),
    *("functools", "contextlib", "inspect", "importlib.metadata"),
)
SEED = (
    *("--incoming-proxy-port", "4143", "--outgoing-proxy-port", "4140"),
    *("--proxy-uid", "2102", "--inbound-ports-to-ignore", "4190,4191,4567,4568"),
    *("--outbound-ports-to-ignore", "4567,4568", "--ipv6=false", "--simulate"),
)


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_touches_nothing(module: str) -> None:
    """It imports no door to the machine, not even within a function."""
    assert effects(f"proxyinit.{module}") == set()


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_stands_on_pure_ones(module: str) -> None:
    """Of the package it imports nothing but what is pure itself."""
    names = imported(f"proxyinit.{module}")
    ours = {name.split(".")[1] for name in names if name.startswith("proxyinit.")}

    assert ours <= set(PURE)


def test_the_c_library_is_used_for_addresses_alone() -> None:
    """`_socket` gives the pure parsers two functions without state, no socket."""
    for module in PURE:
        names = imported(f"proxyinit.{module}")
        taken = {name for name in names if name.startswith("_socket.")}
        assert taken <= {
            f"_socket.{name}"
            for name in ("AF_INET", "AF_INET6", "inet_ntop", "inet_pton")
        }


def loaded(*argv: str) -> set[str]:
    """The modules that a run of the installed program has loaded in the end.

    Without `site`, whose .pth files are the environment's and not the program's.
    """
    code = (
        "import sys; before = set(sys.modules); "
        f"sys.path.insert(0, {str(ROOT)!r}); "
        "from proxyinit.entry import main; "
        f"status = main({list(argv)!r}); "
        "sys.stderr.write('\\n'.join(['', 'LOADED', *set(sys.modules) - before])); "
        "sys.exit(status)"
    )
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        capture_output=True,
        check=True,
        text=True,
    )
    assert "PROXY_INIT_OUTPUT" in result.stdout
    return set(result.stderr.partition("\nLOADED\n")[2].split())


@pytest.mark.parametrize(
    "more",
    [
        pytest.param((), id="the chart's arguments"),
        pytest.param(
            ("--outbound-subnets-to-ignore=10.0.0.0/8,fd00::/8",), id="subnets"
        ),
        pytest.param(
            ("--log-format=json", "--iptables-mode=nft"), id="JSON lines, nft"
        ),
        pytest.param(("--iptables-mode=nftables",), id="native nftables"),
    ],
)
def test_the_install_imports_nothing_costly(more: tuple[str, ...]) -> None:
    """Every pod of a cluster pays for what is imported here, at every start."""
    found = loaded(*SEED, *more)

    assert "proxyinit.plan" in found
    assert found & set(COSTLY) == set()


def test_nftables_is_loaded_where_it_is_used() -> None:
    """The modes of iptables don't pay for reading and writing what nft says."""
    found = loaded(*SEED, "--iptables-mode=nft")

    assert {name for name in found if name.startswith("proxyinit.nft_")} == set()


def test_the_package_itself_imports_nothing() -> None:
    """Importing proxyinit is on the way of every start."""
    assert imported("proxyinit.__init__") == set()


def test_the_launcher_imports_the_entry_alone() -> None:
    """The installed program must not bring a wrapper's imports back in."""
    assert imported("proxyinit.launcher") == {
        "os",
        "sys",
        "proxyinit.entry",
        "proxyinit.entry.main",
    }
