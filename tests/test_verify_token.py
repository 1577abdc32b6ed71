"""Who says the token is the one at the other end: tried on loopback."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from proxyinit.verify.outside import listen
from proxyinit.verify.probe import _answer  # the smallest part that a lie could pass

Server = Callable[[], socket.socket]


@pytest.fixture
def server() -> Iterator[Server]:
    """Makes servers on free ports of loopback."""
    with ExitStack() as stack:

        def make() -> socket.socket:
            return stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        yield make


def connected(server: socket.socket) -> socket.socket:
    return socket.create_connection(server.getsockname(), timeout=5)


def test_the_stand_in_is_at_the_other_end(server: Server) -> None:
    """The token that it says arrives."""
    stand_in = server()
    with connected(stand_in) as client:
        said = _answer(stand_in, client, ("192.0.2.1", 80))

    assert said == "was answered by a stand-in"  # on loopback nothing was redirected


def test_another_says_something_else(server: Server) -> None:
    """A stranger's connection to the stand-in proves nothing of ours."""
    stand_in, impostor = server(), server()
    with connected(impostor) as client, connected(stand_in):
        theirs, _ = impostor.accept()
        with theirs:
            theirs.sendall(b"I am the proxy!!" * 2)
            assert _answer(stand_in, client, ("192.0.2.1", 80)) == ""


def test_nobody_came(server: Server) -> None:
    """Who connected elsewhere is not waited for."""
    stand_in, impostor = server(), server()
    with connected(impostor) as client:
        assert _answer(stand_in, client, ("192.0.2.1", 80)) == ""


def test_a_port_is_taken_for_one_version_alone() -> None:
    """The stand-in for IPv6 does not hear IPv4, so both can be tried in turn."""
    with listen(4, 0) as four:
        port = four.getsockname()[1]
        with listen(6, port) as six:
            assert six.getsockname()[1] == port
        with pytest.raises(OSError, match="in use"):
            listen(4, port)
