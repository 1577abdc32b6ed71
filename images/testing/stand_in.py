"""A server that says who answered: ``stand_in.py NAME PORT...``, in a container.

Its answers are read by `proxyinit.lab.ask`: one line of JSON with its name, the port
that it listens on, and where the connection was going before it was redirected.
Runs alone, on any Python 3.
"""

import json
import selectors
import socket
import struct
import sys

SO_ORIGINAL_DST = 80


def original(connection: socket.socket) -> "tuple[str, int] | None":
    """Where a redirected connection was going; None when it was not."""
    six = connection.family == socket.AF_INET6
    level, size = (socket.IPPROTO_IPV6, 28) if six else (socket.IPPROTO_IP, 16)
    try:
        raw = connection.getsockopt(level, SO_ORIGINAL_DST, size)
    except OSError:
        return None
    (port,) = struct.unpack_from("!H", raw, 2)
    return socket.inet_ntop(connection.family, raw[8:24] if six else raw[4:8]), port


def main(name: str, *ports: str) -> None:
    """Serve until killed."""
    selector = selectors.DefaultSelector()
    for port in ports:
        for family in (socket.AF_INET, socket.AF_INET6):
            listener = socket.socket(family)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(("", int(port)))
            listener.listen(1024)
            selector.register(listener, selectors.EVENT_READ)
    print("listening")  # noqa: T201  (whoever started it waits for this)
    while True:
        for key, _ in selector.select():
            listener = key.fileobj  # type: ignore[assignment]  # as registered
            connection, _ = listener.accept()
            with connection:
                port = listener.getsockname()[1]
                answer = {"who": name, "port": port, "original": original(connection)}
                connection.sendall(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
