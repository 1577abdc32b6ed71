"""What an image is made of, as CycloneDX: Debian's packages, Python's, and ours."""
# ruff: noqa: INP001  (a folder of images; the build stage's own tools)

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import re
import subprocess
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import proxyinit

Part = dict[str, Any]

_FORMAT = "${Package}\t${Version}\t${Architecture}\n"
_LISTS = Path("/var/lib/dpkg/info")


def owners() -> Iterator[tuple[str, str]]:
    """(path, package) of every file that a package has installed."""
    for listing in sorted(_LISTS.glob("*.list")):
        for path in listing.read_text(encoding="utf-8").splitlines():
            yield path, listing.name.removesuffix(".list")


def document(name: str, packages: Iterable[str], library: Path, epoch: int) -> str:
    """The CycloneDX document (1.5, JSON) of an image.

    `packages` are Debian's, and Python's are found in `library`; `epoch` is the time
    that it bears.
    """
    version = proxyinit.__version__
    image = {"type": "container", "bom-ref": name, "name": name, "version": version}
    ours = {
        "type": "application",
        "bom-ref": f"proxyinit@{version}",
        "name": "proxyinit",
        "version": version,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    parts = [ours, *_debian(packages), *_python(library)]
    # The same parts have the same number: it is theirs, not that of a build.
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([image, parts]))
    made = dt.datetime.fromtimestamp(epoch, tz=dt.UTC)
    references = [part["bom-ref"] for part in parts]
    content = {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        "metadata": {
            "timestamp": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": image,
        },
        "components": parts,
        "dependencies": [{"ref": name, "dependsOn": references}],
    }
    return json.dumps(content, indent=1) + "\n"


def _debian(packages: Iterable[str]) -> Iterator[Part]:
    argv = ["/usr/bin/dpkg-query", "-W", "-f", _FORMAT, *sorted(packages)]
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE)
    text = Path("/etc/os-release").read_text(encoding="utf-8")
    release = re.search(r'^VERSION_ID="?([^"\n]+)', text, re.MULTILINE)
    distro = f"debian-{release[1]}" if release else "debian"
    for line in sorted(done.stdout.decode().splitlines()):
        name, version, architecture = line.split("\t")
        place = f"{name}@{quote(version, safe='')}?arch={architecture}"
        yield _part(name, version, f"pkg:deb/debian/{place}&distro={distro}")


def _python(library: Path) -> Iterator[Part]:
    found = importlib.metadata.distributions(path=[str(library)])
    for name, version in sorted((d.metadata["Name"], d.version) for d in found):
        normal = re.sub(r"[-_.]+", "-", name).lower()
        yield _part(name, version, f"pkg:pypi/{normal}@{quote(version, safe='')}")


def _part(name: str, version: str, purl: str) -> Part:
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
    }
