"""What has to happen, as tables: who answers whom, which rules, which arguments.

Written out instead of derived from the code under proof: the demo compares the
kernel with these lines, not the program with itself.
"""

from __future__ import annotations

from dataclasses import dataclass

PROXY_IN, PROXY_OUT = 4143, 4140
APP_PORT, SILENT_PORT, IGNORED_PORT, WEB_PORT = 8080, 9999, 4567, 80

LINKERD_ARGUMENTS = (
    *("--incoming-proxy-port", "4143"),
    *("--outgoing-proxy-port", "4140"),
    *("--proxy-uid", "2102"),
    *("--inbound-ports-to-ignore", "4190,4191,4567,4568"),
    *("--outbound-ports-to-ignore", "4567,4568"),
)
"""As Linkerd's charts call it by default."""

OTHER_ARGUMENTS = (
    *("--incoming-proxy-port", "4143"),
    *("--outgoing-proxy-port", "4140"),
    *("--proxy-uid", "2102,2103"),
    *("--inbound-ports-to-ignore", "4190-4191,4567-4568,9000-9100"),
    *("--outbound-subnets-to-ignore", "192.0.2.0/24,2001:db8:ffff::/48"),
)
"""Other rules, which send the load of the re-run chapter to the proxy as well."""


# === connections ===


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address and a TCP port."""

    address: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Seen:
    """Who answered a connection, where, and which destination it was told.

    `who` is a stand-in, "nobody" when the connection was refused, or the error
    that ended it; the latter two have no port.
    """

    who: str
    port: int = 0
    original: Endpoint | None = None

    def __str__(self) -> str:
        return f"{self.who}:{self.port}" if self.who == "proxy" else self.who


NOBODY = Seen("nobody")


@dataclass(frozen=True, slots=True)
class Case:
    """A connection, and who has to answer it without and with the redirect.

    `caller` is the client, the app or the proxy. `exempt` says why the redirect
    leaves the connection alone; empty when it does not.
    """

    caller: str
    to: Endpoint
    before: Seen
    after: Seen
    exempt: str = ""


def cases(pod: str, world: str, loopback: str) -> tuple[Case, ...]:
    """The connections of one IP version, given its addresses."""
    app, silent = Endpoint(pod, APP_PORT), Endpoint(pod, SILENT_PORT)
    web, database = Endpoint(world, WEB_PORT), Endpoint(world, IGNORED_PORT)
    return (
        _diverted("client", app, Seen("app", APP_PORT), PROXY_IN),
        _diverted("client", silent, NOBODY, PROXY_IN),
        _exempt("client", Endpoint(pod, IGNORED_PORT), "app", "ignored port"),
        _diverted("app", web, Seen("world", WEB_PORT), PROXY_OUT),
        _exempt("app", database, "world", "ignored port"),
        _exempt("app", Endpoint(loopback, APP_PORT), "app", "stays inside"),
        _exempt("proxy", web, "world", "proxy's own"),
    )


def _diverted(caller: str, to: Endpoint, before: Seen, port: int) -> Case:
    return Case(caller, to, before, Seen("proxy", port, to))


def _exempt(caller: str, to: Endpoint, who: str, reason: str) -> Case:
    direct = Seen(who, to.port)
    return Case(caller, to, direct, direct, reason)


# === rules ===


@dataclass(frozen=True, slots=True)
class Line:
    """One rule as iptables-save prints it, without chain and comment."""

    text: str
    meaning: str


@dataclass(frozen=True, slots=True)
class ChainLines:
    """A chain of ours: what it is for, where the jump to it stands, its rules."""

    name: str
    builtin: str
    title: str
    lines: tuple[Line, ...]


CHAINS = (
    ChainLines(
        "PROXY_INIT_REDIRECT",
        "PREROUTING",
        "what arrives",
        (
            Line(
                "-p tcp -m multiport --dports 4190,4191,4567,4568 -j RETURN",
                "ignored ports",
            ),
            Line("-p tcp -j REDIRECT --to-ports 4143", "all other TCP"),
        ),
    ),
    ChainLines(
        "PROXY_INIT_OUTPUT",
        "OUTPUT",
        "what leaves",
        (
            Line("-m owner --uid-owner 2102 -j RETURN", "the proxy's own"),
            Line("-o lo -j RETURN", "stays inside"),
            Line(
                "-p tcp -m multiport --dports 4567,4568 -j RETURN",
                "ignored ports",
            ),
            Line("-p tcp -j REDIRECT --to-ports 4140", "all other TCP"),
        ),
    ),
)
"""What Linkerd's arguments put into the nat table, the same for both families."""


# === identities ===

WORKLOADS = {
    "web": "web.shop.serviceaccount.identity.linkerd.cluster.local",
    "api": "api.shop.serviceaccount.identity.linkerd.cluster.local",
}
"""The two pods: what their certificates have to say."""

ROOT_NAME = "root.linkerd.cluster.local"
ISSUER_NAME = "identity.linkerd.cluster.local"

CERTIFICATE_LIFETIME, CLOCK_SKEW = "5s", "1s"
MIN_REFRESH = "1s"
"""Short enough that a renewal can be watched; a day and ten seconds by default."""
