"""What was found against what was expected: pure, and loud where they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from cryptography.exceptions import InvalidSignature
from cryptography.x509 import BasicConstraints, Certificate, Name
from cryptography.x509.oid import NameOID

from proxyinit.backend import family
from proxyinit.demo.expectations import (
    CHAINS,
    ISSUER_NAME,
    ROOT_NAME,
    Case,
    Endpoint,
    Seen,
)
from proxyinit.errors import ProxyInitError
from proxyinit.iptables_rule import render_rule
from proxyinit.rules import OUR_CHAINS, Comment, Rule, Ruleset

if TYPE_CHECKING:
    from identity.testing.peers import Meeting, Talk
    from proxyinit.lab import Load
    from proxyinit.rules import Version

Found: TypeAlias = Sequence[tuple[Case, Seen]]
"""Connections, and who answered each."""

Tables: TypeAlias = Mapping[str, Ruleset]
"""A pod's nat tables of one IP version, by the kernel interface they are in."""


class NotAsExpected(ProxyInitError):
    """Something that the demo shows did not happen as it should."""


# === connections ===


def require_answers(found: Found, expected: Callable[[Case], Seen]) -> None:
    """Raises `NotAsExpected` that names the first connection with a wrong answer."""
    wrong = [(case, seen) for case, seen in found if seen != expected(case)]
    if not wrong:
        return
    case, seen = wrong[0]
    raise NotAsExpected(
        f"{len(wrong)} of {len(found)} connections went wrong; the first, from the "
        f"{case.caller} to {case.to}: expected {_in_words(expected(case))}, "
        f"found {_in_words(seen)}"
    )


def _in_words(seen: Seen) -> str:
    at = f" at port {seen.port}" if seen.port else ""
    told = f", told of {seen.original}" if seen.original else ""
    return f"{seen.who}{at}{told}"


def past(seen: Load) -> int:
    """How many connections somebody else than the proxy answered."""
    return sum(count for who, count in seen.answers.items() if who != "proxy")


def require_no_slip(seen: Load, *, at_least: int) -> None:
    """Raises `NotAsExpected` unless the proxy answered every one of enough."""
    errors = len(seen.errors)
    if past(seen) or errors:
        raise NotAsExpected(
            f"of {seen.total:,} connections {past(seen):,} went past the proxy and "
            f"{errors:,} failed while proxy-init ran again, expected 0 and 0",
            "\n".join(seen.errors[:1]),
        )
    if seen.total < at_least:
        raise NotAsExpected(
            f"only {seen.total} connections were made while proxy-init ran again, "
            f"expected at least {at_least}: too few to prove anything"
        )


# === rules ===


def require_rules(tables: Tables, version: Version) -> str:
    """The kernel interface that holds exactly `CHAINS`; the other holds nothing.

    Raises `NotAsExpected` with the rules found when none or both have any.
    """
    kinds = [kind for kind, table in tables.items() if lines(table)]
    if len(kinds) != 1:
        raise NotAsExpected(
            f"{family(version)}: expected rules in one of {', '.join(tables)}, "
            f"found them in {' and '.join(kinds) or 'none'}"
        )
    found, wanted = lines(tables[kinds[0]]), _wanted_lines()
    if found != wanted:
        raise NotAsExpected(
            "\n".join([f"{family(version)}: expected these rules:", *wanted]),
            "\n".join(["found:", *found]),
        )
    return kinds[0]


def require_nothing(tables: Tables, version: Version) -> None:
    """Raises `NotAsExpected` when a rule or a chain of ours is left."""
    for kind, table in tables.items():
        left = [f"chain {name}" for name in OUR_CHAINS if table.chain(name)]
        left += lines(table)
        if left:
            raise NotAsExpected(
                f"{family(version)}: expected nothing in {kind} after the cleanup, "
                f"found {', '.join(left)}"
            )


def lines(table: Ruleset) -> list[str]:
    """Every rule of a table without its comment; those of our chains come last."""
    names = [chain.name for chain in table.chains if chain.name not in OUR_CHAINS]
    return [
        f"{name} {_without_comment(rule)}"
        for name in (*names, *OUR_CHAINS)
        for rule in table.rules(name)
    ]


def _without_comment(rule: Rule) -> str:
    matches = tuple(m for m in rule.matches if not isinstance(m, Comment))
    return render_rule(Rule(matches, rule.verdict))


def _wanted_lines() -> list[str]:
    jumps = [f"{wanted.builtin} -j {wanted.name}" for wanted in CHAINS]
    rules = [f"{wanted.name} {line.text}" for wanted in CHAINS for line in wanted.lines]
    return [*jumps, *rules]


# === identities ===


def require_authorities(root: Certificate, issuer: Certificate) -> None:
    """Raises `NotAsExpected` unless the issuer leads to the root, and both may sign."""
    names = (common_name(root.subject), common_name(issuer.subject))
    if names != (ROOT_NAME, ISSUER_NAME):
        raise NotAsExpected(
            f"expected the authorities {ROOT_NAME} and {ISSUER_NAME}, "
            f"found {' and '.join(names)}"
        )
    try:
        root.verify_directly_issued_by(root)
        issuer.verify_directly_issued_by(root)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise NotAsExpected(
            f"expected an issuer that leads to the root: {type(error).__name__} {error}"
        ) from error
    for certificate in (root, issuer):
        limits = certificate.extensions.get_extension_for_class(BasicConstraints)
        if not limits.value.ca:
            name = common_name(certificate.subject)
            raise NotAsExpected(f"expected {name} to be an authority")


def common_name(name: Name) -> str:
    """The common name in a subject."""
    return str(name.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def require_identity(report: Mapping[str, object], name: str) -> None:
    """Raises `NotAsExpected` unless a directory holds a good certificate of a name."""
    wanted = {
        "names": [name],
        "key_matches": True,
        "chain_verifies": True,
        "problems": [],
    }
    for what, expected in wanted.items():
        if report.get(what) != expected:
            raise NotAsExpected(
                f"expected {what} of the certificate to be {expected!r}, "
                f"found {report.get(what)!r}"
            )


def require_refusal(status: int, printed: str, reason: str) -> None:
    """Raises `NotAsExpected` unless a program failed, for the right reason."""
    if status != 1 or reason not in printed:
        raise NotAsExpected(
            f"expected status 1 because of {reason!r}, found status {status}", printed
        )


def require_meeting(met: Meeting, client: str, server: str, to: Endpoint) -> None:
    """Raises `NotAsExpected` unless the right two met, after a redirect."""
    found = (met.client.name, met.server.name, met.original)
    wanted = (client, server, (to.address, to.port))
    if found != wanted:
        raise NotAsExpected(
            f"expected {client} to meet {server}, which is told of {to}, "
            f"found {met.client.name}, {met.server.name} and {met.original}"
        )


def require_renewals(talk: Talk, *, at_least: int) -> None:
    """Raises `NotAsExpected` unless enough connections all went well, old and new.

    Both sides have to be seen with the certificate they had, and with another.
    """
    if talk.failures:
        raise NotAsExpected(
            f"{len(talk.failures)} of {talk.count} connections failed during the "
            "renewals, expected 0",
            "\n".join(talk.failures[:1]),
        )
    seen = min(len(talk.servers), len(talk.clients))
    if talk.count < at_least or seen < 2:
        raise NotAsExpected(
            f"expected at least {at_least} connections with two certificates of each "
            f"side, found {talk.count} with {len(talk.clients)} and "
            f"{len(talk.servers)}"
        )
