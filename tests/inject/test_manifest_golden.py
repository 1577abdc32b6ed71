"""Output and report of whole command lines, byte by byte.

To renew the files after a change that is meant, and look at the difference:
``REFRESH_GOLDEN=1 .venv/bin/pytest tests/inject/test_manifest_golden.py;
git diff tests/inject/golden_cli``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # has none
import pytest
import yaml

from proxyinit import __version__
from proxyinit.inject import syntax
from proxyinit.inject.cli import main
from proxyinit.inject.stream import documents

GOLDEN = Path(__file__).with_name("golden_cli")
MANUAL = (
    *("--manual", "--values", f"{GOLDEN}/values.yaml"),
    *("--trust-anchors", f"{GOLDEN}/trust-anchors.pem"),
)
CNI = (*MANUAL[:2], f"{GOLDEN}/values-cni.yaml", *MANUAL[3:])

CASES: dict[str, tuple[str, ...]] = {
    "deployment": ("inject", *MANUAL, "deployment.yaml"),
    "deployment-annotated": ("inject", "deployment.yaml"),
    "deployment-cni": ("inject", *CNI, "deployment.yaml"),
    "deployment-debug": (
        *("inject", *MANUAL, "--enable-debug-sidecar", "--native-sidecar=false"),
        *("--admin-port=1234", "--close-wait-timeout=0s", "deployment.yaml"),
    ),
    "deployment-ignores": (
        *("inject", *MANUAL, "--skip-inbound-ports", "22,8100-8102"),
        *("--skip-outbound-ports", "5432", "--opaque-ports", "3000,5000-6000,mysql"),
        "deployment.yaml",
    ),
    "deployment-flags": (
        *("inject", "--admin-port", "1234", "--default-inbound-policy"),
        *("all-authenticated", "--close-wait-timeout", "1h", "--ingress"),
        *("--proxy-version", "override", "--enable-debug-sidecar", "deployment.yaml"),
    ),
    "list": ("inject", *MANUAL, "list.yaml"),
    "list-annotated": ("inject", "--verbose", "list.yaml"),
    "mixed": ("inject", "--opaque-ports", "3306", "mixed.yaml"),
    "mixed-verbose": ("inject", "--verbose", "mixed.yaml"),
    "mixed-json": ("inject", "-o", "json", "mixed.yaml"),
    "pod-json": ("inject", "--manual", *MANUAL[1:], "pod.json"),
    "aliases": ("inject", "--skip-inbound-ports", "5432", "aliases.yaml"),
    "old-uninjected": ("uninject", "old.yaml"),
    "old-injected": ("inject", "old.yaml"),
    "folder": ("uninject", "."),
    "nothing-supported": ("inject", "values.yaml"),
}


def run(
    argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    status = main(argv)
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.mark.parametrize("case", CASES)
def test_golden(
    case: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte of output and report is meant."""
    *options, name = CASES[case]
    folder = GOLDEN if name == "values.yaml" else GOLDEN / "inputs"
    monkeypatch.chdir(folder)

    status, out, err = run((*options, name), capsys)

    assert status == 0
    for text, file in ((out, f"{case}.out.yaml"), (err, f"{case}.report")):
        shown = text.replace(f"linkerd/cli {__version__}", "linkerd/cli VERSION")
        if "REFRESH_GOLDEN" in os.environ:
            (GOLDEN / file).write_bytes(shown.encode())
        assert shown == (GOLDEN / file).read_bytes().decode()


def test_there_is_no_golden_file_too_many() -> None:
    """Each belongs to a case."""
    found = {file.name.partition(".")[0] for file in GOLDEN.glob("*.*")}

    assert found == {*CASES, "values", "values-cni", "trust-anchors"}


def objects(text: str) -> list[dict[str, Any]]:
    """All objects of a stream, those in Lists one by one."""
    found = []
    for document in documents(line.encode() for line in text.splitlines(keepends=True)):
        root = syntax.compose(document.text)
        value = None if root is None else syntax.value(root)
        many = value["items"] if value and value["kind"] == "List" else [value]
        found += [item for item in many if item]
    return found


OBJECTS = [c for c in CASES if c not in ("nothing-supported", "mixed-json", "folder")]


@pytest.mark.parametrize("case", OBJECTS)
def test_kubernetes_takes_it(case: str) -> None:
    """What comes out follows the schemas of a recent Kubernetes."""
    text = (GOLDEN / f"{case}.out.yaml").read_text()
    builtin = [o for o in objects(text) if o["kind"] not in ("Widget", "ConfigMap")]

    assert builtin
    for found in builtin:
        kubernetes_validate.validate(found, "1.33", strict=True)


@pytest.mark.parametrize(
    "case", [c for c, argv in CASES.items() if argv[0] == "inject" and "json" not in c]
)
def test_a_second_time_changes_nothing(
    case: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The output, injected again with the same flags, is the same output."""
    *options, name = CASES[case]
    folder = GOLDEN if name == "values.yaml" else GOLDEN / "inputs"
    _, once, _ = run((*options, str(folder / name)), capsys)
    (tmp_path / "once.yaml").write_bytes(once.encode())

    status, twice, _ = run((*options, str(tmp_path / "once.yaml")), capsys)

    assert status == 0
    assert twice == once


@pytest.mark.parametrize("name", ["deployment.yaml", "list.yaml", "mixed.yaml"])
@pytest.mark.parametrize("options", [(), MANUAL, CNI], ids=["annotated", "nft", "cni"])
def test_uninject_gives_the_author_s_text_back(
    name: str,
    options: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Every line that the author wrote is there again, in its place.

    Except maps and lists that were written out empty.
    """
    source = (GOLDEN / "inputs" / name).read_text()
    _, injected, _ = run(("inject", *options, str(GOLDEN / "inputs" / name)), capsys)
    (tmp_path / "injected.yaml").write_text(injected)

    _, after, _ = run(("uninject", str(tmp_path / "injected.yaml")), capsys)

    lines = source.splitlines()
    kept = [line for line in lines if not options or "[]  # none" not in line]
    assert after.splitlines() in (kept, [*kept, "---"])


def test_json_is_the_same_stream(capsys: pytest.CaptureFixture[str]) -> None:
    """A line of JSON per document, without those that hold nothing."""
    path = str(GOLDEN / "inputs" / "mixed.yaml")
    _, out, report = run(("inject", "-o", "json", path), capsys)
    _, text, same_report = run(("inject", path), capsys)

    found = [json.loads(line) for line in out.splitlines()]

    assert found == objects(text)
    assert report == same_report
    assert [o["kind"] for o in found] == [
        *("Namespace", "Service", "DaemonSet", "CronJob", "Widget")
    ]


def test_what_pyyaml_reads_is_what_we_mean() -> None:
    """Another reader sees the same objects in our output."""
    for case in ("deployment", "deployment-cni", "pod-json", "old-uninjected"):
        text = (GOLDEN / f"{case}.out.yaml").read_text()

        assert [d for d in yaml.safe_load_all(text) if d] == objects(text)
