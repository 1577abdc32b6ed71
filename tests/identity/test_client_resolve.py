"""Addresses of the service: SRV records with dashes first, then the system's own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dns.message
import dns.rcode
import dns.rrset
import pytest

from identity.errors import ServiceUnresolved
from identity.resolve import Endpoint, SystemLookup, decode_srv, resolve

HOST = "linkerd-identity-headless.linkerd.svc.cluster.local."


class Records:
    """What name servers would say; an error for what they would not."""

    def __init__(
        self,
        srv: list[tuple[str, int]] | OSError,
        addresses: list[str] | OSError,
    ) -> None:
        self._srv = srv
        self._addresses = addresses

    async def srv(self, name: str) -> list[tuple[str, int]]:
        assert name == HOST
        if isinstance(self._srv, OSError):
            raise self._srv
        return self._srv

    async def addresses(self, name: str) -> list[str]:
        assert name == HOST
        if isinstance(self._addresses, OSError):
            raise self._addresses
        return self._addresses


GONE = OSError("nobody asks for this")


@pytest.mark.parametrize(
    ("host", "records", "endpoints"),
    [
        pytest.param(
            HOST,
            Records([("10-1-2-3.x.", 8080), ("2001-db8--1.x.", 81)], GONE),
            [("10.1.2.3", 8080), ("2001:db8::1", 81)],
            id="addresses with dashes, ports of the records",
        ),
        pytest.param(
            HOST,
            Records([("10-1-2-3.x.", 1), ("10-1-2-3.y.", 1)], GONE),
            [("10.1.2.3", 1)],
            id="each once",
        ),
        pytest.param(
            HOST,
            Records([("10-1-2-3.x.", 1), ("pod-0.x.", 1)], ["10.9.9.9"]),
            [("10.9.9.9", 9)],
            id="one record is no address: all others go, too",
        ),
        pytest.param(
            HOST, Records([], ["10.9.9.9"]), [("10.9.9.9", 9)], id="no SRV records"
        ),
        pytest.param(
            HOST,
            Records(OSError("SERVFAIL"), ["10.9.9.9", "fd00::1"]),
            [("10.9.9.9", 9), ("fd00::1", 9)],
            id="SRV fails",
        ),
        pytest.param("10.0.0.1", Records(GONE, GONE), [("10.0.0.1", 9)], id="IPv4"),
        pytest.param("fd00::1", Records(GONE, GONE), [("fd00::1", 9)], id="IPv6"),
        pytest.param(
            "localhost.", Records(GONE, GONE), [("127.0.0.1", 9)], id="localhost."
        ),
    ],
)
def test_addresses_of_a_service(
    host: str, records: Records, endpoints: list[Endpoint]
) -> None:
    """As the proxy finds them."""
    assert asyncio.run(resolve(host, 9, records)) == endpoints


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param(
            socket.gaierror(-2, "Name or service not known"),
            "Name or service not known",
            id="unknown",
        ),
        pytest.param(TimeoutError(), "the name servers do not answer", id="silence"),
    ],
)
def test_services_without_address(error: OSError, said: str) -> None:
    """The message names the service and the reason."""
    with pytest.raises(ServiceUnresolved) as caught:
        asyncio.run(resolve(HOST, 9, Records(OSError(), error)))
    assert str(caught.value) == (
        f"no address of '{HOST}' is known: {said}; "
        "look at the service's address and at this pod's DNS"
    )


@pytest.mark.parametrize("target", ["", ".", "a.b.", "10-1-2.x.", "10-1-2-3-4.x."])
def test_targets_that_are_no_addresses(target: str) -> None:
    """Names of pods that don't spell an address are not guessed at."""
    with pytest.raises(ValueError, match=r"."):
        decode_srv([(target, 1)])


@contextmanager
def name_server(folder: Path, **srv: list[str]) -> Iterator[SystemLookup]:
    """A name server on loopback that knows SRV records, and a lookup that asks it."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))

    def serve() -> None:
        while data := server.recvfrom(4096):
            if not data[0]:
                return
            query = dns.message.from_wire(data[0])
            answer = dns.message.make_response(query)
            name = query.question[0].name
            records = srv.get(name.to_text().partition(".")[0])
            if records is None:
                answer.set_rcode(dns.rcode.NXDOMAIN)
            else:
                answer.answer.append(
                    dns.rrset.from_text(name, 5, "IN", "SRV", *records)
                )
            server.sendto(answer.to_wire(), data[1])

    thread = threading.Thread(target=serve)
    thread.start()
    conf = folder / "resolv.conf"
    conf.write_text("nameserver 127.0.0.1\nsearch example.test\n")
    yield SystemLookup(str(conf), server.getsockname()[1], srv_timeout_s=30)
    server.sendto(b"", server.getsockname())
    thread.join()
    server.close()


def test_srv_records_over_the_network(tmp_path: Path) -> None:
    """A real query to a real name server; what it does not know falls back."""
    records = ["0 0 8080 10-0-0-1.x.test.", "0 0 8080 10-0-0-2.x.test."]
    with name_server(tmp_path, identity=records) as lookup:
        found = asyncio.run(resolve("identity.example.test.", 1, lookup))
        assert sorted(found) == [("10.0.0.1", 8080), ("10.0.0.2", 8080)]
        assert len(asyncio.run(resolve("identity", 1, lookup))) == 2, "search list"
        # The system's own files know this one.
        assert ("127.0.0.1", 7) in asyncio.run(resolve("localhost", 7, lookup))


def test_no_name_server_at_all(tmp_path: Path) -> None:
    """Without a configuration for DNS, files of the system may still help."""
    lookup = SystemLookup(str(tmp_path / "nowhere"))
    assert ("127.0.0.1", 7) in asyncio.run(resolve("localhost", 7, lookup))


def test_names_that_can_not_be_asked_for() -> None:
    """A label too long for DNS is an unresolved service, not a failure of ours."""
    with pytest.raises(ServiceUnresolved):
        asyncio.run(resolve("a" * 64 + ".test.", 7, SystemLookup("/dev/null")))
