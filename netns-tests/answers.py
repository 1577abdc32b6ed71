"""Who answers a connection to a port of the pod: the proxy, or the application."""

from __future__ import annotations

from proxyinit.lab import POD, Answer


def proxy_for(version: int, port: int) -> Answer:
    """The proxy's answer to a connection to this port of the pod."""
    return Answer("proxy", 4143, (POD[version], port))


def app_at(port: int) -> Answer:
    """The application's answer: it was reached without the proxy."""
    return Answer("app", port)
