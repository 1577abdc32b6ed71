"""Pods as the webhook patches them: the init container's command line, run as it is.

What a pod inherits from its namespace and what it says itself decide together who
answers a connection.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
import yaml

from proxyinit.inject import values, workload
from proxyinit.inject.owner import Owner
from proxyinit.inject.review import Fate, Known, judge
from proxyinit.inject.testing import pod
from proxyinit.lab import CLIENT, POD, PROXY_UID, WORLD, Answer, Lab

PROGRAM = str(Path(sys.executable).with_name("proxy-init"))
IN, OUT = 4143, 4140
APP, SKIPPED_APP, WEB, SKIPPED_WEB = 8080, 9090, 80, 81
APP_UID = 1000
C = "config.linkerd.io/"
NAMESPACE = {
    "linkerd.io/inject": "enabled",
    f"{C}skip-outbound-ports": f"25,{SKIPPED_WEB}",
}


def command_line(mode: str, annotations: dict[str, str], folder: Path) -> list[str]:
    """Command and arguments of the init container, from the patched pod's YAML."""
    chart = {
        "linkerdVersion": "v1",
        "disableIPv6": False,
        "proxyInit": {"iptablesMode": mode, "command": [PROGRAM]},
    }
    document = pod(annotations=annotations)
    known = Known(
        values=values.load(chart, trust_anchors="PEM\n"),
        namespace="shop",
        ns_annotations=NAMESPACE,
        owner=Owner("deployment", "web"),
        creator="linkerd/proxy-injector v1",
    )
    outcome = judge(workload.read(document), known)
    assert outcome.fate is Fate.INJECTED
    assert outcome.warnings == ()
    patched = jsonpatch.apply_patch(document, json.loads(outcome.patch or b""))
    manifest = folder / "pod.yaml"
    manifest.write_text(yaml.safe_dump(patched))
    found: dict[str, Any] = yaml.safe_load(manifest.read_text())
    init = found["spec"]["initContainers"][0]
    return [*init["command"], *init["args"]]


@pytest.mark.parametrize("version", [4, 6], ids=["ipv4", "ipv6"])
def test_the_patched_pod_redirects(
    lab: Lab, iptables_mode: str, version: int, tmp_path: Path
) -> None:
    """Through the proxy, unless namespace or pod say otherwise."""
    lab.app(APP, SKIPPED_APP)
    lab.stand_in(lab.pod, "proxy", (IN, OUT), uid=PROXY_UID, transparent=True)
    lab.world(WEB, SKIPPED_WEB)
    own = {f"{C}skip-inbound-ports": f"{SKIPPED_APP}"}

    done = lab.pod.exec(command_line(iptables_mode, own, tmp_path))

    assert done.returncode == 0, done.stderr
    me, world = POD[version], WORLD[version]
    through = Answer("proxy", IN, (me, APP))
    assert lab.inbound(APP, version=version) == through
    assert lab.inbound(SKIPPED_APP, version=version) == Answer("app", SKIPPED_APP)
    through = Answer("proxy", OUT, (world, WEB))
    assert lab.outbound(world, WEB, uid=APP_UID) == through
    past = Answer("world", SKIPPED_WEB)
    assert lab.outbound(world, SKIPPED_WEB, uid=APP_UID) == past
    assert lab.outbound(world, WEB, uid=PROXY_UID) == Answer("world", WEB)


@pytest.mark.parametrize("version", [4, 6], ids=["ipv4", "ipv6"])
def test_a_pods_own_subnets_go_past_the_proxy(
    lab: Lab, iptables_mode: str, version: int, tmp_path: Path
) -> None:
    """Sources and destinations, of both families, by the pod's own annotations."""
    lab.app(APP)
    lab.stand_in(lab.pod, "proxy", (IN, OUT), uid=PROXY_UID, transparent=True)
    lab.world(WEB)
    own = {
        f"{C}skip-inbound-subnets": f"{CLIENT[4]}/32,{CLIENT[6]}/128",
        f"{C}skip-outbound-subnets": f"{WORLD[4]}/32,{WORLD[6]}/128",
    }

    done = lab.pod.exec(command_line(iptables_mode, own, tmp_path))

    assert done.returncode == 0, done.stderr
    assert lab.inbound(APP, version=version) == Answer("app", APP)
    assert lab.outbound(WORLD[version], WEB, uid=APP_UID) == Answer("world", WEB)
