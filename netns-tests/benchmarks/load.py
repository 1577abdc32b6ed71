"""Load for the certifying service: requests, clients, and the bare work itself."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from identity._proto import CERTIFY
from identity._proto.identity_pb2 import CertifyRequest
from identity.testing import CA, Account, Signer, csr_der, new_key
from identity.testing.service import write_issuer

CLIENTS = 64
_KEYS = 8
_DIGITAL_SIGNATURE_AND_KEY_ENCIPHERMENT = (True, False, True, *[False] * 6)


@dataclass(frozen=True)
class Measured:
    """What clients saw: the seconds in all, and of each call, sorted."""

    seconds: float
    latencies_s: list[float]
    failed: int

    @property
    def rate(self) -> float:
        """Certificates a second."""
        return (len(self.latencies_s) - self.failed) / self.seconds

    @property
    def p99_ms(self) -> float:
        """How long all but one call in a hundred took at most."""
        return 1000 * self.latencies_s[int(len(self.latencies_s) * 0.99)]


@dataclass(frozen=True)
class Mesh:
    """An issuer's files, the cluster's key, and a folder to keep them in."""

    folder: Path
    issuer: CA
    signer: Signer

    @classmethod
    def make(cls, folder: Path) -> Mesh:
        """A mesh with its files written."""
        root = CA()
        mesh = cls(folder, root.issuer(), Signer())
        write_issuer(folder, mesh.issuer, root)
        (folder / "jwks.json").write_text(json.dumps(mesh.signer.jwks()))
        return mesh

    def requests(self, count: int) -> list[bytes]:
        """Requests of so many different workloads, each with a token of its own."""
        keys = [new_key() for _ in range(_KEYS)]
        made = []
        for number in range(count):
            account = Account("bench", f"w-{number}")
            name = (
                f"{account.name}.{account.namespace}.serviceaccount"
                ".identity.linkerd.cluster.local"
            )
            key = keys[number % _KEYS]
            message = CertifyRequest(
                identity=name,
                token=self.signer.token(account).encode(),
                certificate_signing_request=csr_der(name, key, common_name=True),
            )
            made.append(message.SerializeToString())
        return made


@dataclass(frozen=True)
class Service:
    """The service as a process, or several."""

    pid: int
    port: int

    @property
    def pids(self) -> list[int]:
        """The processes that serve."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        workers = [
            int(child)
            for child in children.split()
            if b"identity.issuer.workers" in Path(f"/proc/{child}/cmdline").read_bytes()
        ]
        return workers or [self.pid]

    @property
    def cpu_s(self) -> float:
        """The CPU time that serving has taken so far."""
        ticks = 0
        for pid in self.pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    @property
    def resident_kib(self) -> int:
        """The memory that serving holds now."""
        return sum(
            int(line.split()[1])
            for pid in self.pids
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if line.startswith("VmRSS:")
        )


@contextmanager
def service(mesh: Mesh, *more: str | Path) -> Iterator[Service]:
    """Run the installed program; its log goes to a file, as a container's does."""
    log = mesh.folder / "issuer.log"
    argv = [
        str(Path(sys.executable).with_name("proxy-identity")),
        *("issuer", "--addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"),
        *(
            "--controller-namespace",
            "linkerd",
            "--identity-scheme",
            "kubernetes.io/tls",
        ),
        *("--identity-trust-domain", "cluster.local"),
        *("--issuer", str(mesh.folder / "issuer")),
        *("--trust-anchors", str(mesh.folder / "roots" / "ca-bundle.crt")),
        *map(str, more),
    ]
    with log.open("w") as written:
        process = subprocess.Popen(argv, stderr=written)
    try:
        yield Service(process.pid, _port(process, log))
    finally:
        process.terminate()
        process.wait()


def jwks(mesh: Mesh) -> list[str]:
    """The arguments for verifying tokens offline."""
    keys = ["--jwks", str(mesh.folder / "jwks.json")]
    return ["--token-validator", "jwks", *keys, "--token-issuer", mesh.signer.issuer]


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    while process.poll() is None:
        text = log.read_text()
        if "ready to certify" in text:
            return int(text.partition("gRPC server on 127.0.0.1:")[2].split('"')[0])
        time.sleep(0.02)
    raise RuntimeError(f"the service did not start:\n{log.read_text()}")


@dataclass(frozen=True)
class Plan:
    """How the clients go about it.

    All requests are sent `again` times over; with `reconnect` each of them over a
    new connection, as from a new pod.
    """

    method: str = CERTIFY
    again: int = 1
    reconnect: bool = False


def drive(port: int, requests: Sequence[bytes], plan: Plan = Plan()) -> Measured:
    """Send all requests with 64 clients in a process of their own."""
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=_clients, args=(port, list(requests), plan, queue))
    process.start()
    measured: Measured = queue.get()
    process.join()
    return measured


def _clients(
    port: int,
    requests: list[bytes],
    plan: Plan,
    queue: multiprocessing.queues.SimpleQueue[Measured],
) -> None:
    queue.put(asyncio.run(_send(port, requests, plan)))


async def _send(port: int, requests: list[bytes], plan: Plan) -> Measured:
    waiting = (request for _ in range(plan.again) for request in requests)
    latencies: list[float] = []
    failed = 0

    def connect() -> grpc.aio.Channel:
        # Without a pool of its own, channels would share one connection.
        options = [("grpc.use_local_subchannel_pool", 1)]
        return grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)

    async def client() -> None:
        nonlocal failed
        channel = connect()
        for request in waiting:
            begun = time.perf_counter()
            try:
                method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
                method = channel.unary_unary(plan.method)
                await method(request, timeout=60)
            except grpc.RpcError:
                failed += 1
            latencies.append(time.perf_counter() - begun)
            if plan.reconnect:
                await channel.close()
                channel = connect()
        await channel.close()

    begun = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return Measured(time.perf_counter() - begun, sorted(latencies), failed)


def floor_s(mesh: Mesh, requests: Sequence[bytes]) -> float:
    """CPU seconds a certificate takes when nothing is done but the work itself.

    Parse the CSR, verify its signature, verify the token, build and sign: in a bare
    loop, with the libraries that the service uses.
    """
    key = jwt.PyJWK(mesh.signer.jwks()["keys"][0])
    issuer = mesh.issuer.certificate
    found = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    above = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(found.value)
    begun = time.process_time()
    for wire in requests:
        message = CertifyRequest.FromString(wire)
        csr = x509.load_der_x509_csr(message.certificate_signing_request)
        if not csr.is_signature_valid:
            raise RuntimeError("a CSR of ours is not signed")
        jwt.decode(
            message.token,
            key,
            algorithms=["RS256"],
            audience="identity.l5d.io",
            issuer=mesh.signer.issuer,
        )
        now = dt.datetime.now(tz=dt.UTC)
        usage = x509.KeyUsage(*_DIGITAL_SIGNATURE_AND_KEY_ENCIPHERMENT)
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        names = [x509.DNSName(message.identity)]
        builder = (
            x509.CertificateBuilder()
            .issuer_name(issuer.subject)
            .subject_name(csr.subject)
            .public_key(csr.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now)
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(above, critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
        )
        leaf = builder.sign(mesh.issuer.authority.key, hashes.SHA256())
        leaf.public_bytes(Encoding.DER)
    return (time.process_time() - begun) / len(requests)
