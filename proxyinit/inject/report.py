"""What a run did, line by line, in the words of `linkerd inject`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from proxyinit.inject.annotations import INJECT

TOKENS_FINE = (
    'pods do not have automountServiceAccountToken set to "false" '
    "or service account token projection is enabled"
)
SKIPPED = "skipped"
WARNS, OK = "\N{DOUBLE EXCLAMATION MARK}", "\N{SQUARE ROOT}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one object; `changed` is the object after it.

    `status` is the last word of its line: injected, annotated, uninjected, skipped.
    `usable` tells that it is of a kind that can be injected or annotated. An object
    with an `error` keeps the whole stream from being written; `at` is the line of its
    document that is wrong, from 0, where upstream has no words of its own for it.
    `advice` are warnings about annotations that could not be followed.
    """

    kind: str = ""
    name: str = ""
    status: str = SKIPPED
    changed: Any = field(default=None, repr=False)
    usable: bool = False
    host_network: bool = False
    sidecar: bool = False
    disabled: bool = False
    udp: bool = False
    no_token: bool = False
    error: str = ""
    at: int | None = None
    advice: tuple[str, ...] = ()

    @property
    def resource(self) -> str:
        """As warnings call it: ``deployment/web``."""
        return f"{self.kind.lower()}/{self.name}"

    @property
    def line(self) -> str:
        """Its line in the report."""
        if not self.kind:
            return 'document missing "kind" field, skipped'
        return f'{self.kind.lower()} "{self.name}" {self.status}'


class Checks:
    """The warnings of a whole run, from one outcome after the other."""

    def __init__(self) -> None:
        self.host_network: list[str] = []
        self.sidecar: list[str] = []
        self.disabled: list[str] = []
        self.udp: list[str] = []
        self.no_token = False
        self.usable = False
        self.advice: list[str] = []

    def see(self, outcome: Outcome) -> None:
        """Take an outcome into account."""
        for holds, names in (
            (outcome.host_network, self.host_network),
            (outcome.sidecar, self.sidecar),
            (outcome.disabled, self.disabled),
            (outcome.udp, self.udp),
        ):
            if holds:
                names.append(outcome.resource)
        self.no_token = self.no_token or outcome.no_token
        self.usable = self.usable or outcome.usable
        self.advice += [f"{outcome.resource}: {said}" for said in outcome.advice]

    def lines(self, *, verbose: bool) -> Iterator[tuple[str, str]]:
        """Glyph and text of each; what is in order is told if `verbose`."""
        uses = "uses" if len(self.udp) == 1 else "use"
        rows = (
            (
                f'"hostNetwork: true" detected in {_list(self.host_network)}',
                "pods do not use host networking",
                self.host_network,
            ),
            (
                f"known 3rd party sidecar detected in {_list(self.sidecar)}",
                "pods do not have a 3rd party proxy or initContainer already injected",
                self.sidecar,
            ),
            (
                f'"{INJECT}: disabled" annotation set on {_list(self.disabled)}',
                "pods are not annotated to disable injection",
                self.disabled,
            ),
            (
                "no supported objects found",
                "at least one resource can be injected or annotated",
                not self.usable,
            ),
            (
                f'{_list(self.udp)} {uses} "protocol: UDP"',
                "pod specs do not include UDP ports",
                self.udp,
            ),
        )
        for warning, fine, warns in rows:
            if warns:
                yield WARNS, warning
            elif verbose:
                yield OK, fine
        if verbose and not self.no_token:
            yield OK, TOKENS_FINE
        for said in self.advice:
            yield WARNS, said


def injection(
    checks: Checks, outcomes: Iterable[str], *, verbose: bool, color: bool = False
) -> Iterator[str]:
    """The report of `inject`, line by line: warnings, then a line per object."""
    yield ""
    warnings = [
        f"{_glyph(g, color=color)} {t}" for g, t in checks.lines(verbose=verbose)
    ]
    yield from warnings
    if warnings:  # verbose ones say what is in order
        yield ""
    yield from outcomes
    yield ""


def removal(outcomes: Iterable[str]) -> Iterator[str]:
    """The report of `uninject`."""
    yield ""
    yield from outcomes
    yield ""


def failure(errors: Iterable[str]) -> str:
    """What takes the report's place when something went wrong."""
    return "Error transforming resources:\n" + "\n".join(errors)


def _list(names: list[str]) -> str:
    return ", ".join(names)


def _glyph(glyph: str, *, color: bool) -> str:
    if not color:
        return glyph
    return f"\x1b[{33 if glyph == WARNS else 32}m{glyph}\x1b[0m"
