"""Verify where it may not look, or hears nonsense: it says that it can't tell."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from installed import PROGRAM
from verify_runs import install, only, states

from proxyinit.lab import Namespace
from proxyinit.lab.programs import as_user


def as_nobody(namespace: Namespace, *argv: str) -> tuple[int, str]:
    """Run verify as a user who may read every file, and no more."""
    done = namespace.exec([*as_user(65534), PROGRAM, "verify", *argv])
    return done.returncode, done.stdout + done.stderr


def test_without_privileges(namespace: Namespace, mode: str) -> None:
    """Who may not look does not say that nothing is there."""
    install(namespace, mode)
    code, said = as_nobody(namespace)

    assert code == 1
    assert re.search(r"^\?  +readable", said, re.MULTILINE)
    assert "-> " in said


def test_another_namespace_without_privileges(namespace: Namespace) -> None:
    """A namespace that may not be entered is a sentence with a next step."""
    code, said = as_nobody(namespace, "--netns", "/proc/1/ns/net")
    assert code == 1
    assert "Permission denied" in said
    other = Namespace("other")
    code, said = as_nobody(namespace, "--netns", other.path)
    other.close()
    assert code == 1
    assert "can't enter the network namespace" in said
    assert "-> run as root" in said


def test_all_without_privileges(namespace: Namespace) -> None:
    """Processes that may not be looked at are counted, not passed over."""
    _, said = as_nobody(namespace, "--all")

    assert re.search(r"^\d+ process(es)? may not be looked at", said, re.MULTILINE)


# === programs that make no sense ===


def fake(folder: Path, tool: str, script: str) -> str:
    """PATH with a shell script in front that goes by the name of a tool."""
    program = folder / tool
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return f"PATH={folder}:{os.environ['PATH']}"


def verify_with(path: str, namespace: Namespace) -> tuple[int, dict[str, Any]]:
    """The exit code, and what was found with the tools of another PATH."""
    done = namespace.exec(["env", path, PROGRAM, "verify", "--format", "json"])
    assert done.stderr == ""
    return done.returncode, only(json.loads(done.stdout))


@pytest.mark.parametrize(
    "prints",
    [
        pytest.param("echo '*nat'", id="a dump cut in half"),
        pytest.param("head -c 1000000 /dev/urandom", id="garbage"),
        pytest.param("echo broken >&2; exit 1", id="a failure"),
    ],
)
def test_programs_that_make_no_sense(
    namespace: Namespace, tmp_path: Path, prints: str
) -> None:
    """What is not understood is not taken for absence, nor does it end the look."""
    install(namespace, "nft")
    path = fake(tmp_path, "iptables-nft-save", prints)
    code, found = verify_with(path, namespace)

    assert "unknown" in states(found, "readable")
    assert code in (1, 3)
    assert found["verdict"] != "intercepted"


@pytest.mark.parametrize(
    ("prints", "shown"),
    [
        pytest.param(
            "echo 'table inet proxy_init { chain '", "ends within", id="cut in half"
        ),
        pytest.param("echo '{\"nftables\": []}'", '{"nftables": []}', id="JSON"),
        pytest.param(
            "echo 'nft: syntax v99' >&2; exit 1", "nft: syntax v99", id="a failure"
        ),
    ],
)
def test_an_nft_of_another_style(
    namespace: Namespace, tmp_path: Path, prints: str, shown: str
) -> None:
    """What is wrong with its answer is said, and nothing is said about the rules."""
    install(namespace, "nftables")
    code, found = verify_with(fake(tmp_path, "nft", prints), namespace)

    assert code == 1
    assert states(found, "readable") == ["unknown"]
    assert shown in found["checks"][0]["found"]


def test_interrupted(namespace: Namespace, tmp_path: Path) -> None:
    """Ctrl-C ends it without a traceback."""
    install(namespace, "nft")
    fifo = tmp_path / "runs"
    os.mkfifo(fifo)
    path = fake(tmp_path, "iptables-nft-save", f"echo > {fifo}; sleep 60")
    with namespace.run(
        lambda: subprocess.Popen(
            ["env", path, PROGRAM, "verify"],
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
    ) as process:
        fifo.read_text(encoding="ascii")  # until the program runs
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=30)

    assert process.returncode == 1
    assert "Traceback" not in said
