"""What certifying costs: against the bare work, under a storm, over a long time.

CPU times are compared within one run; rates and latencies are for orientation.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from interception import Row
from load import Measured, Mesh, Plan, Service, drive, floor_s, jwks, service

from identity.testing import KubernetesApi

PROGRAM = str(Path(sys.executable).with_name("proxy-identity"))
WORKLOADS = 6000
STORM = 10_000
FLOOR = 1500
ROUNDS = 5
PAIRS = 41
MEMORY = "/dev/shm"  # noqa: S108  (the identity directory is in memory in pods, too)
API_DELAY_S = 0.010
HEALTH = "/grpc.health.v1.Health/Check"


def rows() -> Iterator[Row]:
    """Every figure of the identity part."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        mesh = Mesh.make(Path(folder))
        requests = mesh.requests(STORM)
        cost, one = _cost(mesh, requests[:WORKLOADS])
        yield cost
        yield _workers(mesh, requests[:WORKLOADS], one)
        yield _storm(mesh, requests)
        yield _reviews(mesh)
        yield _bootstrap(Path(folder))
        yield _memory(mesh, requests)


def _cost(mesh: Mesh, requests: list[bytes]) -> tuple[Row, Measured]:
    """CPU time a certificate, as a multiple of what the work itself takes.

    The median of several rounds, each between two runs of the bare work.
    """
    with service(mesh, *jwks(mesh)) as running:
        drive(running.port, requests[:500])
        rounds = []
        floors_s = [floor_s(mesh, requests[:FLOOR])]
        for _ in range(ROUNDS):
            each_s, measured = _cpu_each_s(running, requests, Plan())
            floors_s.append(floor_s(mesh, requests[:FLOOR]))
            least_s = statistics.mean(floors_s[-2:])
            rounds.append((each_s / least_s, each_s, least_s, measured))
        empty_s, _ = _cpu_each_s(running, [b""] * len(requests), Plan(method=HEALTH))
    ratio, each_s, least_s, measured = sorted(rounds, key=lambda found: found[0])[
        ROUNDS // 2
    ]
    figure = (
        f"{ratio:.2f} (service {1e6 * each_s:.0f} µs, floor {1e6 * least_s:.0f} µs, "
        f"an empty gRPC call {1e6 * empty_s:.0f} µs)"
    )
    what = "CPU time of a certificate, jwks, 64 clients, against the bare work"
    return Row(what, figure, "≤ 2", ratio <= 2), measured


def _cpu_each_s(
    running: Service, requests: list[bytes], plan: Plan
) -> tuple[float, Measured]:
    """CPU seconds of the service for each call, and what the clients saw."""
    begun_s = running.cpu_s
    measured = drive(running.port, requests, plan)
    return (running.cpu_s - begun_s) / len(requests), measured


def _workers(mesh: Mesh, requests: list[bytes], one: Measured) -> Row:
    """Rates with one process and with two; more cores than that let both show."""
    with service(mesh, *jwks(mesh), "--workers", "2") as running:
        drive(running.port, requests[:500])
        two = drive(running.port, requests)
    ratio = two.rate / one.rate
    cores = os.cpu_count() or 1
    figure = f"{ratio:.2f} ({one.rate:.0f}/s with 1, {two.rate:.0f}/s with 2)"
    what = f"certificates a second with 2 worker processes against 1, {cores} cores"
    # The clients need a core too: with fewer than four nothing can be said.
    met = ratio >= 1.6 if cores >= 4 else None
    return Row(what, figure, "≥ 1.6 where cores allow", met)


def _storm(mesh: Mesh, requests: list[bytes]) -> Row:
    """All pods of a large cluster at once, each over a connection of its own."""
    with service(mesh, *jwks(mesh)) as running:
        measured = drive(running.port, requests, Plan(reconnect=True))
    issued = len(measured.latencies_s) - measured.failed
    figure = (
        f"{issued} issued, {measured.failed} failed, {measured.seconds:.1f} s, "
        f"p99 {measured.p99_ms:.0f} ms"
    )
    what = f"restart storm: {STORM} identities, a connection each"
    met = measured.failed == 0 and issued == STORM and measured.seconds <= 60
    return Row(what, figure, "all, ≤ 60 s", met)


def _reviews(mesh: Mesh) -> Row:
    """TokenReview at its cap of 100 a second."""
    with KubernetesApi(signer=mesh.signer) as api:
        api.delay_s = API_DELAY_S
        kubeconfig = api.write_kubeconfig(mesh.folder)
        requests = mesh.requests(1000)
        with service(mesh, "--kubeconfig", kubeconfig) as running:
            measured = drive(running.port, requests)
    figure = (
        f"{measured.rate:.1f}/s, p99 {measured.p99_ms:.0f} ms, {measured.failed} failed"
    )
    what = "certificates a second with TokenReview, an API that takes 10 ms, cap 100"
    met = measured.failed == 0 and 95 <= measured.rate <= 101
    return Row(what, figure, "≥ 95/s, ≤ 101/s", met)


_IMPORTS = """
from cryptography.hazmat.backends.openssl.backend import backend  # signing brings it
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
"""


def _bootstrap(folder: Path) -> Row:
    """The bootstrap, up to becoming another program, against its imports alone.

    In memory and with nothing there from before, as in a new pod.
    """
    name = "web.emojivoto.serviceaccount.identity.linkerd.cluster.local"
    anchors = (folder / "roots" / "ca-bundle.crt").read_text()
    prefix = "LINKERD2_PROXY_IDENTITY"
    with tempfile.TemporaryDirectory(dir=MEMORY) as identity:
        environment = {
            **os.environ,
            f"{prefix}_DIR": identity,
            f"{prefix}_LOCAL_NAME": name,
            f"{prefix}_TRUST_ANCHORS": anchors,
        }

        def ours_ms() -> float:
            for path in Path(identity).iterdir():
                path.unlink()
            return _spawn_ms([PROGRAM, "--proxy", "/bin/true"], environment)

        program = f"{_IMPORTS}\nimport os\nos.execv('/bin/true', ['t'])"
        peer = [sys.executable, "-c", program]
        ours_ms()
        _spawn_ms(peer, environment)
        found = [(ours_ms(), _spawn_ms(peer, environment)) for _ in range(PAIRS)]
    ratio = statistics.median(a / b for a, b in found)
    own_ms, peer_ms = (statistics.median(times) for times in zip(*found, strict=True))
    figure = f"{ratio:.2f} (ours {own_ms:.1f} ms, imports {peer_ms:.1f} ms)"
    what = "bootstrap, whole process, against importing what key and CSR need"
    return Row(what, figure, "≤ 1.15", ratio <= 1.15)


def _spawn_ms(argv: list[str], environment: dict[str, str]) -> float:
    quiet = [
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    begun = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, environment, file_actions=quiet)
    _, status = os.waitpid(pid, 0)
    wall_ms = 1000 * (time.perf_counter() - begun)
    if status:
        raise RuntimeError(f"{' '.join(argv)} failed with status {status}")
    return wall_ms


def _memory(mesh: Mesh, requests: list[bytes]) -> Row:
    """What the service holds after many certificates, against after few."""
    with service(mesh, *jwks(mesh)) as running:
        drive(running.port, requests[:1000])
        few_kib = running.resident_kib
        drive(running.port, requests, Plan(again=100_000 // len(requests)))
        many_kib = running.resident_kib
    ratio = many_kib / few_kib
    figure = f"{ratio:.2f} ({few_kib / 1024:.1f} MiB, then {many_kib / 1024:.1f} MiB)"
    what = "memory of the service after 100,000 certificates against after 1,000"
    return Row(what, figure, "≤ 1.1", ratio <= 1.1)


if __name__ == "__main__":
    for row in rows():
        mark = {True: "ok", False: "missed", None: ""}[row.met]
        print(f"{row.what}: {row.figure} [{row.target}] {mark}", flush=True)  # noqa: T201
