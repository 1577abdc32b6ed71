"""Listening on an address of either family."""

from __future__ import annotations

import socket

from identity.issuer.errors import IssuerError


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A listening socket; ``::`` takes IPv4 too, or alone where IPv6 is missing.

    With `shared`, other processes of ours may listen on the port as well. Raises
    `IssuerError`.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    dual = host == "::"
    if dual and not socket.has_dualstack_ipv6():
        family, dual, host = socket.AF_INET, False, "0.0.0.0"  # noqa: S104  (asked for)
    try:
        return socket.create_server(
            (host, port),
            family=family,
            dualstack_ipv6=dual,
            reuse_port=shared,
            backlog=1024,
        )
    except OSError as error:
        raise IssuerError(f"can't listen on {host} port {port}: {error}") from error
