"""Manifests injected on the command line, and their init containers at work.

The init container's command line is taken from the YAML as it stands and run in a
pod; who answers connections then is what the annotations say.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxyinit.lab import CLIENT, POD, PROXY_UID, WORLD, Answer, Lab

PROGRAM = str(Path(sys.executable).with_name("proxy-init"))
INJECTOR = str(Path(sys.executable).with_name("proxy-injector"))

IN, OUT = 4143, 4140
APP, OTHER_APP, WEB, OTHER_WEB, DEFAULT_SKIPPED = 8080, 9090, 80, 81, 4567
APP_UID = 1000

MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata:
      labels: {{app: web}}
      annotations: {annotations}
    spec:
      containers:
      - {{name: web, image: nginx, ports: [{{containerPort: 8080}}]}}
"""
ANCHORS = "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n"


@dataclass(frozen=True, kw_only=True)
class Case:
    """Annotations and flags, and what goes past the proxy then.

    `inbound` and `outbound` are ports at the app and in the world. `uid` is the
    proxy's; `ports` are where it listens.
    """

    annotations: dict[str, str]
    flags: tuple[str, ...] = ()
    inbound: tuple[int, ...] = (DEFAULT_SKIPPED,)
    outbound: tuple[int, ...] = (DEFAULT_SKIPPED,)
    uid: int = PROXY_UID
    ports: tuple[int, int] = (IN, OUT)


CASES = [
    pytest.param(Case(annotations={}), id="the chart's defaults"),
    pytest.param(
        Case(
            annotations={
                "skip-inbound-ports": "9000-9100",
                "skip-outbound-ports": "81",
            },
            inbound=(OTHER_APP,),
            outbound=(OTHER_WEB,),
        ),
        id="skipped ports take the place of the defaults",
    ),
    pytest.param(
        Case(annotations={"skip-outbound-ports": ""}, outbound=()),
        id="an empty list skips nothing",
    ),
    pytest.param(
        Case(
            annotations={"skip-subnets": f"{CLIENT[4]}/32,{CLIENT[6]}/128"},
            inbound=(APP, OTHER_APP, DEFAULT_SKIPPED),
        ),
        id="sources that are skipped",
    ),
    pytest.param(
        Case(
            annotations={"skip-outbound-subnets": "203.0.113.0/24,2001:db8::/32"},
            outbound=(WEB, OTHER_WEB, DEFAULT_SKIPPED),
        ),
        id="destinations that are skipped",
    ),
    pytest.param(
        Case(
            annotations={"inbound-port": "5143", "outbound-port": "5140"},
            ports=(5143, 5140),
        ),
        id="other ports of the proxy",
    ),
    pytest.param(Case(annotations={"proxy-uid": "2200"}, uid=2200), id="another user"),
    pytest.param(
        Case(
            annotations={"skip-inbound-ports": "1"},
            flags=("--skip-inbound-ports", "8080", "--skip-outbound-ports", "80"),
            inbound=(APP,),
            outbound=(WEB,),
        ),
        id="flags, over an annotation",
    ),
]


@pytest.mark.parametrize("case", CASES)
def test_traffic_goes_as_annotated(
    lab: Lab, iptables_mode: str, case: Case, tmp_path: Path
) -> None:
    """Both families, both directions, skipped and not."""
    inbound, outbound = case.ports
    lab.app(APP, OTHER_APP, DEFAULT_SKIPPED)
    ports = (inbound, outbound)
    lab.stand_in(lab.pod, "proxy", ports, uid=case.uid, transparent=True)
    lab.world(WEB, OTHER_WEB, DEFAULT_SKIPPED)

    done = lab.pod.exec([PROGRAM, *arguments(case, iptables_mode, tmp_path)])

    assert done.returncode == 0, done.stderr
    wrong = [
        f"{what}: {got}, expected {want}"
        for what, got, want in seen(lab, case)
        if got != want
    ]
    assert wrong == []


def arguments(case: Case, mode: str, folder: Path) -> list[str]:
    """The init container's, from the manifest that the injector prints."""
    own = {f"config.linkerd.io/{key}": text for key, text in case.annotations.items()}
    values = {
        "linkerdVersion": "v1",
        "disableIPv6": False,
        "proxyInit": {"iptablesMode": mode},
    }
    (folder / "web.yaml").write_text(MANIFEST.format(annotations=flow(own)))
    (folder / "values.yaml").write_text(yaml.safe_dump(values))
    (folder / "ca.crt").write_text(ANCHORS)
    known = ("--values", "values.yaml", "--trust-anchors", "ca.crt")
    printed = subprocess.run(
        [INJECTOR, "inject", "--manual", *known, *case.flags, "web.yaml"],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    (found,) = filter(None, yaml.safe_load_all(printed))
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    init, proxy = spec["initContainers"]
    assert (init["name"], proxy["name"]) == ("linkerd-init", "linkerd-proxy")
    assert proxy["securityContext"]["runAsUser"] == case.uid
    return [str(argument) for argument in init["args"]]


def flow(found: dict[str, str]) -> str:
    """Annotations on one line, as people write them: texts in quotes."""
    return "{" + ", ".join(f"{key}: '{text}'" for key, text in found.items()) + "}"


def seen(lab: Lab, case: Case) -> Iterator[tuple[str, Answer, Answer]]:
    """Connections: what each is, who answered, who should have."""
    into, out = case.ports
    for version in (4, 6):
        pod, world = POD[version], WORLD[version]
        for port in (APP, OTHER_APP, DEFAULT_SKIPPED):
            through = Answer("proxy", into, (pod, port))
            want = Answer("app", port) if port in case.inbound else through
            yield f"in to {pod} {port}", lab.inbound(port, version=version), want
        for port in (WEB, OTHER_WEB, DEFAULT_SKIPPED):
            through = Answer("proxy", out, (world, port))
            want = Answer("world", port) if port in case.outbound else through
            got = lab.outbound(world, port, uid=APP_UID)
            yield f"out to {world} {port}", got, want
        got = lab.outbound(world, WEB, uid=case.uid, gid=case.uid)
        yield f"the proxy's own to {world}", got, Answer("world", WEB)
