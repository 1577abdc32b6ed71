"""images/pods: what `kubectl apply` takes, by Kubernetes' own schema and our rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # it ships none
import pytest
import yaml

import proxyinit

FOLDER = Path(__file__).parents[1] / "images/pods"
FILES = sorted(FOLDER.glob("*.yaml"))
KUBERNETES = "1.37"
OURS = "localhost/proxyinit/"

RESTRICTED_CAPABILITIES = {"NET_BIND_SERVICE"}
"""What a restricted container may add (Pod Security Standards)."""

PRIVILEGED = {"linkerd-init.yaml", "verify-node.yaml"}
"""Files that ask for more than the restricted level allows, and why is in them."""

OTHERS = {"cert-manager.io/v1"}
"""APIs that are not Kubernetes' own, whose schema it does not have."""

WITHOUT_PODS = {"proxy-injector-cert-manager.yaml"}
"""Files that only go beside another."""

Document = dict[str, Any]


def documents(path: Path) -> list[Document]:
    return [made for made in yaml.safe_load_all(path.read_text()) if made]


def pod_specs(path: Path) -> Iterator[Document]:
    """The spec of each pod that a file makes, directly or by a template."""
    for document in documents(path):
        spec = document.get("spec", {})
        if document["kind"] == "Pod":
            yield spec
        elif "template" in spec:
            yield spec["template"]["spec"]


def containers(spec: Document) -> list[Document]:
    return [*spec.get("initContainers", []), *spec["containers"]]


@pytest.fixture(params=FILES, ids=[path.name for path in FILES])
def path(request: pytest.FixtureRequest) -> Path:
    """Each of the files."""
    made: Path = request.param
    return made


def test_kubernetes_takes_it(path: Path) -> None:
    """Valid by the OpenAPI schema, with no field that it does not know."""
    found = documents(path)
    assert found
    for document in found:
        if document["apiVersion"] in OTHERS:
            continue
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_its_pods_are_found(path: Path) -> None:
    """What the tests below ask of pods, they ask of some."""
    assert bool(list(pod_specs(path))) == (path.name not in WITHOUT_PODS)


def test_the_schema_refuses() -> None:
    """A field of another name is told, so that the test above means something."""
    (document,) = documents(FOLDER / "linkerd-init.yaml")
    document["spec"]["initContainer"] = document["spec"].pop("initContainers")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_level_is_told(path: Path) -> None:
    """The comment at the top says which Pod Security level it needs."""
    head = "".join(
        line for line in path.read_text().splitlines() if line.startswith("#")
    )
    if not list(pod_specs(path)):
        return
    level = "privileged" if path.name in PRIVILEGED else "restricted"
    assert f"Pod Security: {level}." in head


def test_level_is_kept(path: Path) -> None:
    """Restricted means restricted: every rule of the level, for every container."""
    broken = [
        complaint for spec in pod_specs(path) for complaint in beyond_restricted(spec)
    ]
    assert bool(broken) == (path.name in PRIVILEGED), broken


def beyond_restricted(spec: Document) -> Iterator[str]:
    """What the restricted level would refuse of a pod."""
    for field in ("hostPID", "hostIPC", "hostNetwork"):
        if spec.get(field):
            yield field
    if any("hostPath" in volume for volume in spec.get("volumes", [])):
        yield "hostPath"
    for container in containers(spec):
        name = container["name"]
        # The container's own word counts before that of the pod.
        context = {**spec.get("securityContext", {}), **container["securityContext"]}
        capabilities = context["capabilities"]
        if set(capabilities.get("add", [])) - RESTRICTED_CAPABILITIES:
            yield f"{name}: capabilities.add"
        if "ALL" not in capabilities["drop"]:
            yield f"{name}: capabilities.drop"
        if context["allowPrivilegeEscalation"] is not False:
            yield f"{name}: allowPrivilegeEscalation"
        if context.get("runAsNonRoot") is not True or not context.get("runAsUser"):
            yield f"{name}: runAsNonRoot"
        if context["seccompProfile"]["type"] != "RuntimeDefault":
            yield f"{name}: seccompProfile"


def test_containers_are_hardened(path: Path) -> None:
    """Whatever the level: read-only root, no escalation, and requests and limits."""
    for spec in pod_specs(path):
        for container in containers(spec):
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert not context.get("privileged")
            assert container["resources"]["requests"]
            assert container["resources"]["limits"]["memory"]


def test_images_are_those_of_make_images(path: Path) -> None:
    """Ours bear the version of this checkout; nobody else's is without a version."""
    for spec in pod_specs(path):
        for container in containers(spec):
            name, _, tag = container["image"].rpartition(":")
            assert tag not in ("", "latest")
            if name.startswith(OURS):
                assert tag == proxyinit.__version__
                assert container["imagePullPolicy"] == "IfNotPresent"


def test_no_token_where_none_is_needed(path: Path) -> None:
    """The Kubernetes API is for those that call it."""
    callers = {"identity-service.yaml", "proxy-injector.yaml"}
    for spec in pod_specs(path):
        mounted = spec.get("automountServiceAccountToken", True)
        assert mounted == (path.name in callers)


def test_mounts_lead_to_volumes(path: Path) -> None:
    """Every mount has its volume, and every volume somebody who mounts it."""
    for spec in pod_specs(path):
        volumes = {volume["name"] for volume in spec.get("volumes", [])}
        mounted = {
            mount["name"]
            for container in containers(spec)
            for mount in container.get("volumeMounts", [])
        }
        assert mounted == volumes
