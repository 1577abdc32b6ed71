"""The commands `inject` and `uninject`: manifests in, manifests and a report out."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import click

from proxyinit.commands import PflagOption, read_arguments
from proxyinit.inject import asked, report, sources
from proxyinit.inject.inject_flags import HIDDEN_FLAGS, INJECT_FLAGS, UNINJECT_FLAGS
from proxyinit.inject.run import Run
from proxyinit.inject.transform import Transform, removal
from proxyinit.pflag import Arguments, Flag, parse

Asked: TypeAlias = Callable[[Arguments, Mapping[str, str], list[str]], Transform]
"""What to do with objects, by arguments and environment; mistakes go into a list."""

_WRITTEN = "nothing was written"
_NO_FILE = "please specify a kubernetes resource file"
_INJECT_HELP = """\
Add the mesh to manifests.

Annotates workloads and namespaces, so that the webhook injects their pods; with
--manual the containers are written out. Objects without pods come back as they
are, and so do comments and order. Manifests are transformed as a whole: if
something in them can't be, nothing is written.

\b
Examples:
  proxy-injector inject deployment.yaml | kubectl apply -f -
  kubectl get deploy -o yaml | proxy-injector inject --skip-inbound-ports 25 -
  proxy-injector inject --manual --values values.yaml --trust-anchors ca.crt k8s/

No cluster is asked, and no URL is fetched: what the cluster is configured with
comes from --values and --trust-anchors. Without --values every flag becomes an
annotation; with it, or with --ignore-cluster, those that differ.
"""

_UNINJECT_HELP = """\
Take the mesh out of manifests.

Removes what injection adds: containers, volumes, labels and annotations of
linkerd.io. Settings in config.linkerd.io stay, and so does a pod's own
"linkerd.io/inject: disabled".

\b
Example:
  kubectl get deploy -o yaml | proxy-injector uninject - | kubectl apply -f -
"""


class ManifestCommand(click.Command):
    """A command over files, whose flags `proxyinit.pflag` reads.

    Every mistake is told at once, those in files that flags name too. `hidden` flags
    are left out of the help page.
    """

    def __init__(  # noqa: PLR0913  (what a command is made of)
        self,
        name: str,
        flags: tuple[Flag, ...],
        ask: Asked,
        run: Callable[[Arguments, Transform], None],
        help_text: str,
        *,
        hidden: tuple[Flag, ...] = (),
    ) -> None:
        files = click.Argument(["files"], nargs=-1, metavar="FILE...")
        options = [PflagOption(flag) for flag in flags]
        super().__init__(name, params=[*options, files], help=help_text)
        self._flags = flags
        self._hidden = hidden
        self._ask = ask
        self._run = run

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments and the files that flags name."""
        arguments = parse(args, (*self._flags, *self._hidden))
        if arguments.help:
            click.echo(ctx.get_help())
            ctx.exit()
        problems = [_spelled(problem, self._flags) for problem in arguments.problems]
        transform = self._ask(arguments, os.environ, problems)
        problems += _stray(arguments.words, self._flags, self.name)
        # A line without arguments: the files are words, which others don't take.
        read_arguments(
            ctx, [], self._flags, check=lambda _: problems, assurance=_WRITTEN
        )
        ctx.obj = (arguments, transform)
        return []

    def invoke(self, ctx: click.Context) -> Any:
        """Transform the files."""
        return self._run(*ctx.obj)


def _spelled(problem: str, flags: tuple[Flag, ...]) -> str:
    """A mistake; how to switch off where that was meant."""
    name = problem.removeprefix("unknown flag --no-")
    if name != problem and any(flag.is_bool and flag.name == name for flag in flags):
        return f"unknown flag: switch off by --{name}=false, not --no-{name}"
    return problem


def _stray(
    words: tuple[str, ...], flags: tuple[Flag, ...], command: str | None
) -> Iterator[str]:
    """What is wrong with words that should be files."""
    if not words:
        yield f"{_NO_FILE}: FILE, a folder, or - for standard input"
    for word in words:
        if sources.is_url(word):
            told = f"URLs are not fetched, got {word!r}"
            yield f"{told}: curl -fsSL URL | proxy-injector {command} -"
        elif word in ("true", "false") and any(flag.is_bool for flag in flags):
            told = f"values of switches need '=', as in --ingress={word}"
            yield f"unexpected word {word!r}: {told}; a file of that name is ./{word}"


def _inject(arguments: Arguments, transform: Transform) -> None:
    verbose = bool(arguments.values["verbose"])
    color = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    with Run(transform, str(arguments.values["output"])) as run:
        run.take(arguments.words)
        found = run.lines()
        run.finish(report.injection(run.checks, found, verbose=verbose, color=color))


def _uninject(arguments: Arguments, transform: Transform) -> None:
    with Run(transform, str(arguments.values["output"])) as run:
        run.take(arguments.words)
        run.finish(report.removal(run.lines()))


inject = ManifestCommand(
    "inject",
    INJECT_FLAGS,
    asked.injection,
    _inject,
    _INJECT_HELP,
    hidden=HIDDEN_FLAGS,
)
uninject = ManifestCommand(
    "uninject",
    UNINJECT_FLAGS,
    lambda *_: removal,
    _uninject,
    _UNINJECT_HELP,
)
