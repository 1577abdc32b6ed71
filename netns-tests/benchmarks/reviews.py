"""Reviews of pods as an API server sends them: with all fields that it fills in."""

from __future__ import annotations

import json
from typing import Any

_FIELDS = {
    "f:metadata": {
        "f:annotations": {".": {}, "f:prometheus.io/scrape": {}},
        "f:generateName": {},
        "f:labels": {".": {}, "f:app": {}, "f:pod-template-hash": {}},
        "f:ownerReferences": {".": {}, 'k:{"uid":"0c7f5b1e-9b4e-4f6e"}': {}},
    },
    "f:spec": {
        "f:containers": {
            'k:{"name":"server"}': {
                ".": {},
                "f:args": {},
                "f:env": {".": {}, 'k:{"name":"A"}': {".": {}, "f:value": {}}},
                "f:image": {},
                "f:imagePullPolicy": {},
                "f:ports": {".": {}, 'k:{"containerPort":8080}': {".": {}}},
                "f:resources": {".": {}, "f:requests": {".": {}, "f:cpu": {}}},
                "f:terminationMessagePath": {},
            }
        },
        "f:dnsPolicy": {},
        "f:enableServiceLinks": {},
        "f:restartPolicy": {},
        "f:schedulerName": {},
        "f:securityContext": {},
        "f:serviceAccountName": {},
        "f:terminationGracePeriodSeconds": {},
    },
}
_TOKEN = {
    "name": "kube-api-access-x7k2p",
    "projected": {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {
                "configMap": {
                    "name": "kube-root-ca.crt",
                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                }
            },
            {
                "downwardAPI": {
                    "items": [
                        {
                            "path": "namespace",
                            "fieldRef": {
                                "apiVersion": "v1",
                                "fieldPath": "metadata.namespace",
                            },
                        }
                    ]
                }
            },
        ],
        "defaultMode": 420,
    },
}


def review(number: int) -> bytes:
    """The review of a typical pod: of the Deployment `server-<number>`, in JSON."""
    name = f"server-{number}"
    metadata = {
        "generateName": f"{name}-5b6f8d9c4-",
        "namespace": "shop",
        "creationTimestamp": None,
        "labels": {"app": name, "pod-template-hash": "5b6f8d9c4", "version": "v1"},
        "annotations": {"prometheus.io/scrape": "true"},
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": f"{name}-5b6f8d9c4",
                "uid": "0c7f5b1e-9b4e-4f6e-8f5d-2a1b3c4d5e6f",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "managedFields": [
            {
                "manager": "kube-controller-manager",
                "operation": "Update",
                "apiVersion": "v1",
                "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": _FIELDS,
            }
        ],
    }
    container = {
        "name": "server",
        "image": f"registry.example.com/shop/{name}:v1.2.3",
        "args": ["--listen", f":{8000 + number}", "--peers", "10.0.0.0/8"],
        "ports": [
            {"name": "http", "containerPort": 8000 + number, "protocol": "TCP"},
            {"name": "metrics", "containerPort": 9090, "protocol": "TCP"},
        ],
        "env": [
            {"name": f"SERVER_{word}", "value": f"{word.lower()}.shop.svc:8080"}
            for word in ("ORDERS", "PAYMENTS", "STOCK", "USERS", "EVENTS")
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "volumeMounts": [
            {
                "name": _TOKEN["name"],
                "readOnly": True,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            }
        ],
        "readinessProbe": {
            "httpGet": {"path": "/ready", "port": 9090, "scheme": "HTTP"},
            "timeoutSeconds": 1,
            "periodSeconds": 10,
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    spec = {
        "volumes": [_TOKEN],
        "containers": [container],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "server",
        "serviceAccount": "server",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{key}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for key in ("not-ready", "unreachable")
        ],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec}
    return json.dumps(_envelope(pod, number), separators=(",", ":")).encode()


def _envelope(pod: dict[str, Any], number: int) -> dict[str, Any]:
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": f"705ab4f5-6393-11e8-b7cc-{number:012}",
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "namespace": "shop",
            "operation": "CREATE",
            "userInfo": {
                "username": "system:serviceaccount:kube-system:replicaset-controller",
                "uid": "ed4b6d47-0c1c-4f0b-a4b8-6d6d0a1d3c52",
                "groups": ["system:serviceaccounts", "system:authenticated"],
            },
            "object": {**pod, "status": {}},
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }
