"""The way to the service: names, TLS without ALPN, gRPC through it, and faults."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import os
import random
import socket
import ssl
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc
import pytest

from identity import keys, transport
from identity._proto.identity_pb2 import CertifyRequest, CertifyResponse
from identity.client import Certifier, answer
from identity.config import Config, Service
from identity.credentials import Credential, KeyPair
from identity.errors import (
    AttemptFailed,
    CallFailed,
    CertificateRejected,
    ClientRefused,
    IdentityError,
    ServiceUnreachable,
    ServiceUntrusted,
    TokenUnusable,
)
from identity.relay import Relay
from identity.testing import CA, Leaf
from identity.testing.mesh import Handler, MeshService, certified
from identity.transport import Stream, Tls
from identity.trust import Anchors

NAME = "web.emojivoto.serviceaccount.identity.linkerd.cluster.local"
SERVER = "linkerd-identity.linkerd.serviceaccount.identity.linkerd.cluster.local"
SPIFFE = "spiffe://cluster.local/ns/linkerd/sa/linkerd-identity"
TOKEN = "eyJhbGciOiJub25lIn0.c2VjcmV0.dG9rZW4"  # noqa: S105  (nobody's)
HOST = "127.0.0.1"
SECOND = dt.timedelta(seconds=1)

ROOT = CA()
ISSUER = ROOT.issuer()
ANCHORS = Anchors.parse(ROOT.pem.decode())
PAIR = KeyPair(key=(_key := keys.generate()), csr_der=keys.csr_der(_key, NAME))


def good(request: CertifyRequest, _: grpc.ServicerContext) -> CertifyResponse:
    """A service that certifies whatever it is asked to."""
    return certified(request, ISSUER)


@dataclass
class FixedLookup:
    """Name servers that know these records only."""

    found: list[str] = field(default_factory=lambda: [HOST])
    records: list[tuple[str, int]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    async def srv(self, name: str) -> list[tuple[str, int]]:
        self.asked.append(f"SRV {name}")
        return self.records

    async def addresses(self, name: str) -> list[str]:
        self.asked.append(f"A {name}")
        if not self.found:
            raise socket.gaierror(-2, "Name or service not known")
        return self.found


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A client of a service behind a mesh proxy; the port is still to be set."""
    (tmp_path / "token").write_text(TOKEN)
    return Config(
        directory=str(tmp_path),
        name=NAME,
        anchors=ANCHORS,
        token_file=str(tmp_path / "token"),
        service=Service(host="identity.linkerd.svc.", port=1, name=SERVER),
        connect_timeout=30 * SECOND,
        call_timeout=30 * SECOND,
    )


def certify(
    config: Config,
    port: int = 0,
    credential: Credential | None = None,
    lookup: FixedLookup | None = None,
) -> Credential:
    """One certification at a port."""
    if port:
        config = replace(config, service=replace(config.service, port=port))
    certifier = Certifier(
        lookup=lookup or FixedLookup(),
        now=lambda: dt.datetime.now(dt.UTC),
        random=random.Random(1),  # noqa: S311  (an order of addresses)
    )
    return asyncio.run(certifier.certify(config, PAIR, credential))


def failure(config: Config, port: int, kind: type[IdentityError]) -> str:
    """What is said when a certification at a port fails in this way."""
    with pytest.raises(kind) as caught:
        certify(config, port)
    assert type(caught.value) is kind
    assert TOKEN not in str(caught.value)
    return str(caught.value)


# === what is on the wire ===


def test_messages_have_the_bytes_of_the_contract() -> None:
    """Vectors of request and answer."""
    request = CertifyRequest(
        identity="x", token=b"tt", certificate_signing_request=b"c"
    )
    assert request.SerializeToString().hex() == "0a0178120274741a0163"
    response = CertifyResponse.FromString(
        bytes.fromhex("0a014c120249311202493 21a020801".replace(" ", ""))
    )
    read = answer(response)
    assert (read.leaf_der, read.intermediates_der) == (b"L", (b"I1", b"I2"))
    assert read.valid_until == dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)


def test_unknown_fields_and_any_order_are_read() -> None:
    """A newer service may say more, in another order."""
    response = CertifyResponse.FromString(bytes.fromhex("7a01001a0208010a014c"))
    assert answer(response).leaf_der == b"L"
    assert answer(CertifyResponse()).valid_until is None


@pytest.mark.parametrize("seconds", [2**62, -(2**62), 253402300800])
def test_instants_out_of_range_are_rejected(seconds: int) -> None:
    """No number of seconds makes the client fail."""
    response = CertifyResponse()
    response.valid_until.seconds = seconds
    with pytest.raises(CertificateRejected, match=r"ends in this era"):
        answer(response)


@pytest.mark.parametrize("alpn", [(), ("h2",)], ids=["no ALPN", "h2"])
def test_certified_through_a_mesh_proxy(config: Config, alpn: tuple[str, ...]) -> None:
    """TLS 1.3, the identity's name as SNI, token and CSR verbatim, no certificate."""
    token = f"{TOKEN}\n"
    Path(config.token_file).write_text(token)
    with MeshService(good, tls=ISSUER.leaf(SERVER), alpn=alpn, clients=ROOT) as service:
        credential = certify(config, service.port)

    assert credential.names == (NAME,)
    (seen,) = service.seen
    assert (seen.sni, seen.version, seen.client_der) == (SERVER, "TLSv1.3", None)
    assert seen.alpn is None, "nothing was offered, so nothing was selected"
    (request,) = service.requests
    assert request == CertifyRequest(
        identity=NAME,
        token=token.encode(),
        certificate_signing_request=PAIR.csr_der,
    )


def test_a_renewal_shows_the_certificate(config: Config) -> None:
    """What was certified is presented when the service asks for it."""
    leaf = ISSUER.leaf(SERVER)
    with MeshService(good, tls=leaf, clients=ROOT, required=True) as service:
        assert "certificate required" in failure(config, service.port, ClientRefused)
    with MeshService(good, tls=leaf, clients=ROOT) as service:
        first = certify(config, service.port)
        certify(config, service.port, first)
        assert [bool(seen.client_der) for seen in service.seen] == [False, True]


def test_an_expired_certificate_is_refused_as_such(config: Config) -> None:
    """In TLS 1.3 the refusal comes after the handshake; it is told all the same."""
    old = ISSUER.leaf(NAME, not_after=dt.datetime.now(dt.UTC) - SECOND)
    expired = Credential(
        key_pem=old.key_pem.decode(),
        chain_pem=old.pem.decode(),
        names=(NAME,),
        expiry=old.certificate.not_valid_after_utc,
    )
    with MeshService(good, tls=ISSUER.leaf(SERVER), clients=ROOT) as service:
        with pytest.raises(ClientRefused, match=r"refused our certificate: .*expired"):
            certify(config, service.port, expired)
        assert certify(config, service.port).names == (NAME,)


def test_loopback_is_plaintext(config: Config) -> None:
    """In the identity pod itself there is no TLS, and no name to check."""
    with MeshService(good) as service:
        for host in ("localhost.", HOST):
            plain = replace(config, service=Service(host=host, port=service.port))
            assert certify(plain).names == (NAME,)


@contextlib.contextmanager
def listening(talk: Callable[[socket.socket], object]) -> Iterator[int]:
    """A raw server for one connection, or for as many as come; its port."""
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        talk(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_the_client_hello_offers_no_alpn(config: Config) -> None:
    """As the proxy's own: TLS 1.3 alone, the SNI, and not one ALPN protocol."""
    hellos: list[bytes] = []

    with listening(lambda connection: hellos.append(connection.recv(4096))) as port:
        failure(config, port, ServiceUnreachable)

    extensions = dict(client_hello_extensions(hellos[0]))
    assert 16 not in extensions, "application_layer_protocol_negotiation"
    assert extensions[0].endswith(SERVER.encode())
    assert extensions[43] == b"\x02\x03\x04", "supported_versions: TLS 1.3"


def client_hello_extensions(record: bytes) -> Iterator[tuple[int, bytes]]:
    """Types and contents of the extensions of a ClientHello in one record."""
    at = 5 + 4 + 2 + 32
    at += 1 + record[at]
    at += 2 + struct.unpack_from("!H", record, at)[0]
    at += 1 + record[at]
    at += 2
    while at < len(record):
        kind, size = struct.unpack_from("!HH", record, at)
        yield kind, record[at + 4 : at + 4 + size]
        at += 4 + size


def test_http2_calls_the_service_by_its_address(config: Config) -> None:
    """The authority is the configured address, not the path of a private socket."""
    heads: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        connection.sendall(bytes.fromhex("000000040000000000"))  # empty SETTINGS
        got = b""
        while NAME.encode() not in got and (data := connection.recv(65536)):
            got += data
        heads.append(got)

    with listening(talk) as port:
        plain = replace(config, service=Service(host="localhost.", port=port))
        failure(plain, port, CallFailed)
    assert f"localhost:{port}".encode() in heads[0]
    assert b"proxy-identity-" not in heads[0]
    assert heads[0].startswith(b"PRI * HTTP/2.0")


def test_the_proxy_settings_of_http_are_not_for_grpc(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workload's http_proxy does not divert its certification."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with MeshService(good, tls=ISSUER.leaf(SERVER)) as service:
        assert certify(config, service.port).names == (NAME,)


# === who the service is ===


@pytest.mark.parametrize(
    ("leaf", "anchors", "name"),
    [
        pytest.param(ISSUER.leaf("a.b", dns=[SERVER]), ROOT, SERVER, id="second name"),
        pytest.param(ISSUER.leaf(uris=[SPIFFE]), ROOT, SPIFFE, id="URI alone"),
        pytest.param(ISSUER.leaf(SERVER), ISSUER, SERVER, id="intermediate as anchor"),
    ],
)
def test_services_that_are_trusted(
    config: Config, leaf: Leaf, anchors: CA, name: str
) -> None:
    """DNS or URI, anywhere in the list, below any anchor."""
    trusting = replace(
        config,
        anchors=Anchors.parse(anchors.pem.decode()),
        service=replace(config.service, name=name),
    )
    made: Handler = good
    with MeshService(made, tls=leaf) as service:
        assert certify(trusting, service.port).names == (NAME,)
    assert service.seen[0].sni == (None if "://" in name else name)


_now = dt.datetime.now(dt.UTC)


@pytest.mark.parametrize(
    ("leaf", "said"),
    [
        pytest.param(
            ISSUER.leaf("other.example", uris=[SPIFFE]),
            f"certificate does not match TLS identity: it holds 'other.example', "
            f"'{SPIFFE}', expected '{SERVER}'",
            id="another name",
        ),
        pytest.param(
            ISSUER.leaf("*" + SERVER.removeprefix("linkerd-identity")),
            "certificate does not match TLS identity",
            id="wildcard",
        ),
        pytest.param(
            CA().issuer().leaf(SERVER),
            "the service's certificate is not trusted: unable to get ",
            id="chained elsewhere",
        ),
        pytest.param(
            ISSUER.leaf(SERVER, not_after=_now - SECOND),
            "the service's certificate is not trusted: certificate has expired",
            id="expired",
        ),
        pytest.param(
            ISSUER.leaf(SERVER, not_before=_now + 900 * SECOND),
            "the service's certificate is not trusted: certificate is not yet valid",
            id="not yet valid",
        ),
    ],
)
def test_services_that_are_not_trusted(config: Config, leaf: Leaf, said: str) -> None:
    """They never see the token, and the message says what is wrong."""
    with MeshService(good, tls=leaf) as service:
        assert said in failure(config, service.port, ServiceUntrusted)
    assert not service.requests


def test_no_tls_below_1_3(config: Config, tmp_path: Path) -> None:
    """A server of another program, limited to TLS 1.2, gets no further."""
    with s_server(ISSUER.leaf(SERVER), tmp_path, "-tls1_2") as port:
        assert "TLS failed" in failure(config, port, ServiceUnreachable)


@contextlib.contextmanager
def s_server(leaf: Leaf, folder: Path, *options: str) -> Iterator[int]:
    """OpenSSL's own server, which sends back each line reversed; its port."""
    crt, key = leaf.write(folder, "server")
    server = subprocess.Popen(
        [
            *f"openssl s_server -accept {HOST}:0 -rev -cert {crt} -key {key}".split(),
            *("-cert_chain", str(crt), *options),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    with server:
        for line in server.stdout:
            if line.startswith("ACCEPT"):
                yield int(line.rpartition(":")[2])
                break
        server.kill()


@pytest.mark.parametrize("options", [(), ("-alpn", "h2")], ids=["no ALPN", "h2"])
def test_openssl_as_server(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Another implementation of TLS takes the handshake and sends data."""
    tls = Tls(anchors=ANCHORS, server=SERVER)

    async def talk(port: int) -> bytes:
        stream = await transport.connect([(HOST, port)], tls, 5 * SECOND)
        stream.writer.write(b"once\n")
        line = await stream.reader.readline()
        await stream.close()
        return line

    with s_server(ISSUER.leaf(SERVER), tmp_path, "-tls1_3", *options) as port:
        assert asyncio.run(talk(port)) == b"ecno\n"


# === faults ===


def closed_port() -> int:
    """A port where nobody listens."""
    with socket.create_server((HOST, 0)) as listener:
        return int(listener.getsockname()[1])


def test_addresses_are_tried_in_turn(config: Config) -> None:
    """One that answers is enough, wherever it stands; its order is random."""
    records = [(f"127-0-0-1.{n}.", closed_port()) for n in range(3)]
    with MeshService(good, tls=ISSUER.leaf(SERVER)) as service:
        lookup = FixedLookup(records=[*records, ("127-0-0-1.x.", service.port)])
        assert certify(config, 9, lookup=lookup).names == (NAME,)
    assert lookup.asked == ["SRV identity.linkerd.svc."]


def test_all_addresses_failed(config: Config) -> None:
    """Each is named, with its reason."""
    ports = [closed_port(), closed_port()]
    lookup = FixedLookup(records=[("127-0-0-1.x.", port) for port in ports])
    with pytest.raises(ServiceUnreachable) as caught:
        certify(config, lookup=lookup)
    for port in ports:
        assert f"127.0.0.1 port {port}: Connection refused" in str(caught.value)


def reset(connection: socket.socket) -> None:
    """Close with RST instead of FIN."""
    connection.recv(1)
    linger = struct.pack("ii", 1, 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


@pytest.mark.parametrize(
    ("talk", "said"),
    [
        pytest.param(
            lambda connection: connection.recv(65536) and connection.recv(65536),
            "no connection within 0.3 s",
            id="silent",
        ),
        pytest.param(reset, "Connection reset by peer", id="resets"),
        pytest.param(lambda c: c.recv(65536), "", id="closes"),
        pytest.param(
            lambda c: c.recv(65536) and c.sendall(b"HTTP/1.1 400 Bad\r\n\r\n"),
            "TLS failed: wrong version number",
            id="speaks no TLS",
        ),
    ],
)
def test_peers_that_do_not_handshake(
    config: Config, talk: Callable[[socket.socket], object], said: str
) -> None:
    """Each is left after the time that a connection may take."""
    quick = replace(config, connect_timeout=0.3 * SECOND)
    with listening(talk) as port:
        assert said in failure(quick, port, ServiceUnreachable)


def test_a_service_that_never_answers(config: Config) -> None:
    """The call has a deadline, whatever the other side does."""
    release = threading.Event()

    def slow(request: CertifyRequest, _: grpc.ServicerContext) -> CertifyResponse:
        release.wait()
        return certified(request, ISSUER)

    hasty = replace(config, call_timeout=0.3 * SECOND)
    with MeshService(slow, tls=ISSUER.leaf(SERVER)) as service:
        try:
            said = failure(hasty, service.port, CallFailed)
        finally:
            release.set()
    assert "DEADLINE_EXCEEDED" in said


def test_a_connection_lost_during_the_call(config: Config) -> None:
    """A reset below TLS is told as what it is."""
    leaf = ISSUER.leaf(SERVER)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with leaf_files(leaf) as paths:
        context.load_cert_chain(*paths)

    def talk(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as tls:
            reset(tls)

    with listening(talk) as port, pytest.raises(AttemptFailed) as caught:
        certify(config, port)
    assert isinstance(caught.value, ServiceUnreachable | CallFailed)


@contextlib.contextmanager
def leaf_files(leaf: Leaf) -> Iterator[tuple[str, str]]:
    """A certificate and key by path, without a file."""
    fds = [os.memfd_create(name) for name in ("crt", "key")]
    for fd, data in zip(fds, (leaf.pem, leaf.key_pem), strict=True):
        os.write(fd, data)
    yield f"/proc/self/fd/{fds[0]}", f"/proc/self/fd/{fds[1]}"
    for fd in fds:
        os.close(fd)


def test_a_status_is_told_but_not_the_token(config: Config) -> None:
    """Some services quote what they were sent; our logs don't."""

    def quote(
        request: CertifyRequest, context: grpc.ServicerContext
    ) -> CertifyResponse:
        context.abort(
            grpc.StatusCode.INVALID_ARGUMENT, f"bad token {request.token.decode()}!"
        )

    with MeshService(quote, tls=ISSUER.leaf(SERVER)) as service:
        said = failure(config, service.port, CallFailed)
    assert said == (
        f"identity.linkerd.svc:{service.port} answered INVALID_ARGUMENT: "
        "bad token <token>!"
    )


def test_answers_beyond_reason_are_not_read(config: Config) -> None:
    """A chain of megabytes is refused by size."""

    def huge(_: CertifyRequest, __: grpc.ServicerContext) -> CertifyResponse:
        return CertifyResponse(leaf_certificate=bytes(2 << 20))

    with MeshService(huge, tls=ISSUER.leaf(SERVER)) as service:
        assert "RESOURCE_EXHAUSTED" in failure(config, service.port, CallFailed)


def test_answers_are_judged(config: Config) -> None:
    """A certificate for another name is refused after a perfect call."""

    def other(request: CertifyRequest, _: grpc.ServicerContext) -> CertifyResponse:
        return certified(request, ISSUER, name="other.example")

    with MeshService(other, tls=ISSUER.leaf(SERVER)) as service:
        said = failure(config, service.port, CertificateRejected)
    assert said == f"the certificate is for 'other.example': expected {NAME!r}"


# === the token ===


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(Path.unlink, "No such file or directory", id="missing"),
        pytest.param(lambda path: path.write_text(""), "it is empty", id="empty"),
        pytest.param(lambda path: path.write_text("\n"), "it is empty", id="blank"),
        pytest.param(
            lambda path: path.write_bytes(bytes((1 << 20) + 1)),
            "it is over 1 MiB",
            id="some other file",
        ),
        pytest.param(
            lambda path: (path.unlink(), path.mkdir()), "Is a directory", id="folder"
        ),
    ],
)
def test_tokens_that_can_not_be_used(
    config: Config, make: Callable[[Path], object], said: str
) -> None:
    """They are told before anybody is connected to."""
    make(Path(config.token_file))
    assert failure(config, 1, TokenUnusable) == (
        f"expected a service-account token in {config.token_file!r}: {said}"
    )


def test_the_token_is_read_anew(config: Config, tmp_path: Path) -> None:
    """The kubelet replaces it by swapping a link: the next attempt has the new one."""
    token = Path(config.token_file)
    token.unlink()
    token.symlink_to("first")
    (tmp_path / "first").write_text("one")
    (tmp_path / "second").write_text("two")
    with MeshService(good, tls=ISSUER.leaf(SERVER)) as service:
        certify(config, service.port)
        token.unlink()
        token.symlink_to("second")
        certify(config, service.port)
    assert [request.token for request in service.requests] == [b"one", b"two"]


# === the relay ===


def test_nobody_else_gets_through_the_relay() -> None:
    """Another process of the pod may find the socket, but is turned away."""
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX);"
        "s.connect('\\0' + sys.argv[1]); s.settimeout(20); print(s.recv(1))"
    )

    async def probe() -> tuple[bytes, bytes]:
        far, near = socket.socketpair()
        stream = Stream(*await asyncio.open_unix_connection(sock=near))
        async with Relay(stream) as relay:
            name = relay.target.removeprefix("unix-abstract:")
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", code, name), stdout=-1, stderr=-1
            )
            stranger = await process.communicate()
            reader, writer = await asyncio.open_unix_connection(f"\0{name}")
            far.sendall(b"for us")
            ours = await reader.read(100)
            writer.close()
        far.close()
        return stranger[0], ours

    stranger, ours = asyncio.run(probe())
    assert stranger in (b"b''\n", b"")
    assert ours == b"for us"


def test_the_relay_leaves_nothing_open() -> None:
    """Also when there is more to pass on than anybody takes."""

    async def test() -> None:
        far, near = socket.socketpair()
        far.setblocking(False)  # noqa: FBT003  (its only argument)
        stream = Stream(*await asyncio.open_unix_connection(sock=near))
        async with Relay(stream) as relay:
            name = relay.target.removeprefix("unix-abstract:")
            ours = socket.socket(socket.AF_UNIX)
            ours.connect(f"\0{name}")
            loop = asyncio.get_running_loop()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.3):  # until nothing more fits
                    while True:
                        await loop.sock_sendall(far, bytes(1 << 16))
        ours.setblocking(False)  # noqa: FBT003  (as above)
        while ours.recv(1 << 16):  # raises when it is empty and not closed
            pass
        ours.close()
        far.close()

    asyncio.run(test())
