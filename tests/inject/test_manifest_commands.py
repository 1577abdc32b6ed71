"""The commands as people meet them: what is typed, where input comes from."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.inject.manifests import NAMESPACE, POD, Run


def test_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dash reads it."""
    given = io.TextIOWrapper(io.BytesIO(NAMESPACE.encode()))
    monkeypatch.setattr(sys, "stdin", given)

    status, out, err = run("inject", "-")

    assert status == 0
    assert out == f"{NAMESPACE}  annotations:\n    linkerd.io/inject: enabled\n---\n"
    assert err == '\nnamespace "a" annotated\n\n'


def test_a_folder_is_taken_whole(run: Run, tmp_path: Path) -> None:
    """Every file below it in the order of names; one stream, one report."""
    for name in ("b/y.yaml", "b/x", "a.json", "c.yml", "b/.hidden"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(POD % name.replace("/", "-"))
    (tmp_path / "loop").symlink_to(tmp_path)

    status, out, err = run("uninject", tmp_path)

    names = ["a.json", "b-.hidden", "b-x", "b-y.yaml", "c.yml"]
    assert status == 0
    assert out == "".join(POD % name + "---\n" for name in names)
    assert err == "\n" + "".join(f'pod "{n}" skipped\n' for n in names) + "\n"


def test_several_files_and_a_missing_line_break(run: Run, tmp_path: Path) -> None:
    """Texts that end without one are not glued together."""
    (tmp_path / "a").write_text("kind: A")
    (tmp_path / "b").write_text("kind: B")

    status, out, _ = run("uninject", tmp_path / "a", tmp_path / "b")

    assert (status, out) == (0, "kind: A\n---\nkind: B\n---\n")


def test_a_pipe_that_was_named_is_read(run: Run, tmp_path: Path) -> None:
    """As in ``inject <(kustomize build)``."""
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(
        target=(tmp_path / "pipe").write_text, args=(NAMESPACE,), daemon=True
    )
    writer.start()

    status, out, _ = run("uninject", tmp_path / "pipe")

    writer.join()
    assert (status, out) == (0, NAMESPACE + "---\n")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        pytest.param((), "please specify a kubernetes resource file", id="no file"),
        pytest.param(("https://x.org/a",), "URLs are not fetched", id="URL"),
        pytest.param(("http://x.org/a",), "URLs are not fetched", id="plain URL"),
        pytest.param(("-o", "xml", "-"), "unsupported format xml", id="format"),
        pytest.param(("--manual", "-"), "expected --values FILE", id="no values"),
        pytest.param(
            ("--manual", "--ignore-cluster", "-"),
            "Please provide the identity trust anchors",
            id="no anchors",
        ),
        pytest.param(
            ("--manual", "--ignore-cluster", "--trust-anchors", "{ca}", "-"),
            "expected the version of the proxy's image",
            id="no version",
        ),
        pytest.param(
            ("--trust-anchors", "{key}", "-"), "expected certificates in PEM", id="key"
        ),
        pytest.param(("--values", "{none}", "-"), "can't be read: No such", id="none"),
        pytest.param(
            ("--values", "{bad}", "-"),
            "bad: proxyInit.iptablesMode: expected one of nft, legacy\n"
            "bad: proxy.ports.admin: expected a port from 1 to 65535",
            id="two mistakes in values",
        ),
        pytest.param(("--values", "{tab}", "-"), "tab:2: a tab can't", id="bad YAML"),
        pytest.param(("--values", "{text}", "-"), "expected a map", id="no map"),
        pytest.param(("--disable-identity", "-"), "can't be disabled", id="identity"),
        pytest.param(("--inbound-port", "0", "-"), "a port from 1 to 65535", id="port"),
        pytest.param(("--proxy-uid", "root", "-"), "a whole number", id="uid"),
        pytest.param(("--proxy-cpu-limit", "1x", "-"), "expected a quantity", id="cpu"),
        pytest.param(("--close-wait-timeout", "5", "-"), "a duration", id="duration"),
        pytest.param(("--skip-inbound-ports", "a", "-"), "got 'a'", id="skipped port"),
        pytest.param(("--opaque-ports", "9-1", "-"), "got '9-1'", id="range"),
        pytest.param(("--skip-subnets", "10.0.0.0/33", "-"), "/33", id="subnet"),
        pytest.param(
            ("--default-inbound-policy", "open", "-"),
            "expected one of all-unauthenticated",
            id="policy",
        ),
        pytest.param(
            ("--native-sidecar=maybe", "-"), "'maybe': expected true", id="switch"
        ),
    ],
)
def test_what_is_typed_wrong(
    run: Run, tmp_path: Path, argv: tuple[str, ...], told: str
) -> None:
    """It is said what was expected; exit code 2, nothing read, nothing written."""
    (tmp_path / "ca").write_text("-----BEGIN CERTIFICATE-----\n")
    (tmp_path / "key").write_text("-----BEGIN PRIVATE KEY-----\n")
    (tmp_path / "bad").write_text(
        "proxyInit: {iptablesMode: ''}\nproxy: {ports: {admin: 0}}\n"
    )
    (tmp_path / "tab").write_text("proxy:\n\tuid: 1\n")
    (tmp_path / "text").write_text("- proxy\n")
    named = {n: tmp_path / n for n in ("ca", "key", "none", "bad", "tab", "text")}

    status, out, err = run("inject", *(word.format(**named) for word in argv))

    assert (status, out) == (2, "")
    for line in told.splitlines():
        assert line in err


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help(run: Run, option: str) -> None:
    """It starts with what the program is for, and examples."""
    for argv in ((), ("inject",), ("uninject",)):
        status, out, _ = run(*argv, option)

        assert status == 0
        assert "Example" in out


def test_the_installed_program(tmp_path: Path) -> None:
    """Output goes to a pipe that closes early without a traceback."""
    (tmp_path / "many.yaml").write_text((POD % "a" + "---\n") * 5_000)
    program = [sys.executable, "-m", "proxyinit.inject.launcher"]

    with subprocess.Popen(
        [*program, "uninject", str(tmp_path / "many.yaml")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "kind: Pod\n"
        process.stdout.close()
        said = process.stderr.read()

    assert process.returncode == 1
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("redirect", "told"),
    [
        pytest.param(">/dev/full", "can't be written: No space left", id="disk full"),
        pytest.param(">&-", "standard output is closed", id="no standard output"),
        pytest.param("<&-", "standard input is closed", id="no standard input"),
    ],
)
def test_nowhere_to_write_nothing_to_read(redirect: str, told: str) -> None:
    """One message and exit code 1, not a traceback."""
    program = f"{sys.executable} -m proxyinit.inject.launcher uninject -"
    done = subprocess.run(
        ["/bin/sh", "-c", f"{program} {redirect}"],
        input="kind: A\n",
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_extra() -> None:
    """Who has installed too little is told what to install."""
    code = (
        "import sys; sys.modules['yaml'] = None; "
        "from proxyinit.inject.cli import main; sys.exit(main(['inject', '-']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True
    )

    assert done.returncode == 1
    assert "yaml is not installed" in done.stderr
    assert "pip install 'proxyinit[inject]'" in done.stderr
