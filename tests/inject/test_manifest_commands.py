"""The commands as people meet them: where input comes from, and what goes wrong."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from proxyinit.inject import sources
from proxyinit.inject.cli import main

POD = "kind: Pod\nmetadata: {name: %s}\nspec:\n  containers: [{name: a}]\n"
NAMESPACE = "kind: Namespace\nmetadata:\n  name: a\n"
Run = Callable[..., tuple[int, str, str]]
NOBODY = 65534
FAILED = "Error transforming resources:\n"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line; exit code, standard output, standard error."""

    def call(*argv: str | Path) -> tuple[int, str, str]:
        status = main([str(word) for word in argv])
        said = capsys.readouterr()
        return status, said.out, said.err

    return call


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


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(
            "kind: Pod\nmetadata:\n\tname: a\n",
            "{path}:3: a tab can't indent YAML: use spaces",
            id="tab",
        ),
        pytest.param(
            "kind: A\n---\nkind: Pod\nmetadata: {name: a}\nmetadata: {}\n",
            "{path}:5: key 'metadata' stands there twice",
            id="a key twice, in the second document",
        ),
        pytest.param(
            POD % "a" + "  hostNetwork: true\n",
            "failed to inject pod/a: hostNetwork is enabled",
            id="the node's network",
        ),
        pytest.param(
            POD % "a" + "  initContainers: [{name: istio-init}]\n",
            "failed to inject pod/a: pod has a sidecar injected already",
            id="somebody else's sidecar",
        ),
        pytest.param(
            "kind: ReplicationController\nmetadata: {name: a}\nspec: {replicas: 1}\n",
            "{path}:1: replicationcontroller/a: ReplicationController without "
            "spec.template: expected a pod template",
            id="no template",
        ),
        pytest.param(
            "kind: Deployment\nmetadata: {name: a}\nspec: [template]\n",
            "{path}:1: deployment/a: expected an object as 'spec', got ['template']",
            id="a list where an object belongs",
        ),
        pytest.param(
            "kind: Pod\nmetadata: {name: a}\nspec: {containers: {a: b}}\n",
            "{path}:1: pod/a: expected a list as 'containers', got {{'a': 'b'}}",
            id="an object where a list belongs",
        ),
        pytest.param(
            "kind: A\n---\nkind: List\nitems:\n- kind: B\n"
            "- kind: Job\n  metadata: {name: a}\n",
            "{path}:6: job/a: Job without spec.template: expected a pod template",
            id="no template, in a list of the second document",
        ),
        pytest.param(
            "kind: A\n---\n# b\nkind: Job\nmetadata: &a {name: a}\nx: *a\n",
            "{path}:3: job/a: Job without spec.template: expected a pod template",
            id="no template, in a document that is laid out anew",
        ),
        pytest.param(
            "kind: Pod\nmetadata:\n  name: a\n  labels:\n"
            "    linkerd.io/control-plane-component: identity\nspec: {}\n",
            "--manual must be set when injecting control plane components",
            id="a part of the control plane",
        ),
        pytest.param(
            "kind: Pod\nmetadata: {name: a}\nspec: &a {containers: [*a]}\n",
            "{path}:3: aliases stand for more than 100000 nodes or 200 levels",
            id="an alias to itself",
        ),
        pytest.param(
            "kind: List\nitems: &a [{kind: List, items: *a}]\n",
            "{path}:1: Lists in Lists, deeper than 5",
            id="a list of itself",
        ),
    ],
)
def test_an_error_keeps_everything_back(
    run: Run, tmp_path: Path, text: str, told: str
) -> None:
    """Nothing is written, not even what is in order; no report; exit code 1."""
    path = tmp_path / "it.yaml"
    path.write_text(text)
    (tmp_path / "fine.yaml").write_text(NAMESPACE)

    status, out, err = run("inject", tmp_path / "fine.yaml", path)

    assert status == 1
    assert out == ""
    assert err == FAILED + told.format(path=path)


def test_all_mistakes_are_told_at_once(run: Run, tmp_path: Path) -> None:
    """A file that can't be read does not hide what is wrong in the others."""
    (tmp_path / "a.yaml").write_text("a: [\n---\n" + POD % "p" + "  hostNetwork: on\n")
    (tmp_path / "b.yaml").symlink_to(tmp_path / "nowhere")
    (tmp_path / "c.bin").write_bytes(b"kind: Pod\n\x00\x9f\n")
    os.mkfifo(tmp_path / "d.pipe")

    status, out, err = run("inject", tmp_path, tmp_path / "none")

    no_node = "did not find expected node content (while parsing a flow node)"
    assert (status, out) == (1, "")
    assert err.removeprefix(FAILED).splitlines() == [
        f"{tmp_path}/a.yaml:2: {no_node}",
        "failed to inject pod/p: hostNetwork is enabled",
        f"{tmp_path}/b.yaml: can't be read: No such file or directory",
        f"{tmp_path}/c.bin:2: expected UTF-8 text, got byte 0x9f",
        f"{tmp_path}/d.pipe: expected a file, got a pipe or a device",
        f"{tmp_path}/none: can't be read: No such file or directory",
    ]


def test_a_folder_that_can_t_be_read_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told, and what comes after it is looked at too."""
    (tmp_path / "a").write_text("")
    (tmp_path / "b").mkdir(mode=0)
    (tmp_path / "c").write_text("")
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    told: list[str] = []
    user = os.geteuid()

    os.seteuid(user or NOBODY)  # root reads everything
    try:
        found = list(sources.files(".", lambda error: told.append(str(error))))
    finally:
        os.seteuid(user)

    assert found == ["./a", "./c"]
    assert told == ["./b: can't be read: Permission denied"]


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


@pytest.mark.parametrize("kind", ["Pod", "List", "ConfigMap", "nothing"])
def test_a_billion_laughs(run: Run, tmp_path: Path, kind: str) -> None:
    """Refused where they would be written out, passed on where nobody reads them."""
    laughs = "\n".join(
        f"  l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 10)
    )
    text = f"a:\n  l0: &l0 lol\n{laughs}\n"
    pod = "items: [{kind: Pod, metadata: *l9}]\n" if kind == "List" else ""
    path = tmp_path / "laughs.yaml"
    path.write_text(text + pod + (f"kind: {kind}\n" if kind != "nothing" else ""))

    status, out, err = run("inject", path)
    json_status, _, json_err = run("inject", "-o", "json", path)

    assert json_status == 1
    assert "aliases stand for more than 100000 nodes" in json_err
    if kind in ("Pod", "List"):
        assert (status, out) == (1, "")
        assert "aliases stand for more than 100000 nodes" in err
    else:
        assert (status, out) == (0, path.read_text() + "---\n")


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
    """The report warns of values that the webhook would leave aside."""
    (tmp_path / "pod").write_text(
        "kind: Pod\nmetadata:\n  name: a\n  annotations:\n"
        "    config.linkerd.io/admin-port: many\nspec: {}\n"
    )
    (tmp_path / "ca").write_text("-----BEGIN CERTIFICATE-----\n")
    flags = ("--manual", "--ignore-cluster", "--proxy-version", "v1")

    status, _, err = run(
        "inject", *flags, "--trust-anchors", tmp_path / "ca", tmp_path / "pod"
    )

    assert status == 0
    assert "‼ pod/a: config.linkerd.io/admin-port: expected a whole number" in err


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
