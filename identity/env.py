"""Configuration of the client: the proxy's variables, or options of the same meaning.

Every setting is declared once, with both spellings; a text is parsed in the same
way wherever it came from, and all mistakes are told at once.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from identity import durations
from identity.config import (
    CONNECT_TIMEOUT,
    SETTINGS,
    Config,
    Service,
    ip_address,
    is_loopback,
)
from identity.errors import IdentityError, Misconfigured
from identity.names import dns_name, is_uri, local_name, tls_id
from identity.schedule import Backoff, RefreshPolicy
from identity.trust import Anchors
from identity.variables import (
    DIRECTORY,
    DISABLED,
    LOCAL_NAME,
    MAX_REFRESH,
    MIN_REFRESH,
    PREFIX,
    SERVER_ID,
    SERVER_NAME,
    SPIRE,
    SVC_ADDR,
    SVC_NAME,
    TOKEN_FILE,
    TRUST_ANCHORS,
    connect_timeout_of,
)

T = TypeVar("T")


def read(
    values: Mapping[str, str],
    given: Mapping[str, str] | None = None,
    parse_anchors: Callable[[str], Anchors] = Anchors.parse,
) -> Config:
    """The configuration in variables; `given` tells which came from which option.

    Raises `Misconfigured` with every mistake. The directory and the files are not
    looked at, unless it is by `parse_anchors`.
    """
    reader = _Reader(values, given or {})
    reader.forbid()
    service = reader.required(SVC_ADDR, _address) or Service(host="", port=0)
    loopback = service.host and is_loopback(service.host)
    if not loopback:
        name = reader.required(SVC_NAME, tls_id)
        service = Service(host=service.host, port=service.port, name=name)
    direction = "INBOUND" if loopback else "OUTBOUND"
    timeout = reader.optional(connect_timeout_of(direction), durations.parse_positive)
    anchors = reader.required(TRUST_ANCHORS, parse_anchors, secret=True)
    directory = reader.required(DIRECTORY, str)
    token_file = reader.required(TOKEN_FILE, str)
    local = reader.name()
    refresh = reader.refresh()
    backoff = reader.backoff(direction)
    if reader.problems:
        raise Misconfigured(reader.problems)
    assert anchors is not None  # noqa: S101  (else there would be a problem)
    return Config(
        directory=directory or "",
        name=local or "",
        token_file=token_file or "",
        anchors=anchors,
        service=service,
        refresh=refresh,
        backoff=backoff,
        connect_timeout=timeout or CONNECT_TIMEOUT[direction],
    )


def read_refresh(values: Mapping[str, str]) -> RefreshPolicy:
    """The bounds of renewal alone. Raises `Misconfigured`."""
    reader = _Reader(values, {})
    policy = reader.refresh()
    if reader.problems:
        raise Misconfigured(reader.problems)
    return policy


class _Reader:
    """Takes settings one by one, and collects what is wrong with them."""

    def __init__(self, values: Mapping[str, str], given: Mapping[str, str]) -> None:
        self._values = values
        self._given = given
        self.problems: list[str] = []

    def called(self, variable: str) -> str:
        """How the user spelled a setting."""
        return self._given.get(variable, variable)

    def forbid(self) -> None:
        """Say no to modes that the proxy has, or had, and this client has not."""
        if self._values.get(DISABLED):
            self.problems.append(f"{DISABLED} is no longer supported: unset it")
        self.problems += [
            f"{variable} asks for SPIRE, which is not supported here: unset it"
            for variable in SPIRE
            if variable in self._values
        ]

    def optional(
        self, variable: str, parse: Callable[[str], T], *, secret: bool = False
    ) -> T | None:
        """A setting that may be absent."""
        text = self._values.get(variable)
        if text is None:
            return None
        shown = "" if secret else f" {text!r}"
        try:
            text.encode()
            return parse(text)
        except UnicodeEncodeError:
            self.problems.append(f"{self.called(variable)}: expected UTF-8")
        except (ValueError, IdentityError) as error:
            self.problems.append(f"{self.called(variable)}{shown}: {error}")
        return None

    def required(
        self, variable: str, parse: Callable[[str], T], *, secret: bool = False
    ) -> T | None:
        """A setting that has to be there, and not empty."""
        if not self._values.get(variable):
            option = next(s.option for s in SETTINGS if s.variable == variable)
            self.problems.append(f"{variable} is missing: set it, or give {option}")
            return None
        return self.optional(variable, parse, secret=secret)

    def name(self) -> str | None:
        """The local name; without it, the server's id and name, which must agree."""
        if LOCAL_NAME in self._values or SERVER_ID not in self._values:
            return self.required(LOCAL_NAME, local_name)
        identity = self.optional(SERVER_ID, tls_id)
        server = self.optional(SERVER_NAME, dns_name)
        if identity is None or server is None:
            if SERVER_NAME not in self._values:
                self.problems.append(f"{SERVER_NAME} is missing")
            return None
        if is_uri(identity) or identity != server:
            self.problems.append(
                "linkerd identity requires a TLS Id and server name to be the same: "
                f"{SERVER_ID} is {identity!r}, {SERVER_NAME} is {server!r}"
            )
            return None
        return self.optional(SERVER_ID, local_name)

    def refresh(self) -> RefreshPolicy:
        """The bounds of renewal, in their order."""
        policy = RefreshPolicy()
        shortest = self.optional(MIN_REFRESH, durations.parse)
        longest = self.optional(MAX_REFRESH, durations.parse)
        if shortest is not None:
            policy = replace(policy, shortest=shortest)
        if longest is not None:
            policy = replace(policy, longest=longest)
        if policy.shortest > policy.longest:
            self.problems.append(
                f"{self.called(MIN_REFRESH)} is {durations.render(policy.shortest)}, "
                f"more than {self.called(MAX_REFRESH)}, which is "
                f"{durations.render(policy.longest)}"
            )
        return policy

    def backoff(self, direction: str) -> Backoff:
        """How to retry: the proxy's variables for connections, if they are set."""
        prefix = f"{PREFIX}{direction}_CONNECT_EXP_BACKOFF"
        low, high, jitter = f"{prefix}_MIN", f"{prefix}_MAX", f"{prefix}_JITTER"
        shortest = self.optional(low, durations.parse)
        longest = self.optional(high, durations.parse)
        spread = self.optional(jitter, _ratio)
        if (low in self._values) != (high in self._values) or (
            jitter in self._values and low not in self._values
        ):
            self.problems.append(f"{low} and {high} must both be set, or neither")
        if shortest is None or longest is None:
            return Backoff()
        if shortest > longest or not longest:
            self.problems.append(f"{low} must not be more than {high}, nor {high} 0")
            return Backoff()
        return Backoff(shortest=shortest, longest=longest, spread=spread or 0.0)


def _address(text: str) -> Service:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError("expected an address and a port, such as 10.0.0.1:8080")
    if host.startswith("[") and host.endswith("]"):
        host = str(ipaddress.IPv6Address(host[1:-1]))
    elif ip_address(host) is None:
        host = dns_name(host)
    elif ":" in host:
        raise ValueError("expected brackets around the address, as in [::1]:8080")
    if not int(port):
        raise ValueError("expected a port from 1 to 65535")
    return Service(host=host, port=int(port))


def _ratio(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or not 0 <= value <= 100:
        raise ValueError("expected a number from 0 to 100")
    return value
