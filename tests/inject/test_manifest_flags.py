"""Flags: what annotation each becomes, when it becomes none, and the report's words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from proxyinit.inject import annotations as keys
from proxyinit.inject import report, typed
from proxyinit.inject.cli import main
from proxyinit.inject.report import Checks, Outcome
from proxyinit.inject.settings import (
    SETTINGS,
    duration_text,
    flagged,
    with_registry,
)
from proxyinit.inject.values import Values, load

POD = "kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a}]}\n"
Annotated = Callable[..., dict[str, str]]
CONFIG = "config.linkerd.io/"


@pytest.fixture
def annotated(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Annotated:
    """The annotations that a pod gets by flags, without the one that enables."""

    def call(*flags: str) -> dict[str, str]:
        (tmp_path / "pod").write_text(POD)
        assert main(["inject", *flags, str(tmp_path / "pod")]) == 0
        found = yaml.safe_load(capsys.readouterr().out.removesuffix("---\n"))
        marks: dict[str, str] = found["metadata"]["annotations"]
        assert all(isinstance(value, str) for value in marks.values())
        if marks.get(keys.INJECT) == keys.ENABLED:
            del marks[keys.INJECT]
        return marks

    return call


@pytest.mark.parametrize(
    ("flags", "key", "text"),
    [
        (("--proxy-image", "me/proxy"), f"{CONFIG}proxy-image", "me/proxy"),
        (("--image-pull-policy", "Always"), f"{CONFIG}image-pull-policy", "Always"),
        (("--inbound-port", "1"), f"{CONFIG}inbound-port", "1"),
        (("--outbound-port", "2"), f"{CONFIG}outbound-port", "2"),
        (("--control-port", "3"), f"{CONFIG}control-port", "3"),
        (("--admin-port", "4"), f"{CONFIG}admin-port", "4"),
        (("--skip-inbound-ports", "1,2-3"), f"{CONFIG}skip-inbound-ports", "1,2-3"),
        (("--skip-inbound-ports", ""), f"{CONFIG}skip-inbound-ports", ""),
        (("--skip-outbound-ports", "25"), f"{CONFIG}skip-outbound-ports", "25"),
        (("--skip-subnets", "10.0.0.0/8"), f"{CONFIG}skip-subnets", "10.0.0.0/8"),
        (
            ("--skip-outbound-subnets", "fd00::/8"),
            *(f"{CONFIG}skip-outbound-subnets", "fd00::/8"),
        ),
        (
            ("--skip-inbound-subnets", "fd00::/8"),
            *(f"{CONFIG}skip-inbound-subnets", "fd00::/8"),
        ),
        (("--proxy-uid", "0"), f"{CONFIG}proxy-uid", "0"),
        (("--proxy-uid", "4294967294"), f"{CONFIG}proxy-uid", "4294967294"),
        (("--proxy-gid", "2"), f"{CONFIG}proxy-gid", "2"),
        (("--proxy-log-level", "trace"), f"{CONFIG}proxy-log-level", "trace"),
        (("--proxy-cpu-request", "100m"), f"{CONFIG}proxy-cpu-request", "100m"),
        (("--proxy-cpu-limit", "1.50"), f"{CONFIG}proxy-cpu-limit", "1.50"),
        (("--proxy-memory-request", "1Gi"), f"{CONFIG}proxy-memory-request", "1Gi"),
        (("--proxy-memory-limit", "2Gi"), f"{CONFIG}proxy-memory-limit", "2Gi"),
        (("--proxy-cpu", "100m"), f"{CONFIG}proxy-cpu-request", "100m"),
        (("--proxy-memory", "1Gi"), f"{CONFIG}proxy-memory-request", "1Gi"),
        (("--proxy-version", "v1"), f"{CONFIG}proxy-version", "v1"),
        (("-v", "v1"), f"{CONFIG}proxy-version", "v1"),
        (
            ("--enable-external-profiles",),
            *(f"{CONFIG}enable-external-profiles", "true"),
        ),
        (
            ("--native-sidecar=false",),
            *(f"{CONFIG}proxy-enable-native-sidecar", "false"),
        ),
        (("--native-sidecar=0",), f"{CONFIG}proxy-enable-native-sidecar", "false"),
        (("--native-sidecar=True",), f"{CONFIG}proxy-enable-native-sidecar", "true"),
        (
            ("--wait-before-exit-seconds", "9"),
            *("config.alpha.linkerd.io/proxy-wait-before-exit-seconds", "9"),
        ),
        (
            ("--require-identity-on-inbound-ports", "80"),
            *(f"{CONFIG}proxy-require-identity-inbound-ports", "80"),
        ),
        (("--opaque-ports", "3000,mysql"), f"{CONFIG}opaque-ports", "3000,mysql"),
        (
            ("--default-inbound-policy", "deny"),
            f"{CONFIG}default-inbound-policy",
            "deny",
        ),
        (("--enable-debug-sidecar",), f"{CONFIG}enable-debug-sidecar", "true"),
        (("--close-wait-timeout", "1h"), f"{CONFIG}close-wait-timeout", "1h0m0s"),
        (("--ingress",), "linkerd.io/inject", "ingress"),
    ],
)
def test_a_flag_becomes_an_annotation(
    annotated: Annotated, flags: tuple[str, ...], key: str, text: str
) -> None:
    """One flag, one key, for the webhook to read."""
    assert annotated(*flags) == {key: text}


def test_lists_are_repeated(annotated: Annotated) -> None:
    """As with upstream each adds to the ones before; of other flags the last counts."""
    ports = ("--skip-inbound-ports", "22,25", "--skip-inbound-ports", "8100-8102")

    assert annotated(*ports, "--skip-inbound-ports=") == {
        f"{CONFIG}skip-inbound-ports": "22,25,8100-8102"
    }
    assert annotated("--admin-port=1", "--admin-port=2") == {f"{CONFIG}admin-port": "2"}


def test_every_flag_has_a_case() -> None:
    """The table above leaves none out."""
    (table,) = test_a_flag_becomes_an_annotation.pytestmark  # type: ignore[attr-defined]  # pytest's own
    typed = {flag.partition("=")[0] for flags, *_ in table.args[1] for flag in flags}

    assert {f"--{setting.flag.name}" for setting in SETTINGS} <= typed


def test_no_flag_no_annotation(annotated: Annotated) -> None:
    """Without flags a pod is enabled and nothing else."""
    assert annotated() == {}
    assert annotated("--proxy-gid", "-1", "--ingress=false") == {}


def test_what_the_cluster_has_needs_no_annotation(
    annotated: Annotated, tmp_path: Path
) -> None:
    """Only known values can be equal: the chart's defaults may not be the cluster's."""
    (tmp_path / "values").write_text("proxy: {ports: {admin: 7777}}\n")
    known = ("--values", str(tmp_path / "values"))
    port = f"{CONFIG}admin-port"

    assert annotated("--admin-port", "4191") == {port: "4191"}
    assert annotated("--admin-port", "4191", "--ignore-cluster") == {}
    assert annotated("--admin-port", "4191", *known) == {port: "4191"}
    assert annotated("--admin-port", "7777", *known) == {}


def test_another_registry(
    annotated: Annotated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images keep their names; Linkerd's own registry changes nothing."""
    images = {
        f"{CONFIG}proxy-image": "my.org/l5d/proxy",
        f"{CONFIG}debug-image": "my.org/l5d/debug",
    }

    assert annotated("--registry", "my.org/l5d/") == images
    assert annotated("--registry", "cr.l5d.io/linkerd") == {}
    monkeypatch.setenv("LINKERD_DOCKER_REGISTRY", "my.org/l5d")
    assert annotated() == images
    own = load({"proxyInit": {"image": {"name": "a/b/proxy-init"}}})
    assert with_registry(own, "r").values.init.image == "r/proxy-init"


def test_flags_set_values() -> None:
    """What the annotations say is what containers are rendered from."""
    given = {"inbound-port": 1, "skip-inbound-ports": "2", "native-sidecar": False}

    found = flagged(Values(), given, known=True)

    assert found.values.proxy.inbound_port == 1
    assert found.values.init.ignore_inbound_ports == "2"
    assert not found.values.proxy.native_sidecar
    assert replace(found.values, proxy=Values().proxy, init=Values().init) == Values()


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5µs"),
        (250 * 10**6, "250ms"),
        (1_001_000_000, "1.001s"),
        (30 * 10**9, "30s"),
        (90 * 10**9, "1m30s"),
        (3600 * 10**9, "1h0m0s"),
        (5400 * 10**9, "1h30m0s"),
        (-90 * 10**9, "-1m30s"),
    ],
)
def test_durations_as_go_writes_them(nanoseconds: int, text: str) -> None:
    """They are read back as what they were."""
    assert duration_text(nanoseconds) == text
    assert typed.parse_duration_ns(text) == nanoseconds


def told(*outcomes: Outcome, verbose: bool = False, color: bool = False) -> str:
    """The report about outcomes."""
    checks = Checks()
    for outcome in outcomes:
        checks.see(outcome)
    lines = [outcome.line for outcome in outcomes]
    found = report.injection(checks, lines, verbose=verbose, color=color)
    return "\n".join(found)


WEB = Outcome(kind="Deployment", name="web", status="injected", usable=True)


def test_the_report_of_a_good_run() -> None:
    """Nothing to warn of: a line per object between blank ones."""
    assert told(WEB) == '\ndeployment "web" injected\n'


def test_the_report_says_what_is_in_order() -> None:
    """If asked to be verbose."""
    assert told(WEB, verbose=True) == (
        "\n"
        "√ pods do not use host networking\n"
        "√ pods do not have a 3rd party proxy or initContainer already injected\n"
        "√ pods are not annotated to disable injection\n"
        "√ at least one resource can be injected or annotated\n"
        "√ pod specs do not include UDP ports\n"
        '√ pods do not have automountServiceAccountToken set to "false" or service '
        "account token projection is enabled\n"
        "\n"
        'deployment "web" injected\n'
    )


def test_the_report_warns() -> None:
    """Each warning names all that it is about; several servers of UDP use it."""
    odd = replace(
        WEB, name="a", status="skipped", host_network=True, sidecar=True, udp=True
    )
    no_token = replace(odd, name="b", disabled=True, no_token=True, advice=("x: y",))

    assert told(odd, no_token, verbose=True) == (
        "\n"
        '‼ "hostNetwork: true" detected in deployment/a, deployment/b\n'
        "‼ known 3rd party sidecar detected in deployment/a, deployment/b\n"
        '‼ "linkerd.io/inject: disabled" annotation set on deployment/b\n'
        "√ at least one resource can be injected or annotated\n"
        '‼ deployment/a, deployment/b use "protocol: UDP"\n'
        "‼ deployment/b: x: y\n"
        "\n"
        'deployment "a" skipped\n'
        'deployment "b" skipped\n'
    )


def test_the_report_about_nothing() -> None:
    """What has no kind, or one that is not ours, is no object to inject."""
    assert told(Outcome(), Outcome(kind="Widget", name="w")) == (
        "\n‼ no supported objects found\n\n"
        'document missing "kind" field, skipped\nwidget "w" skipped\n'
    )


def test_glyphs_are_coloured_on_a_terminal() -> None:
    """Yellow for warnings, green for what is in order."""
    shown = told(replace(WEB, udp=True), verbose=True, color=True)

    assert '\x1b[33m‼\x1b[0m deployment/web uses "protocol: UDP"' in shown
    assert "\x1b[32m√\x1b[0m pods do not use host networking" in shown
