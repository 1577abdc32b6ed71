"""A server that says who answered: ``stand_in.py NAME PORT...``, in a container.

Its answers are read by `proxyinit.lab.ask`: one line of JSON with its name, the port
that it listens on, and where the connection was going before it was redirected.

With the variable IDENTITY, a folder of tls.crt, tls.key and ca.crt, it speaks mTLS as
a proxy does: it answers each line that it is sent, with the name of the client as well.
Runs alone, on any Python 3.
"""

import contextlib
import json
import os
import socket
import ssl
import struct
import sys
import threading

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


def context(folder: str) -> ssl.SSLContext:
    """TLS with the certificate that is in the folder now."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_cert_chain(f"{folder}/tls.crt", f"{folder}/tls.key")
    made.load_verify_locations(f"{folder}/ca.crt")
    return made


def answer(connection: socket.socket, name: str, port: int) -> None:
    """Say who this is, once or, with an identity, to each line."""
    said = {"who": name, "port": port, "original": original(connection)}
    folder = os.environ.get("IDENTITY")
    with contextlib.suppress(OSError), connection:
        if not folder:
            connection.sendall(json.dumps(said).encode() + b"\n")
            return
        with context(folder).wrap_socket(connection, server_side=True) as tls:
            names = (tls.getpeercert() or {}).get("subjectAltName", ())
            said["client"] = [str(pair[1]) for pair in names]
            for _ in tls.makefile("rb"):
                tls.sendall(json.dumps(said).encode() + b"\n")


def serve(listener: socket.socket, name: str) -> None:
    """Answer every connection of one listener, each in a thread of its own."""
    port = listener.getsockname()[1]
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection, name, port)).start()


def main(name: str, *ports: str) -> None:
    """Serve until killed."""
    threads = []
    for port in ports:
        for family in (socket.AF_INET, socket.AF_INET6):
            listener = socket.socket(family)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(("", int(port)))
            listener.listen(1024)
            threads.append(threading.Thread(target=serve, args=(listener, name)))
    for thread in threads:
        thread.start()
    print("listening")  # noqa: T201  (whoever started it waits for this)


if __name__ == "__main__":
    main(*sys.argv[1:])
