"""The webhook's certificate: one per content of its files, chosen per handshake.

Contents decide, not what a watcher reports. A poll replaces the certificate once two
looks in a row agree on contents that can be used; connections under way keep theirs.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from proxyinit.inject.errors import InjectError
from proxyinit.logs import Log

CERTIFICATE = Path("/var/run/linkerd/tls/tls.crt")
KEY = Path("/var/run/linkerd/tls/tls.key")


class BadCertificate(InjectError):
    """Certificate and key can't be read, or don't belong together."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate chain and its key, both PEM."""

    chain: bytes
    key: bytes = field(repr=False)


def read(certificate: Path, key: Path) -> KeyPair:
    """The pair that two files hold. Raises `BadCertificate`."""
    try:
        return KeyPair(certificate.read_bytes(), key.read_bytes())
    except OSError as error:
        raise BadCertificate(f"cert could not be read from disk: {error}") from error


def context(pair: KeyPair) -> ssl.SSLContext:
    """A server's TLS 1.3 with this certificate. Raises `BadCertificate`."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.set_alpn_protocols(["http/1.1"])
    # The contents that were looked at, and not what the files hold by now; `ssl` takes
    # files alone, and the key has no business on a disk.
    try:
        with os.fdopen(os.memfd_create("webhook"), "wb") as memory:
            memory.write(pair.chain + b"\n" + pair.key)
            memory.flush()
            made.load_cert_chain(f"/proc/self/fd/{memory.fileno()}")
    except OSError as error:
        what = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        why = what or "no certificate with its key"
        raise BadCertificate(f"cert could not be read from disk: {why}") from None
    return made


class Certificates:
    """The certificate in use, from wherever `source` has it.

    `front` is for the server: each handshake is passed on to the context in use.
    Raises `BadCertificate` when made, and never afterwards.
    """

    def __init__(self, source: Callable[[], KeyPair], log: Log) -> None:
        self._source = source
        self._log = log
        self._in_use = self._seen = source()
        self._current = context(self._in_use)
        self._reported = ""
        self.front = context(self._in_use)
        self.front.sni_callback = self._choose

    def poll(self) -> None:
        """Look at the source; use what is new there once it has settled."""
        try:
            pair = self._source()
            settled, self._seen = pair == self._seen, pair
            if pair == self._in_use or not settled:
                return
            self._current = context(pair)
        except InjectError as error:
            self._report(str(error))
            return
        self._in_use, self._reported = pair, ""
        self._log.info("Updated certificate")

    def _choose(self, connection: ssl.SSLObject, _name: str, _: ssl.SSLContext) -> None:
        connection.context = self._current

    def _report(self, why: str) -> None:
        if why != self._reported:
            self._reported = why
            self._log.warning(f"Skipping update as {why}")
