"""Starts of `proxy-injector serve` that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxyinit.inject import cli
from proxyinit.inject.testing import Cluster

Capture = pytest.CaptureFixture[str]


def refused(capfd: Capture, *argv: str) -> tuple[int, str]:
    """Exit code and error output of a start that fails."""
    code = cli.main(["serve", *argv])
    said = capfd.readouterr().err
    assert "Traceback" not in said
    return code, said


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        pytest.param(
            ["-addr", "8443"], 2, "--addr '8443': expected HOST:PORT", id="address"
        ),
        pytest.param(["--nothing"], 2, "unknown flag --nothing", id="flag"),
        pytest.param([], 1, "not in a pod", id="no cluster"),
        pytest.param(["-kubeconfig="], 1, "not in a pod", id="an empty kubeconfig"),
        pytest.param(["-kubeconfig", "/none"], 1, "can't read", id="no kubeconfig"),
    ],
)
def test_starts_that_fail(
    capfd: Capture, argv: list[str], code: int, words: str
) -> None:
    """One message with what was expected, and an exit code."""
    found, said = refused(capfd, *argv)

    assert (code, True) == (found, words in said), said


def test_start_needs_its_files(
    capfd: Capture, tmp_path: Path, cluster: Cluster
) -> None:
    """Values, anchors and certificate: what is missing is named."""
    kubeconfig = str(cluster.write_kubeconfig(tmp_path))
    (tmp_path / "values").write_text("proxy: {uid: x, gid: y}\n")
    (tmp_path / "roots").write_text("PEM")
    files = ["--values", f"{tmp_path}/values", "--trust-roots", f"{tmp_path}/roots"]
    code, said = refused(capfd, "-kubeconfig", kubeconfig, *files)
    assert (code, "proxy.uid: expected" in said, "proxy.gid" in said) == (1, True, True)

    (tmp_path / "values").write_text("")
    code, said = refused(
        capfd, "-kubeconfig", kubeconfig, *files, "--tls-cert", "/none"
    )
    assert (code, "cert could not be read from disk" in said) == (1, True)
