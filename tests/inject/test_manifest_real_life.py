"""Manifests as tools write them: helm, kustomize, kubectl, editors of Windows."""

from __future__ import annotations

import json
from collections.abc import Callable
from difflib import ndiff
from pathlib import Path
from textwrap import dedent

import kubernetes_validate  # type: ignore[import-untyped]  # has none
import pytest
import yaml

from proxyinit.inject.cli import main

GOLDEN = Path(__file__).with_name("golden_cli")
MANUAL = (
    *("--manual", "--values", f"{GOLDEN}/values.yaml"),
    *("--trust-anchors", f"{GOLDEN}/trust-anchors.pem"),
)
Made = Callable[..., str]

HELM = """\
---
# Source: web/templates/deployment.yaml
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels:
    helm.sh/chart: web-1.0.0
spec:
  selector:
    matchLabels:
      app: web
  template:
    metadata:
      annotations:
        checksum/config: 4a1c8e9f0
        # for the one who comes next
      labels:
        app: web
    spec:
      securityContext:
        {}
      containers:
        - name: web
          securityContext:
            {}
          image: "nginx:1.25"
          args: ["--a", '--b=c']
          command:
            - sh
            - -c
            - |
              cat <<EOF
              ---
              kind: Pod
              EOF
          resources:
            {}

---
# Source: web/templates/nothing.yaml
--- # Source: web/templates/tests/connection.yaml
apiVersion: v1
kind: Pod
metadata:
  name: "web-test"
  annotations:
    "helm.sh/hook": test
spec:
  containers:
    - name: wget
      image: busybox
      command: ['wget']
  restartPolicy: Never
---
---
"""

WORKLOADS = """\
apiVersion: batch/v1
kind: CronJob
metadata:
  name: nightly
spec:
  schedule: "*/5 * * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: OnFailure
          containers:
          - name: c
            image: busybox
---
apiVersion: batch/v1
kind: Job
metadata:
  generateName: job-
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      -   name: c
          image: busybox
          env:
          - {name: A, value: "1"}
          - name: B
            valueFrom: {fieldRef: {fieldPath: metadata.name}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      containers:
      - name: db
        image: postgres
        ports: [{containerPort: 5432}]
        volumeMounts:
        - name: data
          mountPath: /data
  volumeClaimTemplates:
  - metadata:
      name: data
    spec:
      accessModes: [ReadWriteOnce]
      resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: Pod
metadata:
  name: debugged
  labels: {version: "1.10"}
spec:
  hostNetwork: false
  initContainers:
  - name: first
    image: x
  - name: sidecar
    restartPolicy: Always
    image: x
  ephemeralContainers:
  - name: shell
    image: x
    targetContainerName: c
  containers:
  - name: c
    image: x
"""

PASSED_ON = """\
# No object of ours is in here
apiVersion: v1
kind: ConfigMap
metadata: {name: scripts}
data:
  all.yaml: |
    kind: Pod
    ---
    kind: Deployment
  some.yaml: "---\\nkind: Pod\\n"
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.org}
spec: {group: example.org}
---
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: knative}
spec: {template: {spec: {containers: [{image: x}]}}}
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: volcano}
spec:
  tasks:
  - template: {spec: {containers: [{name: c, image: x}]}}
---
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: rollout}
spec: {template: {spec: {containers: [{name: c, image: x}]}}}
---
"""


@pytest.fixture
def made(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Made:
    """What a command makes of a text."""

    def call(text: str, *argv: str) -> str:
        path = tmp_path / "given"
        path.write_bytes(text.encode())
        assert main([*argv, str(path)]) == 0
        return capsys.readouterr().out

    return call


def difference(before: str, after: str) -> list[str]:
    """Lines that went and lines that came, in their order."""
    lines = ndiff(before.splitlines(), after.splitlines())
    return [line for line in lines if line[0] in "+-"]


def test_what_helm_prints(made: Made) -> None:
    """Each object gets its line; comments, empty documents and odd layouts stay."""
    assert difference(HELM, made(HELM, "inject")) == [
        "+         linkerd.io/inject: enabled",
        "+     linkerd.io/inject: enabled",
        "+ ---",
    ]


@pytest.mark.parametrize("text", [HELM, WORKLOADS], ids=["helm", "workloads"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["Unix", "Windows"])
def test_there_and_back(made: Made, text: str, newline: str) -> None:
    """The containers go as they came, byte by byte; twice is as once."""
    text = text.replace("\n", newline)

    injected = made(text, "inject", *MANUAL)

    assert "\n" not in injected.replace(newline, "").removesuffix("---\n")
    assert made(injected, "inject", *MANUAL) == injected
    assert made(injected, "uninject") == text + "---\n"


def test_kubernetes_takes_what_is_made(made: Made) -> None:
    """Every object is what its kind's schema allows, each with a proxy in its pod."""
    found = [o for o in yaml.safe_load_all(made(WORKLOADS, "inject", *MANUAL)) if o]

    for each in found:
        kubernetes_validate.validate(each, "1.31", strict=True)
    cron, job, database, pod = found
    inner = cron["spec"]["jobTemplate"]["spec"]["template"]
    pods = (inner, job["spec"]["template"], database["spec"]["template"], pod)
    names = [[c["name"] for c in each["spec"]["initContainers"]] for each in pods]
    mesh = ["linkerd-init", "linkerd-proxy"]
    assert names == [mesh, mesh, mesh, [*mesh, "first", "sidecar"]]


def test_a_job_without_a_name(made: Made) -> None:
    """It is reported by what its name will begin with, which is no label's value."""
    text = WORKLOADS.split("---\n")[1]

    (job, _) = yaml.safe_load_all(made(text, "inject", *MANUAL))

    labels = job["spec"]["template"]["metadata"]["labels"]
    assert labels["linkerd.io/proxy-job"] == ""


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_kinds_that_are_not_ours(made: Made, form: str) -> None:
    """They come back as they were, those too that are called like ours."""
    found = made(PASSED_ON, "inject", "--opaque-ports", "3306", "-o", form)

    if form == "yaml":
        assert found == PASSED_ON
    else:
        expected = [o for o in yaml.safe_load_all(PASSED_ON) if o]
        assert [json.loads(line) for line in found.splitlines()] == expected


def test_kinds_of_others_with_a_pod_where_ours_have_it(made: Made) -> None:
    """OpenKruise's workloads are injected as upstream injects them."""
    text = dedent("""\
        apiVersion: apps.kruise.io/v1beta1
        kind: StatefulSet
        metadata:
          name: k
        spec:
          template:
            metadata:
              labels:
                app: k
            spec:
              containers: [{name: c, image: x}]
        """)

    assert difference(text, made(text, "inject")) == [
        "+       annotations:",
        "+         linkerd.io/inject: enabled",
        "+ ---",
    ]


def test_a_list_of_one_kind(made: Made) -> None:
    """Clients of the API write DeploymentList where kubectl writes List."""
    text = dedent("""\
        apiVersion: v1
        kind: NamespaceList
        items:
        - kind: Namespace
          metadata:
            name: a
        - metadata:
            name: b
        """)

    assert difference(text, made(text, "inject")) == [
        "+     annotations:",
        "+       linkerd.io/inject: enabled",
        "+ ---",
    ]
    for kind in ("WidgetList", "PodListing"):
        other = text.replace("NamespaceList", kind)
        assert made(other, "inject") == f"{other}---\n"


JSON = """\
{
    "kind": "List",
    "items": [
        {
            "kind": "Pod",
            "metadata": {
                "name": "a"
            },
            "spec": {}
        }
    ]
}
"""


def test_json_of_four_columns(made: Made) -> None:
    """What is added is indented as the rest is."""
    added = json.loads(JSON)
    added["items"][0]["metadata"]["annotations"] = {"linkerd.io/inject": "enabled"}

    assert made(JSON, "inject") == f"---\n{json.dumps(added, indent=4)}\n---\n"


def test_braces_in_yaml_end_nothing(made: Made) -> None:
    """Only what begins in braces ends with them."""
    text = 'kind: A\ntext: "{\n}\n{"\n'

    assert made(text, "inject") == f"{text}---\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"kind":"A"}\n{"kind":"B"}\n', id="a line each"),
        pytest.param('{"kind": "A"}\n\n{\n"kind": "B"\n}', id="blank lines between"),
        pytest.param('---\n{"kind": "A"}\n{"kind": "B"}\n', id="after a separator"),
        pytest.param('{\n"kind": "A", "a": [\n{\n}\n,\n{}\n]}\n{"kind": "B"}', id="{}"),
    ],
)
def test_json_after_json(made: Made, text: str) -> None:
    """Objects with nothing between, as kubectl takes them, are documents."""
    found = made(text, "inject")

    assert [o["kind"] for o in yaml.safe_load_all(found) if o] == ["A", "B"]
    assert made(found, "inject") == found


def test_what_is_printed_can_be_read(made: Made) -> None:
    """Output in JSON is input, too, and a stream never looks like JSON to kubectl.

    kubectl takes a stream that begins with a brace for JSON, and stops at ``---``.
    """
    printed = made(HELM, "inject", "-o", "json")

    found = made(printed, "uninject")

    assert found.startswith("---\n{")
    before = [o for o in yaml.safe_load_all(HELM) if o]
    assert [o for o in yaml.safe_load_all(found) if o] == before
    assert made(found, "uninject") == found


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(
            b"kind: Pod\nmetadata:\n  name: {{ .Values.name }}\n",
            ":3: expected text as a key; templates have to be rendered first, as by",
            id="a chart's template",
        ),
        pytest.param(
            b"{{- if .Values.on }}\nkind: Pod\n{{- end }}\n",
            "; templates have to be rendered first, as by helm template",
            id="a condition",
        ),
        pytest.param(
            b'{"kind": "Pod"}}\n',
            ":1: expected the document to end, got what belongs to nothing in it",
            id="a brace too many",
        ),
        pytest.param(
            "kind: Pod\n".encode("utf-16"),
            ":1: expected UTF-8 text, got UTF-16: iconv -f UTF-16 -t UTF-8 FILE",
            id="what PowerShell writes",
        ),
    ],
)
def test_what_has_to_be_made_readable_first(
    text: bytes, told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It is said what to do."""
    (tmp_path / "given").write_bytes(text)

    assert main(["inject", str(tmp_path / "given")]) == 1
    assert told in capsys.readouterr().err
