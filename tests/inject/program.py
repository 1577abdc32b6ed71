"""The program `proxy-injector serve`, running, with its files and its cluster."""

from __future__ import annotations

import http.client
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from identity.testing import CA, project
from proxyinit.inject.testing import Caller, Cluster

LAUNCHER = [sys.executable, "-m", "proxyinit.inject.launcher"]
PORT = re.compile(r':(\d+)"')


class Program:
    """A running `serve`, with its files in one folder, and its lines as they come."""

    def __init__(self, folder: Path, cluster: Cluster, *more: str) -> None:
        self.folder, self.cluster = folder, cluster
        self.ca = CA("webhook")
        self.lines: list[str] = []
        self._changed = threading.Condition()
        folder.mkdir(exist_ok=True)
        self.certify()
        self.values("linkerdVersion: v1\n")
        (folder / "roots.crt").write_text("PEM\n")
        kubeconfig = cluster.write_kubeconfig(folder)
        argv = [
            *(*LAUNCHER, "serve", "-addr=127.0.0.1:0", "-metrics-addr", "127.0.0.1:0"),
            *("-kubeconfig", str(kubeconfig), "--values", "config/values"),
            *("--trust-roots", "roots.crt", "--tls-cert", "tls/tls.crt"),
            *("--tls-key", "tls/tls.key", *more),
        ]
        self.process = subprocess.Popen(
            argv, cwd=folder, stderr=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.admin_port = int(PORT.findall(self.wait("starting admin server"))[0])
        self.port = int(PORT.findall(self.wait("listening at"))[0])

    def certify(self) -> None:
        """Write a new certificate, as the kubelet does."""
        leaf = self.ca.leaf(dns=["localhost"])
        files = {"tls.crt": leaf.pem, "tls.key": leaf.key_pem}
        project(self.folder / "tls", files)

    def values(self, text: str) -> None:
        """Write new values, as the kubelet does."""
        project(self.folder / "config", {"values": text.encode()})

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def wait(self, words: str, after: int = 0) -> str:
        """The first line with these words."""

        def found() -> str | None:
            return next((x for x in self.lines[after:] if words in x), None)

        with self._changed:
            assert self._changed.wait_for(found, 20), self.lines
        line = found()
        assert line is not None
        return line

    def caller(self) -> Caller:
        """A connection that trusts it."""
        return Caller(self.port, self.ca.pem)

    def admin(self, path: str) -> tuple[int, str]:
        """What an admin endpoint says."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.admin_port, timeout=10
        )
        connection.request("GET", path)
        response = connection.getresponse()
        found = response.status, response.read().decode()
        connection.close()
        return found

    def ready(self) -> None:
        """Wait until it has its memory."""
        while self.admin("/ready")[0] != 200:
            assert self.process.poll() is None

    def stop(self) -> int:
        """Ask it to stop; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def close(self) -> None:
        """End it however it stands."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()


@contextmanager
def injecting() -> Iterator[Cluster]:
    """A cluster with a namespace that injects."""
    with Cluster() as found:
        found.annotate("shop", {"linkerd.io/inject": "enabled"})
        yield found


@contextmanager
def running(folder: Path, cluster: Cluster) -> Iterator[Program]:
    """The program, ready."""
    made = Program(folder, cluster)
    try:
        made.ready()
        yield made
    finally:
        made.close()
