"""runc with a state of its own: containers that run to their end, or until stopped."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from images.testing.oci import Spec, configuration

SECCOMP = Path("/usr/share/containers/seccomp.json")
"""The default profile of Podman and CRI-O, from Debian's package of it."""

PATIENCE_S = 60


@dataclass(frozen=True)
class Finished:
    """How a container ended."""

    status: int
    stdout: str
    stderr: str
    wall_ms: float
    """From the start of runc to its end."""


class Runtime:
    """Starts containers; leaving the context ends what still runs."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        made = tempfile.TemporaryDirectory(prefix="proxyinit-runc-", dir="/var/tmp")
        self.folder = Path(self._stack.enter_context(made))
        self.folder.chmod(0o755)  # volumes are below, for every user
        self._numbers = itertools.count()
        self._seccomp: dict[str, Any] = json.loads(SECCOMP.read_text(encoding="utf-8"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def volume(self, mode: int = 0o777) -> str:
        """An empty folder of the node, as an emptyDir is."""
        path = self.folder / f"volume-{next(self._numbers)}"
        path.mkdir()
        path.chmod(mode)
        return str(path)

    def run(self, spec: Spec, limit_s: float = PATIENCE_S) -> Finished:
        """Run a container to its end."""
        with self._bundle(spec) as (name, bundle):
            argv = self.argv("run", f"--bundle={bundle}", name)
            start = time.perf_counter()
            done = subprocess.run(
                argv,
                capture_output=True,
                text=True,
                check=False,
                timeout=limit_s,
                stdin=subprocess.DEVNULL,
            )
            wall_ms = 1000 * (time.perf_counter() - start)
        return Finished(done.returncode, done.stdout, done.stderr, wall_ms)

    def start(self, spec: Spec) -> Container:
        """Start a container that is ended with this context at the latest."""
        stack = self._stack.enter_context(contextlib.ExitStack())
        name, bundle = stack.enter_context(self._bundle(spec))
        container = Container(self, name, bundle, stack)
        stack.callback(container.end)
        return container

    def argv(self, command: str, *words: str) -> list[str]:
        """The command line of a runc command."""
        state = f"--root={self.folder}/state"
        return ["runc", state, command, *words]

    @contextlib.contextmanager
    def _bundle(self, spec: Spec) -> Iterator[tuple[str, Path]]:
        """A folder with the configuration, and the image below a layer of its own.

        The layer takes the mount points of volumes, as a node's runtime makes them.
        """
        name = f"proxyinit-{os.getpid()}-{next(self._numbers)}"
        bundle = self.folder / name
        for part in ("rootfs", "upper", "work"):
            (bundle / part).mkdir(parents=True)
        layers = f"lowerdir={spec.root},upperdir={bundle}/upper,workdir={bundle}/work"
        root = str(bundle / "rootfs")
        _run(["mount", "-t", "overlay", "overlay", "-o", layers, root])
        try:
            content = configuration(replace(spec, root=root), name, self._seccomp)
            (bundle / "config.json").write_text(json.dumps(content), encoding="utf-8")
            yield name, bundle
        finally:
            _run(["umount", root])
            shutil.rmtree(bundle)


class Container:
    """A container that runs. Its log is what it prints, to both outputs."""

    def __init__(
        self, runtime: Runtime, name: str, bundle: Path, stack: contextlib.ExitStack
    ) -> None:
        self._runtime = runtime
        self._name = name
        self._stack = stack
        self.log = runtime.folder / f"{name}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                runtime.argv("run", f"--bundle={bundle}", name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        self._gone = False

    @property
    def printed(self) -> str:
        """All that it has printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.poll()

    @property
    def pid(self) -> int:
        """Its first process, as the node numbers it."""
        done = subprocess.run(
            self._runtime.argv("state", self._name),
            capture_output=True,
            check=True,
        )
        return int(json.loads(done.stdout)["pid"])

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to its first process, and wait for the end; its status."""
        argv = self._runtime.argv("kill", self._name, str(int(number)))
        # Where it has ended by itself, there is nobody to signal.
        subprocess.run(argv, check=False, capture_output=True)
        return self.wait()

    def wait(self, limit_s: float = PATIENCE_S) -> int:
        """Wait until it ends; its status."""
        return self._process.wait(limit_s)

    def until(self, said: str, limit_s: float = PATIENCE_S) -> None:
        """Wait until it has printed something."""
        deadline = time.monotonic() + limit_s
        while said not in self.printed:
            if self.status is not None:
                raise AssertionError(f"ended before it said {said!r}: {self.printed}")
            if time.monotonic() > deadline:
                raise AssertionError(f"did not say {said!r}: {self.printed}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End it now, and remove what it needed."""
        self._stack.close()

    def end(self) -> None:
        """Kill it if it still runs."""
        if self._process.poll() is None:
            self.kill()


def _run(argv: Sequence[str]) -> None:
    subprocess.run(argv, check=True, capture_output=True)
