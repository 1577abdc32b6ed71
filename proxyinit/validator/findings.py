"""Why connections are not redirected to us: cause, what was seen, next step. Pure."""

from __future__ import annotations

import errno

from proxyinit.record import Record
from proxyinit.validator.addresses import Address
from proxyinit.validator.outcome import Outcome, Surroundings

REDIRECT_MISSING = "redirect missing"
EGRESS_BLOCKED = "egress blocked"
OTHER_PROGRAM = "another program answered"
LISTEN_TAKEN = "listen address taken"
CANT_LISTEN = "can't listen"
_SHOWN = 64
"""So much of what a stranger said is enough to recognise it by."""


class Finding(Record):
    """One reason to fail, for programs (`cause`) and for people.

    `lacks_address` tells that the pod has no address of the IP version at all: no
    traffic of it can leave, so none can pass by the proxy.
    """

    cause: str
    text: str
    advice: str
    reason: str = ""
    lacks_address: bool = False

    def __str__(self) -> str:
        return f"{self.text}: {self.advice}"


def explain(
    outcome: Outcome, seen: Surroundings, listen: tuple[Address, ...], uid: int
) -> Finding:
    """Why an attempt has not brought back the token; `uid` is who attempted."""
    here = outcome.target.host in seen.addresses or _is_loopback(outcome.target)
    if here or outcome.direct:
        return Finding(
            REDIRECT_MISSING,
            f"{outcome.target} is this pod itself",
            "connections to one's own pod are not redirected; "
            "expected an address outside in --connect-addr",
            outcome.reason,
        )
    if outcome.at_once:
        return _not_begun(outcome, seen)
    if outcome.connected:
        return _answered(outcome, seen, listen, uid)
    return _unanswered(outcome, seen, uid)


def _not_begun(outcome: Outcome, seen: Surroundings) -> Finding:
    """The kernel looks for a route, and asks its filters, before any redirect."""
    target = outcome.target
    has_address = any(Address(a, 0).version == target.version for a in seen.addresses)
    if not has_address or outcome.code == errno.EAFNOSUPPORT:
        return Finding(
            EGRESS_BLOCKED,
            f"this pod has no IPv{target.version} address to connect to {target} from",
            "expected a --connect-addr of the IP version that the pod has",
            outcome.reason,
            lacks_address=True,
        )
    if outcome.code == errno.EPERM:
        advice = "look at network policies, and at eBPF programs of the CNI plugin"
    else:
        advice = (
            "without a route no redirect is tried; expected in --connect-addr an "
            "address that this pod has a route to, whether or not anybody has it"
        )
    text = f"the kernel lets no connection to {target} begin"
    return Finding(EGRESS_BLOCKED, text, advice, outcome.reason)


def _unanswered(outcome: Outcome, seen: Surroundings, uid: int) -> Finding:
    target = outcome.target
    if outcome.code == errno.ETIMEDOUT:
        text = (
            f"nobody answers at {target}, so the connection was not redirected, "
            "or a firewall drops it"
        )
    elif outcome.code == errno.ECONNREFUSED:
        text = (
            f"{target} refuses, so the connection was not redirected, "
            "or to a port where nobody listens"
        )
    else:
        text = f"{target} can't be reached, so the connection was not redirected"
    return Finding(REDIRECT_MISSING, text, _look_at(outcome, seen, uid), outcome.reason)


def _answered(
    outcome: Outcome, seen: Surroundings, listen: tuple[Address, ...], uid: int
) -> Finding:
    said = _said(outcome)
    if outcome.accepted:
        text = f"the connection to {outcome.target} came to us, but the answer {said}"
        advice = "look for a program that changes connections on their way"
        return Finding(OTHER_PROGRAM, text, advice, outcome.reason)
    if seen.other_end is not None:
        who = seen.program or "another program"
        text = f"redirected to {seen.other_end}, where {who} answers"
        advice = (
            "rules of another mesh or CNI plugin come first, or --listen-addr is not "
            f"where rules lead to; expected {' or '.join(map(str, listen))}"
        )
        return Finding(OTHER_PROGRAM, text, advice, outcome.reason)
    text = (
        f"{outcome.target} itself was reached, outside of this pod, and {said}, "
        "so the connection was not redirected"
    )
    return Finding(REDIRECT_MISSING, text, _look_at(outcome, seen, uid), outcome.reason)


def _said(outcome: Outcome) -> str:
    if outcome.received:
        shown = outcome.received[:_SHOWN].decode("utf-8", "replace")
        return f"said {shown!r}"
    return "closed it without a word" if outcome.closed else "said nothing"


def _look_at(outcome: Outcome, seen: Surroundings, uid: int) -> str:
    version = outcome.target.version
    mine = (a for a in seen.addresses if Address(a, 0).version == version)
    pod = next(mine, "ADDRESS")
    return (
        "see whether the CNI plugin or proxy-init has set this pod up, for "
        f"IPv{version} and for user {uid}; on the node, "
        f"proxy-init verify --pod-ip {pod} tells"
    )


def _is_loopback(address: Address) -> bool:
    return address.host.startswith("127.") or address.host == "::1"


def explain_listen(address: Address, code: int, reason: str, holder: str) -> Finding:
    """Why nothing can listen at an address; `holder` is who does already."""
    if code == errno.EADDRINUSE:
        text = f"{address} is taken by {holder or 'another program'}"
        advice = (
            "this has to run before the proxy starts, once for a pod; "
            "expected a --listen-addr that is free"
        )
        return Finding(LISTEN_TAKEN, text, advice, reason)
    if code == errno.EADDRNOTAVAIL:
        advice = "expected an address of this pod, or 0.0.0.0 or [::]"
    elif code == errno.EACCES:
        advice = "without NET_BIND_SERVICE, expected a port from 1024"
    elif code == errno.EAFNOSUPPORT:
        advice = "this kernel has no IPv6; expected 0.0.0.0, and IPv4 to connect to"
    else:
        advice = "expected an address and port that this user may listen at"
    return Finding(CANT_LISTEN, f"can't listen at {address}", advice, reason)
