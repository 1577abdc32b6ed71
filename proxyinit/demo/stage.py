"""Where chapters act: the laboratory, the program under proof, the narrator."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from proxyinit.backend import KINDS, program_name
from proxyinit.demo.checks import NotAsExpected
from proxyinit.demo.expectations import NOBODY, Case, Endpoint, Seen
from proxyinit.demo.interrupts import Interrupts
from proxyinit.demo.narrator import Narrator
from proxyinit.errors import CommandFailed
from proxyinit.iptables_save import parse
from proxyinit.lab import PROXY_UID, Answer, Lab, Namespace, ask
from proxyinit.rules import Ruleset
from proxyinit.runner import Output, SystemRunner

if TYPE_CHECKING:
    from proxyinit.rules import Version

APP_UID = 1000
_PROGRAM_LIMIT_S = 30


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """A part of the demo: a title, why it matters in a few sentences, and the act.

    The act raises `ProxyInitError` when anything is not as it should be.
    """

    title: str
    why: str
    act: Callable[[Stage], None]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What chapters act on; whatever they start in the lab ends with the lab.

    `program` is the path of proxy-init, `mode` its --iptables-mode. `folder` is for
    files, and gone after the demo.
    """

    lab: Lab
    narrator: Narrator
    interrupts: Interrupts
    mode: str
    program: str
    identity_program: str
    folder: Path
    runner: SystemRunner = field(
        default_factory=lambda: SystemRunner(timeout_s=_PROGRAM_LIMIT_S)
    )

    def run(self, argv: Sequence[str], pod: Namespace | None = None) -> Output:
        """Run a program inside the pod; raises `CommandFailed` unless it exits 0."""
        self.interrupts.check()
        try:
            return (pod or self.lab.pod).run(self.runner.run, list(argv))
        except CommandFailed:
            self.interrupts.check()  # Ctrl-C ends the program, too: no failure of it
            raise

    def proxy_init(
        self,
        arguments: Sequence[str],
        *,
        show: bool = False,
        pod: Namespace | None = None,
    ) -> float:
        """Run the installed proxy-init inside the pod; the seconds it took.

        `show` tells the reader the command line first. `pod` is another than the
        lab's first.
        """
        words = [*arguments, "--log-level", "warn"]
        if self.mode != "legacy" and "cleanup" not in arguments:
            words += ["--iptables-mode", self.mode]
        if show:
            self.narrator.command(["proxy-init", *words])
        start = time.monotonic()
        try:
            said = self.run([self.program, *words], pod)
        except CommandFailed as error:
            raise NotAsExpected(
                f"{self.program} ended with status {error.status}, expected 0",
                error.stderr,
            ) from error
        took = time.monotonic() - start
        if said.stderr and show:
            self.narrator.note(said.stderr)
        return took

    def connect(self, case: Case) -> Seen:
        """Open the connection that a case describes, and see who answers."""
        self.interrupts.check()
        place = self.lab.client if case.caller == "client" else self.lab.pod
        uid = {"client": 0, "app": APP_UID, "proxy": PROXY_UID}[case.caller]
        try:
            return _seen(place.run(ask, *_pair(case.to), uid=uid, gid=uid))
        except ConnectionRefusedError:
            return NOBODY
        except OSError as error:
            return Seen(error.strerror or str(error))

    def nat_tables(self, version: Version) -> dict[str, Ruleset]:
        """The pod's nat table of one IP version, by the kernel interface it is in."""
        tables = {}
        for kind in KINDS:
            save = self.runner.find(program_name(kind, version, "-save"))
            if save:
                try:
                    dump = self.run([save, "-t", "nat"]).stdout
                except CommandFailed:
                    continue  # what the kernel can't do it does not hold
                tables[kind] = parse(dump, version)
        return tables


def _pair(endpoint: Endpoint) -> tuple[str, int]:
    return endpoint.address, endpoint.port


def _seen(answer: Answer) -> Seen:
    original = Endpoint(*answer.original) if answer.original else None
    return Seen(answer.who, answer.port, original)
