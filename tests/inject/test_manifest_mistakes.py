"""Command lines with mistakes: all of them are told at once, and nothing is done."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from proxyinit import __version__
from proxyinit.inject.cli import main
from proxyinit.inject.inject_flags import HIDDEN_FLAGS, INJECT_FLAGS
from proxyinit.pflag import parse_bool

POD = "kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a}]}\n"
Told = Callable[..., list[str]]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """What is said of a command line that is wrong: the lines of the error."""

    def call(*argv: str | Path) -> list[str]:
        assert main([str(word) for word in argv]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        return err.partition("Error: ")[2].splitlines()

    return call


def test_every_mistake_is_told(told: Told, tmp_path: Path) -> None:
    """Values, names, files, what is in the files and what is missing, line by line."""
    values = tmp_path / "values"
    values.write_text(
        "proxyInit: {iptablesMode: ipvs}\nproxy: {ports: {admin: 0}, uid: root}\n"
    )
    anchors = tmp_path / "ca.crt"

    lines = told(
        *("inject", "--manual", "--inbound-port", "0", "--inbound-prt=4143"),
        *("--admin-port", "http", "--native-sidecar=maybe", "-o", "xml", "-x"),
        *("--values", values, "--trust-anchors", anchors, "--skip-subnets=10/8"),
        *("https://x.org/a", "http://x.org/b", "--proxy-cpu-limit"),
    )

    cidr = "expected a CIDR such as 10.0.0.0/8 or fd00::/8"
    fetch = "curl -fsSL URL | proxy-injector inject -"
    assert lines == [
        "14 mistakes, nothing was written:",
        "  unknown flag --inbound-prt: did you mean --inbound-port?",
        "  unknown flag -x in '-x'",
        "  --proxy-cpu-limit needs a value: CPU",
        "  --output 'xml': unsupported format xml: expected json or yaml",
        "  --inbound-port '0': expected a port from 1 to 65535",
        "  --admin-port 'http': expected a whole number",
        f"  --skip-subnets '10/8': {cidr}, got '10/8'",
        "  --native-sidecar 'maybe': expected true or false",
        f"  --trust-anchors {anchors}: can't be read: No such file or directory",
        f"  --values {values}: proxy.ports.admin: expected a port from 1 to 65535",
        f"  --values {values}: proxy.uid: expected a whole number",
        f"  --values {values}: proxyInit.iptablesMode: expected one of nft, legacy",
        f"  URLs are not fetched, got 'https://x.org/a': {fetch}",
        f"  URLs are not fetched, got 'http://x.org/b': {fetch}",
    ]


def test_every_mistake_of_serve_is_told(told: Told) -> None:
    """With one dash or two; and nothing listens."""
    lines = told(
        *("serve", "-addr", "8443", "-metrics-addr=x", "--log-level", "loud", "word"),
        *("--adr=:1", "-linkerd-namespace", "a/b", "--values=", "-self-signed=maybe"),
        "--tls-key",
    )

    levels = "panic, fatal, error, warn, warning, info, debug, trace"
    assert lines == [
        "9 mistakes, nothing was started:",
        "  unknown flag --adr: did you mean --addr?",
        "  --tls-key needs a value: FILE",
        "  --addr '8443': expected HOST:PORT or :PORT, got '8443'",
        "  --metrics-addr 'x': expected HOST:PORT or :PORT, got 'x'",
        "  --linkerd-namespace 'a/b': expected a namespace, such as linkerd",
        "  --values '': expected a file",
        "  --self-signed 'maybe': expected true or false",
        f"  --log-level 'loud': expected one of {levels}",
        "  unexpected word 'word': expected flags only",
    ]


@pytest.mark.parametrize("spelled", ["-version", "--version", "--version=true"])
def test_version_of_serve(spelled: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is said, and nothing listens."""
    assert main(["serve", "-kubeconfig", "/none", spelled]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_nothing_is_read(told: Told, tmp_path: Path) -> None:
    """Manifests stay unread: a pipe that nobody writes keeps nobody waiting."""
    fetch = "curl -fsSL URL | proxy-injector"
    os.mkfifo(tmp_path / "pipe")

    assert told("uninject", "--manual", tmp_path / "pipe", "https://x.org/a") == [
        "2 mistakes, nothing was written:",
        "  unknown flag --manual",
        f"  URLs are not fetched, got 'https://x.org/a': {fetch} uninject -",
    ]


@pytest.mark.parametrize(
    ("argv", "lines"),
    [
        pytest.param(
            ("--manual",),
            ("expected --values FILE with --manual", "please specify a kubernetes"),
            id="neither values nor a file",
        ),
        pytest.param(
            ("--manual", "--ignore-cluster", "-"),
            ("Please provide the identity trust", "expected the version of the proxy"),
            id="neither anchors nor a version",
        ),
        pytest.param(
            ("--manual", "--ignore-cluster", "--trust-anchors", "/none", "-"),
            ("--trust-anchors /none: can't be read", "expected the version of the"),
            id="unreadable anchors, no version",
        ),
        pytest.param(
            ("--values", "/none", "--trust-anchors", "/", "-"),
            ("--values /none: can't be read", "--trust-anchors /: can't be read: Is"),
            id="neither file can be read",
        ),
        pytest.param(
            ("--ingress", "true", "--disable-identity", "-"),
            (
                "identity can't be disabled",
                "unexpected word 'true': values of switches",
            ),
            id="a switch's value without =",
        ),
        pytest.param(
            ("--no-native-sidecar", "--no-such", "-"),
            (
                "unknown flag: switch off by --native-sidecar=false",
                "unknown flag --no-",
            ),
            id="off as click spells it",
        ),
        pytest.param(
            ("--proxy-cpu", "1x", "--proxy-uid=-1", "-L", "a b", "-"),
            (
                *("--linkerd-namespace 'a b': expected a namespace",),
                *(
                    "--proxy-uid '-1': expected a whole number that is not negative",
                    "--proxy-cpu '1x': expected",
                ),
            ),
            id="old spellings are read as the new ones",
        ),
    ],
)
def test_what_belongs_together_is_told_together(
    told: Told, argv: tuple[str, ...], lines: tuple[str, ...]
) -> None:
    """One mistake does not hide another, and none is told that follows from another."""
    first, *found = told("inject", *argv)

    assert first == f"{len(lines)} mistakes, nothing was written:"
    for line, start in zip(found, lines, strict=True):
        assert line.startswith(f"  {start}")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("kind: ConfigMap\n", id="no data"),
        pytest.param("kind: ConfigMap\ndata: [values]\n", id="a list"),
        pytest.param("kind: ConfigMap\ndata: {values: {proxy: {}}}\n", id="an object"),
    ],
)
def test_a_config_map_that_holds_no_values(
    told: Told, tmp_path: Path, text: str
) -> None:
    """Another one than linkerd-config, or a damaged one, is no set of defaults."""
    (tmp_path / "map").write_text(text)

    assert told("inject", "--values", tmp_path / "map", "-")[1:] == [
        f"  --values {tmp_path}/map: expected text as data.values"
    ]


def test_the_environment_is_judged_as_well(
    told: Told, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A namespace from LINKERD_NAMESPACE, unless a flag says it."""
    monkeypatch.setenv("LINKERD_NAMESPACE", "a/b")

    assert told("inject", "-")[1:] == [
        "  LINKERD_NAMESPACE 'a/b': expected a namespace, such as linkerd"
    ]
    assert main(["inject", "-L", "mesh", "/none"]) == 1
    assert "/none: can't be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        pytest.param(
            ("injct", "a.yaml"),
            "expected a command, one of inject, uninject, serve, got 'injct': "
            "did you mean inject?",
            id="misspelled",
        ),
        pytest.param(
            ("--manual", "inject", "a.yaml"),
            "command 'inject' has to come first, before '--manual': "
            "proxy-injector inject [flags]",
            id="a flag before it",
        ),
        pytest.param(
            ("--wrong",),
            "expected a command, one of inject, uninject, serve, got '--wrong'",
            id="none",
        ),
    ],
)
def test_which_commands_there_are(told: Told, argv: tuple[str, ...], line: str) -> None:
    """Who calls none of them is told what to call."""
    assert told(*argv) == ["1 mistake, nothing was done:", f"  {line}"]


def test_words_and_flags_in_any_order(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Files stand anywhere; behind -- they may be called like flags."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "-o", "true"):
        Path(name).write_text(POD.replace("name: a}\n", f"name: '{name}'}}\n"))

    line = ["inject", "a", "--ingress", "./true", "-ojson", "--verbose=false"]
    assert main([*line, "--", "-o"]) == 0
    out, err = capsys.readouterr()
    assert [text.count('"linkerd.io/inject":"ingress"') for text in out.split()] == [
        *(1, 1, 1)
    ]
    assert err == '\npod "a" injected\npod "true" injected\npod "-o" injected\n\n'


def test_values_from_a_pipe(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """They are read once, as from ``--values <(kubectl get configmap ...)``."""
    os.mkfifo(tmp_path / "values")
    (tmp_path / "pod").write_text(POD)
    writer = threading.Thread(
        target=(tmp_path / "values").write_text,
        args=("proxy: {ports: {admin: 7777}}\n",),
        daemon=True,
    )
    writer.start()

    flags = ("--values", str(tmp_path / "values"), "--admin-port", "7777")
    assert main(["inject", *flags, str(tmp_path / "pod")]) == 0
    writer.join()
    assert "7777" not in capsys.readouterr().out


def test_the_help_page_tells_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    """How each is spelled; old spellings are not on it."""
    assert main(["inject", "--help"]) == 0
    page = capsys.readouterr().out

    assert page.startswith("Usage: proxy-injector inject [OPTIONS] FILE...\n")
    for flag in INJECT_FLAGS:
        value = "[=true|false]" if flag.parse is parse_bool else f" {flag.metavar}"
        assert f"--{flag.name}{value}" in page
    assert "-o, --output json|yaml" in page
    assert "-v, --proxy-version TAG" in page
    assert "none]" not in page.lower()
    assert "[default: ]" not in page
    for flag in HIDDEN_FLAGS:
        assert f"--{flag.name} " not in page
