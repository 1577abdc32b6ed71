"""The sockets: a listener that says a token, and a connection that wants to hear it.

No thread and no event loop: one poll waits for both ends. `_socket` is what the
`socket` module wraps, which would cost 7 ms of start-up (`enum`, `selectors`).
"""

from __future__ import annotations

import _socket
import errno
import os
import select
import sys
import time

from proxyinit.validator.addresses import Address
from proxyinit.validator.outcome import Outcome
from proxyinit.validator.tracing import Log, Span, debug_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_FAMILIES = {4: _socket.AF_INET, 6: _socket.AF_INET6}
_KIND = _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC
_CONNECT = Span("connect")
_SERVE = Span("serve")
_AT_ONCE = (1).to_bytes(4, sys.byteorder) + bytes(4)
"""struct linger {1, 0}: close by a reset."""
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def new_token() -> bytes:
    """63 random letters and digits and a line's end, as upstream's."""
    return bytes(_ALPHABET[n % len(_ALPHABET)] for n in os.urandom(63)) + b"\n"


def listen(address: Address, *, only_v6: bool) -> _socket.socket:
    """Start to listen; raises OSError. `only_v6` leaves IPv4 to another listener."""
    listener = _socket.socket(_FAMILIES[address.version], _KIND)
    try:
        listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        if address.version == 6:
            listener.setsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY, int(only_v6))
        listener.bind(address.sockaddr)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


class Attempt:
    """A connection to `target`, and whoever comes to the listeners meanwhile.

    It ends by a reset from our side, so none of it is left in TIME_WAIT on the port
    that the proxy is about to take. The other end can be looked at until `close`.
    """

    def __init__(
        self,
        target: Address,
        listeners: Iterable[_socket.socket],
        token: bytes,
        log: Log,
    ) -> None:
        self._target = target
        self._client: _socket.socket | None = None
        self._listeners = {listener.fileno(): listener for listener in listeners}
        self._token = token
        self._log = log
        self._served: dict[Address, _socket.socket] = {}
        self._local: Address | None = None
        self._connected = False
        self._received = b""

    def close(self) -> None:
        """Leave: the target first, then all who were served."""
        if self._client:
            self._client.setsockopt(_socket.SOL_SOCKET, _socket.SO_LINGER, _AT_ONCE)
            self._client.close()
        for connection in self._served.values():
            connection.close()

    def run(self, limit_s: float) -> Outcome:
        """Connect and hear what the other end says, for so long at most."""
        deadline = time.monotonic() + limit_s
        try:
            client = _socket.socket(_FAMILIES[self._target.version], _KIND)
        except OSError as error:  # a kernel without this IP version
            return self._outcome(error.errno or errno.EAFNOSUPPORT, at_once=True)
        self._client = client
        code = client.connect_ex(self._target.sockaddr)
        if code not in (0, errno.EINPROGRESS):
            return self._outcome(code, at_once=True)
        return self._converse(client, deadline)

    def _converse(self, client: _socket.socket, deadline: float) -> Outcome:
        """Talk until all is said, something fails, or the time has come."""
        poll = select.poll()
        for number in self._listeners:
            poll.register(number, select.POLLIN)
        poll.register(client, select.POLLOUT)
        while events := poll.poll(_milliseconds(deadline - time.monotonic())):
            # Listeners first: who connected to them should be known by then.
            ready = {number for number, _ in events}
            for number in ready & self._listeners.keys():
                self._serve(self._listeners[number])
            if client.fileno() not in ready:
                continue
            if self._connected:
                code, closed = self._read(client)
                if code or closed or len(self._received) == len(self._token):
                    return self._outcome(code, closed=closed)
            else:
                code = client.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR)
                if code:
                    return self._outcome(code)
                self._connect(client)
                poll.modify(client, select.POLLIN)
        return self._outcome(0 if self._connected else errno.ETIMEDOUT)

    def _connect(self, client: _socket.socket) -> None:
        self._connected = True
        self._local = _end(client.getsockname())
        self._log.debug("Connected", _CONNECT, **{"client.addr": str(self._local)})

    def _read(self, client: _socket.socket) -> tuple[int, bool]:
        """Errno, 0 for none, and whether the other end has closed."""
        try:
            data = client.recv(len(self._token) - len(self._received))
        except BlockingIOError:
            return 0, False
        except OSError as error:
            return error.errno or errno.EIO, True
        self._log.debug("Read message from server", _CONNECT, bytes=str(len(data)))
        self._received += data
        return 0, not data

    def _serve(self, listener: _socket.socket) -> None:
        """Say the token to whoever has connected; kept open until the attempt ends."""
        try:
            # socket.accept is made of this; there is no public one beneath it.
            number, peer = listener._accept()  # type: ignore[attr-defined]  # noqa: SLF001
        except OSError:
            return  # gone again
        connection = _socket.socket(fileno=number)
        end = _end(peer)
        self._served[end] = connection
        spans = (_SERVE, Span("conn", "client.addr", str(end)))
        self._log.debug("Accepted", *spans)
        try:
            sent = connection.send(self._token)
        except OSError as error:
            self._log.debug("Failed to write bytes to client", *spans, error=str(error))
        else:
            self._log.debug("Wrote message to client", *spans, bytes=sent)

    def _outcome(
        self, code: int, *, at_once: bool = False, closed: bool = False
    ) -> Outcome:
        if self._received:
            text = debug_text(self._received.decode("utf-8", "replace"))
            self._log.debug("", data=text, size=len(self._received))
        served = self._served.get(self._local) if self._local else None
        arrived = _end(served.getsockname()) if served else None
        return Outcome(
            target=self._target,
            code=code,
            reason=describe(code) if code else "",
            at_once=at_once,
            connected=self._connected,
            local=self._local,
            accepted=served is not None,
            direct=arrived == self._target,
            received=self._received,
            closed=closed,
        )


def describe(code: int) -> str:
    """An errno as upstream's log shows it."""
    return f"{os.strerror(code)} (os error {code})"


def _milliseconds(seconds: float) -> int:
    """For poll: not negative, and rather too late than too early."""
    return max(0, int(seconds * 1000 + 0.999))


def _end(name: tuple[str, int] | tuple[str, int, int, int]) -> Address:
    """One end of a connection; IPv4 at a listener of both versions is IPv4."""
    mapped = "." in name[0]
    return Address(name[0].removeprefix("::ffff:") if mapped else name[0], name[1])
