"""The manifests that bring the webhook into a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # has no types
import pytest
import yaml

from proxyinit import pflag
from proxyinit.inject import certificates, configuration, self_signed
from proxyinit.inject.api_cache import FOLLOWED
from proxyinit.inject.serve_cli import FLAGS
from proxyinit.inject.server import GRACE_S

PODS = Path(__file__).parents[2] / "images" / "pods"
DOCUMENTS = {
    found["kind"]: found
    for found in yaml.safe_load_all((PODS / "proxy-injector.yaml").read_text())
}
OTHERS = {
    found["kind"]: found
    for found in yaml.safe_load_all(
        (PODS / "proxy-injector-cert-manager.yaml").read_text()
    )
}
POD = DOCUMENTS["Deployment"]["spec"]["template"]["spec"]


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_kubernetes_takes_it(kind: str) -> None:
    """Every object is valid, strictly."""
    kubernetes_validate.validate(DOCUMENTS[kind], "1.33", strict=True)


def test_the_webhook_sees_what_it_should() -> None:
    """Rules and selectors of the contract."""
    (webhook,) = DOCUMENTS["MutatingWebhookConfiguration"]["webhooks"]

    assert DOCUMENTS["MutatingWebhookConfiguration"]["metadata"] == {
        "name": self_signed.CONFIGURATION
    }
    assert webhook == {
        "name": "linkerd-proxy-injector.linkerd.io",
        "clientConfig": {
            "service": {
                "name": self_signed.SERVICE,
                "namespace": "linkerd",
                "path": "/",
            }
        },
        "rules": [
            {
                "operations": ["CREATE"],
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["pods", "services"],
                "scope": "Namespaced",
            }
        ],
        "namespaceSelector": {
            "matchExpressions": [
                {
                    "key": "config.linkerd.io/admission-webhooks",
                    "operator": "NotIn",
                    "values": ["disabled"],
                },
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": ["kube-system", "cert-manager"],
                },
            ]
        },
        "objectSelector": {
            "matchExpressions": [
                {
                    "key": "linkerd.io/control-plane-component",
                    "operator": "DoesNotExist",
                },
                {"key": "linkerd.io/cni-resource", "operator": "DoesNotExist"},
            ]
        },
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "admissionReviewVersions": ["v1", "v1beta1"],
    }


def test_rights_are_those_that_are_used() -> None:
    """What is followed may be read, events made, one configuration patched."""
    rules = DOCUMENTS["ClusterRole"]["rules"]
    granted = {
        (group, resource): set(rule["verbs"])
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    used: dict[tuple[str, str], set[str]] = {
        (each.group.split("/")[2] if "apis" in each.group else "", each.plural): {
            *("get", "list", "watch")
        }
        for each in FOLLOWED
    }
    used["", "events"] = {"create"}
    used["admissionregistration.k8s.io", "mutatingwebhookconfigurations"] = {
        *("get", "patch")
    }

    assert granted == used
    (named,) = (rule["resourceNames"] for rule in rules if "resourceNames" in rule)
    assert named == [self_signed.CONFIGURATION]


def test_files_are_where_the_program_looks() -> None:
    """Mounts, ports and arguments fit its defaults."""
    (container,) = POD["containers"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    used = (
        *(configuration.VALUES, configuration.TRUST_ROOTS, certificates.CERTIFICATE),
        certificates.KEY,
    )
    assert mounts == {str(path.parent) for path in used}
    defaults: dict[str, Any] = {flag.name: flag.default for flag in FLAGS}
    ports = {port["containerPort"] for port in container["ports"]}
    assert ports == {
        int(defaults[name].rpartition(":")[2]) for name in ("addr", "metrics-addr")
    }
    given = pflag.parse(container["args"][1:], FLAGS)
    assert (given.problems, given.words) == ((), ())


def test_cert_manager_makes_what_is_mounted() -> None:
    """The Secret, for the Service's name; what the comment removes is the flag."""
    spec = OTHERS["Certificate"]["spec"]
    (tls,) = (volume for volume in POD["volumes"] if volume["name"] == "tls")

    assert spec["secretName"] == tls["secret"]["secretName"]
    assert spec["dnsNames"] == [f"{self_signed.SERVICE}.linkerd.svc"]
    assert POD["containers"][0]["args"][2] == "--self-signed"
    comment = (PODS / "proxy-injector-cert-manager.yaml").read_text()
    assert "/spec/template/spec/containers/0/args/2" in comment


def test_who_goes_takes_reviews_meanwhile() -> None:
    """There is time left for those under way, before it is killed."""
    grace_s = POD.get("terminationGracePeriodSeconds", 30)
    waits_s = POD["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]

    assert 0 < waits_s < grace_s - GRACE_S


def test_there_is_always_one() -> None:
    """Two replicas on different nodes, and one of them may go at a time."""
    assert DOCUMENTS["Deployment"]["spec"]["replicas"] == 2
    budget = DOCUMENTS["PodDisruptionBudget"]["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == DOCUMENTS["Deployment"]["spec"]["selector"]
