"""Looking around in this network namespace, by /proc and without any privilege.

It is done when something is wrong, so it may cost time.
"""

from __future__ import annotations

from pathlib import Path

from proxyinit.host import read_text
from proxyinit.validator.addresses import Address
from proxyinit.validator.neighbours import (
    LISTEN,
    TcpSocket,
    parse_fib_trie,
    parse_if_inet6,
    parse_tcp,
)
from proxyinit.validator.outcome import Surroundings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def look(local: Address | None) -> Surroundings:
    """What can be seen, for a connection whose own end is `local`, if there is one."""
    addresses = (
        *parse_fib_trie(read_text("/proc/net/fib_trie") or ""),
        *parse_if_inet6(read_text("/proc/net/if_inet6") or ""),
    )
    unique = tuple(dict.fromkeys(addresses))
    sockets = _sockets() if local else []
    for found in sockets:
        if found.peer == local:
            # One that its program has not accepted, or has closed, is nobody's.
            owner = found if found.inode else _listener(sockets, found.local.port)
            return Surroundings(unique, found.local, _owner(owner))
    return Surroundings(unique)


def holder(port: int) -> str:
    """Who listens on a port: ``user 2102 (process 7, linkerd2-proxy)``; or nothing."""
    return _owner(_listener(_sockets(), port))


def _sockets() -> list[TcpSocket]:
    texts = (read_text(f"/proc/net/{name}") or "" for name in ("tcp", "tcp6"))
    return [found for text in texts for found in parse_tcp(text)]


def _listener(sockets: list[TcpSocket], port: int) -> TcpSocket | None:
    listening = (s for s in sockets if s.state == LISTEN and s.local.port == port)
    return next(listening, None)


def _owner(found: TcpSocket | None) -> str:
    if found is None:
        return ""
    process = _process(found.inode)
    return f"user {found.uid}{process and f' ({process})'}"


def _process(inode: int) -> str:
    """The process that has a socket open, as far as this user may look."""
    for process in Path("/proc").glob("[0-9]*"):
        if f"socket:[{inode}]" in _links(process / "fd"):
            name = (read_text(f"{process}/comm") or "").strip()
            return f"process {process.name}, {name}"
    return ""


def _links(folder: Path) -> Iterator[str]:
    """Where the links of a folder lead, as far as they can be read."""
    try:
        for link in folder.iterdir():
            yield str(link.readlink())
    except OSError:
        return  # not ours, or gone
