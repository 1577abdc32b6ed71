"""Pods that are injected with a word of warning, or not at all."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from tests.inject.manifests import FAILED, POD, Run


@pytest.mark.parametrize(
    ("value", "told"),
    [
        pytest.param("true", "", id="the pod's token is projected"),
        pytest.param(
            "false",
            "failed to inject pod/a: automountServiceAccountToken set to "
            '"false", with Values.identity.serviceAccountTokenProjection set to '
            '"false"',
            id="it is not",
        ),
    ],
)
def test_a_pod_without_token(run: Run, tmp_path: Path, value: str, told: str) -> None:
    """It matters only where the mesh depends on the pod's own token."""
    (tmp_path / "pod").write_text(POD % "a" + "  automountServiceAccountToken: no\n")
    (tmp_path / "values").write_text(
        f"identity: {{serviceAccountTokenProjection: {value}}}\n"
    )

    status, _, err = run("inject", "--values", tmp_path / "values", tmp_path / "pod")

    assert status == (1 if told else 0)
    assert err.removeprefix(FAILED) == told or not told


def test_a_pod_that_opted_out_is_no_error(run: Run, tmp_path: Path) -> None:
    """Disabled pods are skipped, whatever else speaks against them."""
    text = dedent("""\
        kind: Pod
        metadata:
          name: a
          annotations:
            linkerd.io/inject: disabled
            config.linkerd.io/admin-port: 1234
        spec:
          hostNetwork: true
          containers:
          - {name: a, ports: [{containerPort: 53, protocol: UDP}]}
        """)
    (tmp_path / "pod").write_text(text)

    status, out, err = run("inject", "--inbound-port", "1", tmp_path / "pod")

    assert (status, out) == (0, text + "---\n")
    assert 'pod "a" skipped\n' in err


@pytest.mark.parametrize("flag", ["--native-sidecar=false", "--enable-debug-sidecar"])
@pytest.mark.parametrize("spec", ["{}", "{containers: }", "{containers: []}"])
def test_a_pod_without_containers(
    run: Run, tmp_path: Path, spec: str, flag: str
) -> None:
    """It gets what is added; whether it is a pod is for Kubernetes to say."""
    (tmp_path / "pod").write_text(f"kind: Pod\nmetadata: {{name: a}}\nspec: {spec}\n")
    (tmp_path / "ca").write_text("-----BEGIN CERTIFICATE-----")
    known = ("--manual", "--ignore-cluster", "--trust-anchors", tmp_path / "ca", "-vv1")

    status, out, _ = run("inject", *known, flag, tmp_path / "pod")

    assert status == 0
    (document, _) = yaml.safe_load_all(out)
    assert len(document["spec"]["containers"]) == 1


def test_udp_is_a_warning(run: Run, tmp_path: Path) -> None:
    """UDP goes past the proxy and keeps nobody from being injected."""
    text = POD % "a" + "  # c\n"
    port = "[{name: a, ports: [{containerPort: 53, protocol: UDP}]}]"
    (tmp_path / "pod").write_text(text.replace("[{name: a}]", port))

    status, _, err = run("inject", tmp_path / "pod")

    assert status == 0
    assert err == '\n‼ pod/a uses "protocol: UDP"\n\npod "a" injected\n\n'


def test_annotations_that_can_t_be_followed_are_told(run: Run, tmp_path: Path) -> None:
    """The report warns, once, of values that the webhook would leave aside."""
    (tmp_path / "pod").write_text(
        "kind: Pod\nmetadata:\n  name: a\n  annotations:\n"
        "    config.linkerd.io/admin-port: many\n"
        "    config.linkerd.io/proxy-additional-env: A=1\nspec: {}\n"
    )
    (tmp_path / "ca").write_text("-----BEGIN CERTIFICATE-----\n")
    flags = ("--manual", "--ignore-cluster", "--proxy-version", "v1")

    status, _, err = run(
        "inject", *flags, "--trust-anchors", tmp_path / "ca", tmp_path / "pod"
    )

    assert status == 0
    assert err.count("‼") == 2
    assert "‼ pod/a: config.linkerd.io/admin-port: expected a whole number" in err
    assert "‼ pod/a: config.linkerd.io/proxy-additional-env: expected a JSON" in err
