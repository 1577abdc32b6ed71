"""The chapter on injection: from a manifest to the redirect that it asks for."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from proxyinit.backend import ALL_VERSIONS
from proxyinit.demo import tables
from proxyinit.demo.checks import NotAsExpected, require_answers
from proxyinit.demo.expectations import (
    APP_PORT,
    IGNORED_PORT,
    LINKERD_ARGUMENTS,
    PROXY_IN,
    PROXY_OUT,
    WEB_PORT,
    Case,
    Endpoint,
    Seen,
)
from proxyinit.demo.stage import Chapter, Stage
from proxyinit.errors import CommandFailed
from proxyinit.lab import POD, WORLD

INJECTOR = (sys.executable, "-m", "proxyinit.inject.launcher")
INIT = "linkerd-init"

MANIFEST = """\
apiVersion: v1
kind: Pod
metadata:
  name: web
  annotations:
    config.linkerd.io/skip-outbound-ports: "80"  # an old client of ours
spec:
  containers:
    - name: web
      image: registry.example.com/web:v1
      ports:
        - containerPort: 8080
"""
VALUES = """\
linkerdVersion: demo
disableIPv6: false
proxyInit: {{iptablesMode: {mode}}}
"""
ANCHORS = "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n"
OPTIONS = ("--manual", "--values", "values.yaml", "--trust-anchors", "anchors.crt")


def _cases() -> Iterator[Case]:
    """Connections, and who answers once the annotation has been followed."""
    for version in ALL_VERSIONS:
        app = Endpoint(POD[version], APP_PORT)
        yield Case("client", app, Seen("app", APP_PORT), Seen("proxy", PROXY_IN, app))
    for version in ALL_VERSIONS:
        web = Endpoint(WORLD[version], WEB_PORT)
        direct = Seen("world", WEB_PORT)
        yield Case("app", web, direct, direct, "as annotated")
        other = Endpoint(WORLD[version], IGNORED_PORT)
        direct = Seen("world", IGNORED_PORT)
        yield Case("app", other, direct, Seen("proxy", PROXY_OUT, other))


CASES = tuple(_cases())


def inject(stage: Stage) -> None:
    """Inject a pod's manifest, run what its init container runs, and connect."""
    files = {
        "web.yaml": MANIFEST,
        "values.yaml": VALUES.format(mode=stage.mode),
        "anchors.crt": ANCHORS,
    }
    for name, text in files.items():
        (stage.folder / name).write_text(text)
    stage.narrator.printed(MANIFEST)
    injected = _run(stage, "inject", *OPTIONS, "web.yaml")
    _require_lines(injected)
    stage.narrator.proved("every line of the author's is where it was, comment and all")
    arguments = _arguments(injected)
    stage.narrator.say("What the init container in it runs, run as it stands:")
    stage.proxy_init(("cleanup",))
    stage.narrator.command(["proxy-init", *arguments])
    stage.run([stage.program, *arguments])
    found = [(case, stage.connect(case)) for case in CASES]
    stage.narrator.table(tables.answers(found))
    require_answers(found, lambda case: case.after)
    stage.narrator.proved(
        f"{len(found)} of {len(found)} connections go as the annotation says"
    )
    (stage.folder / "injected.yaml").write_text(injected)
    stage.narrator.say("And out of the manifest again:")
    after = _run(stage, "uninject", "injected.yaml")
    if after.removesuffix("---\n") != MANIFEST:
        raise NotAsExpected("expected uninject to give the manifest back", after)
    stage.narrator.proved("uninject gives the manifest back, byte for byte")
    stage.proxy_init(("cleanup",))
    stage.proxy_init(LINKERD_ARGUMENTS)  # as the chapters after this one expect it


def _run(stage: Stage, command: str, *words: str) -> str:
    """What the injector makes of files in the stage's folder; the line is shown."""
    stage.narrator.command(["proxy-injector", command, *words])
    paths = [
        str(stage.folder / word) if (stage.folder / word).is_file() else word
        for word in words
    ]
    try:
        return stage.run([*INJECTOR, command, *paths]).stdout
    except CommandFailed as error:
        raise NotAsExpected(f"proxy-injector {command} failed", error.stderr) from error


def _require_lines(injected: str) -> None:
    """Raises `NotAsExpected` unless the author's lines are there, in their order."""
    rest = iter(injected.splitlines())
    lost = [line for line in MANIFEST.splitlines() if line not in rest]
    if lost:
        raise NotAsExpected(f"expected the line {lost[0]!r} to be kept", injected)


def _arguments(injected: str) -> Sequence[str]:
    """The arguments of the init container in a pod's manifest."""
    pod: dict[str, Any] = yaml.safe_load(injected.removesuffix("---\n"))
    for container in pod["spec"].get("initContainers", ()):
        if container["name"] == INIT:
            return [str(argument) for argument in container["args"]]
    raise NotAsExpected(f"expected a container {INIT}, found none", injected)


CHAPTERS = (
    Chapter(
        title="Into a pod's manifest",
        why=(
            "Nobody writes these arguments by hand. proxy-injector adds the init "
            "container and the proxy to a pod: as a webhook in the cluster, or to a "
            "manifest on the command line. Annotations say what is special: this pod "
            "is to reach port 80 past the proxy, which replaces the default's ports."
        ),
        act=inject,
    ),
)
