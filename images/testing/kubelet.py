"""Pods as they are written in images/pods, run by runc: what a kubelet makes of them.

Understood is what those files say: commands, variables, securityContext, and volumes
of the kinds emptyDir, secret, configMap and projected token. Probes are not run, and
who starts containers in which order is the test's business.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from identity.testing import project
from images.testing.oci import Mount, Security, Spec
from images.testing.runtime import Container, Finished, Runtime

PODS = Path(__file__).parents[1] / "pods"
Document = dict[str, Any]
Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Cluster:
    """What pods of a cluster find there.

    `roots` are the files of images by the start of their names; `objects` are the
    secrets and config maps by name; `token` makes one for (namespace, account,
    audience); `variables` are in every container, and replace those of the pod.
    """

    roots: Mapping[str, Path]
    objects: Mapping[str, Files]
    token: Callable[[str, str, str], bytes]
    variables: Mapping[str, str] = field(default_factory=dict)


def load(name: str, kind: str) -> Document:
    """The document of a kind in a file of images/pods."""
    text = (PODS / name).read_text(encoding="utf-8")
    (found,) = (made for made in yaml.safe_load_all(text) if made["kind"] == kind)
    document: Document = found
    return document


class Pod:
    """A pod of a document, in a network namespace: its containers, by name."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: Cluster,
        document: Document,
        network: str,
        namespace: str = "default",
    ) -> None:
        template = document["spec"].get("template")
        self.spec: Document = template["spec"] if template else document["spec"]
        self.namespace = document["metadata"].get("namespace", namespace)
        self._runtime = runtime
        self._cluster = cluster
        self._network = network
        volumes = self.spec.get("volumes", [])
        self.volumes = {volume["name"]: self._volume(volume) for volume in volumes}
        written = [*self.spec.get("initContainers", []), *self.spec["containers"]]
        self._containers = {container["name"]: container for container in written}

    @property
    def account(self) -> str:
        """The service account that it runs as."""
        return str(self.spec.get("serviceAccountName", "default"))

    def run(self, name: str) -> Finished:
        """Run a container to its end."""
        return self._runtime.run(self.container(name))

    def start(self, name: str, mounts: Sequence[Mount] = ()) -> Container:
        """Start a container, with more of the node's folders if need be."""
        return self._runtime.start(self.container(name, mounts))

    def container(self, name: str, mounts: Sequence[Mount] = ()) -> Spec:
        """What runc is to run for a container."""
        written = self._containers[name]
        roots = self._cluster.roots.items()
        (root,) = (root for start, root in roots if written["image"].startswith(start))
        mine = [
            Mount(
                str(self.volumes[mount["name"]]),
                mount["mountPath"],
                mount.get("readOnly", False),
            )
            for mount in written.get("volumeMounts", [])
        ]
        environment = self._environment(written)
        return Spec(
            str(root),
            [
                _expanded(word, environment)
                for word in (*written["command"], *written.get("args", []))
            ],
            self._network,
            self._security(written),
            environment,
            [*mine, *mounts],
            self.spec.get("hostPID", False),
        )

    def _security(self, written: Document) -> Security:
        own = written["securityContext"]
        context = {**self.spec.get("securityContext", {}), **own}
        if context["capabilities"]["drop"] != ["ALL"]:
            raise ValueError("expected a container that drops ALL")
        return Security(
            context["runAsUser"],
            context["runAsGroup"],
            tuple(context["capabilities"].get("add", ())),
            context["allowPrivilegeEscalation"],
            context["readOnlyRootFilesystem"],
        )

    def _environment(self, written: Document) -> dict[str, str]:
        made: dict[str, str] = {}
        for variable in written.get("env", []):
            made[variable["name"]] = self._value(variable, made)
        return {**made, **self._cluster.variables}

    def _value(self, variable: Document, made: Mapping[str, str]) -> str:
        if "value" in variable:
            return _expanded(variable["value"], made)
        source = variable["valueFrom"]
        if "fieldRef" in source:
            fields = {
                "metadata.namespace": self.namespace,
                "spec.serviceAccountName": self.account,
            }
            return str(fields[source["fieldRef"]["fieldPath"]])
        chosen = source["configMapKeyRef"]
        return self._cluster.objects[chosen["name"]][chosen["key"]].decode()

    def _volume(self, volume: Document) -> Path:
        """A folder of the node, with the content that the volume is to have."""
        path = Path(self._runtime.volume())
        files: dict[str, bytes] = {}
        if "secret" in volume:
            files = dict(self._cluster.objects[volume["secret"]["secretName"]])
        elif "configMap" in volume:
            files = dict(self._cluster.objects[volume["configMap"]["name"]])
        elif "projected" in volume:
            for source in volume["projected"]["sources"]:
                wanted = source["serviceAccountToken"]
                made = self._cluster.token(
                    self.namespace, self.account, wanted["audience"]
                )
                files[wanted["path"]] = made
        if files:
            project(path, files)
        group = self.spec.get("securityContext", {}).get("fsGroup", 0)
        for found in (path, *path.rglob("*")):
            if not found.is_symlink():
                os.chown(found, 0, group)
                found.chmod(found.stat().st_mode | 0o050 if found.is_dir() else 0o440)
        return path


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    """Kubernetes' ``$(NAME)``; a name that is not there stays as it is."""
    return re.sub(
        r"\$\((\w+)\)", lambda found: environment.get(found[1], found[0]), text
    )
