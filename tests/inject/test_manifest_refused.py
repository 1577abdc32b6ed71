"""What keeps a run from writing anything: each mistake with its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proxyinit.inject import sources
from tests.inject.manifests import FAILED, NAMESPACE, POD, Run

NOBODY = 65534


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


@pytest.mark.parametrize("number", [".inf", "-.inf", ".nan"])
def test_numbers_that_json_has_not(run: Run, tmp_path: Path, number: str) -> None:
    """They are refused as output, and passed on in YAML."""
    path = tmp_path / "it.yaml"
    path.write_text(f"kind: A\nb: {number}\n")

    assert run("inject", path)[:2] == (0, path.read_text() + "---\n")
    assert run("inject", "-o", "json", path) == (
        *(1, ""),
        f"{FAILED}{path}:1: JSON has no numbers such as .inf and .nan",
    )


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
