"""What injecting manifests costs: against reading and writing YAML, and in memory.

Whole programs are compared, each from its start to its end, taking turns.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from interception import Row

DEPLOYMENTS = 1000
TURNS = 7
TARGET = 1.5
GROWTH_TARGET = 1.1

PROGRAM = (sys.executable, "-m", "proxyinit.inject.launcher")
REFERENCE = (
    sys.executable,
    "-c",
    """
import sys, yaml
documents = yaml.load_all(open(sys.argv[1]), yaml.CSafeLoader)
yaml.dump_all(documents, sys.stdout, yaml.CSafeDumper)
""",
)
ANCHORS = "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n"
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: server-{number}
  namespace: shop
  labels:
    app.kubernetes.io/name: server
    app.kubernetes.io/part-of: shop
spec:
  replicas: 2
  selector:
    matchLabels:
      app: server-{number}
  template:
    metadata:
      labels:
        app: server-{number}
      annotations:
        prometheus.io/scrape: "true"
    spec:
      serviceAccountName: server
      containers:
        - name: server
          image: registry.example.com/shop/server:v1.2.3  # pinned
          args: ["--listen", ":8080"]
          env:
            - name: LOG_LEVEL
              value: info
            - name: DATABASE
              valueFrom:
                secretKeyRef:
                  name: database
                  key: url
          ports:
            - containerPort: 8080
              name: http
          readinessProbe:
            httpGet:
              path: /ready
              port: 8080
          resources:
            requests:
              cpu: 100m
              memory: 64Mi
            limits:
              memory: 128Mi
          volumeMounts:
            - name: data
              mountPath: /data
      volumes:
        - name: data
          emptyDir: {{}}
---
"""


def rows() -> Iterator[Row]:
    """Every figure of the manifests."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        here = Path(folder)
        (here / "anchors.pem").write_text(ANCHORS)
        manual = (
            *("--manual", "--ignore-cluster", "--proxy-version", "v1"),
            *("--trust-anchors", str(here / "anchors.pem")),
        )
        yield _cost(here, "inject", ())
        yield _cost(here, "inject --manual", manual)
        yield _growth(here, manual)


def _cost(folder: Path, what: str, options: tuple[str, ...]) -> Row:
    """CPU time of a whole run, as a multiple of reading and writing the same."""
    path = _stream(folder, DEPLOYMENTS)
    ours, reference = [], []
    for _ in range(TURNS):
        ours.append(_run((*PROGRAM, "inject", *options, path))[0])
        reference.append(_run((*REFERENCE, path))[0])
    each_s, least_s = statistics.median(ours), statistics.median(reference)
    ratio = each_s / least_s
    figure = f"{ratio:.2f} ({1e3 * each_s:.0f} ms, {1e3 * least_s:.0f} ms)"
    told = f"`{what}` of {DEPLOYMENTS:,} Deployments against PyYAML's C load and dump"
    return Row(told, figure, f"≤ {TARGET}", ratio <= TARGET)


def _growth(folder: Path, options: tuple[str, ...]) -> Row:
    """The largest memory of a stream ten times as long, as a multiple."""
    peaks = [
        _run((*PROGRAM, "inject", *options, _stream(folder, count)))[1]
        for count in (DEPLOYMENTS, 10 * DEPLOYMENTS)
    ]
    ratio = peaks[1] / peaks[0]
    figure = f"{ratio:.2f} ({peaks[0] >> 20} MiB, {peaks[1] >> 20} MiB)"
    told = "memory of `inject --manual` when the stream is ten times as long"
    return Row(told, figure, f"≤ {GROWTH_TARGET}", ratio <= GROWTH_TARGET)


def _stream(folder: Path, count: int) -> str:
    path = folder / f"{count}.yaml"
    with path.open("w") as file:
        file.writelines(DEPLOYMENT.format(number=n) for n in range(count))
    return str(path)


def _run(argv: tuple[str, ...]) -> tuple[float, int]:
    """CPU seconds and the peak of memory in bytes of one run that succeeds."""
    with open(os.devnull, "wb") as nothing:  # noqa: PTH123  (no path of ours)
        target = nothing.fileno()
        redirect = [(os.POSIX_SPAWN_DUP2, target, stream) for stream in (1, 2)]
        pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=redirect)
        _, status, used = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{argv} failed with status {status}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss << 10


if __name__ == "__main__":
    for row in rows():
        sys.stdout.write(f"{row.what}: {row.figure}, {row.target}\n")
