"""The commands `inject` and `uninject`: manifests in, manifests and a report out."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from proxyinit.inject import annotations as keys
from proxyinit.inject import report, sources
from proxyinit.inject.asked import injection
from proxyinit.inject.run import Run
from proxyinit.inject.settings import DEPRECATED, SETTINGS, Setting
from proxyinit.inject.transform import removal

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


def _format(_: click.Context, __: click.Parameter, value: str) -> str:
    if value not in ("json", "yaml"):
        raise click.BadParameter(f"unsupported format {value}: expected json or yaml")
    return value


def _paths(_: click.Context, __: click.Parameter, value: Sequence[str]) -> Any:
    if not value:
        raise click.UsageError(f"{_NO_FILE}: FILE, a folder, or - for standard input")
    if urls := [path for path in value if sources.is_url(path)]:
        told = f"URLs are not fetched, got {urls[0]!r}"
        raise click.UsageError(f"{told}: curl -fsSL URL | proxy-injector inject -")
    return value


_INPUT = click.argument(
    "paths", nargs=-1, metavar="FILE...", callback=_paths, type=click.Path()
)
_OUTPUT = click.option(
    "-o",
    "--output",
    "form",
    metavar="json|yaml",
    default="yaml",
    callback=_format,
    help="Format of the output.  [default: yaml]",
)


class SwitchCommand(click.Command):
    """A command whose switches may be spelled as pflag has them: --switch=false."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments."""
        switches = {
            name
            for option in self.params
            if isinstance(option, click.Option) and option.is_bool_flag
            for name in option.opts
        }
        return super().parse_args(ctx, [_spelled(arg, switches) for arg in args])


def _spelled(arg: str, switches: set[str]) -> str:
    name, equals, value = arg.partition("=")
    if not equals or name not in switches:
        return arg
    if value.lower() not in ("true", "false"):
        raise click.UsageError(f"{name}: expected true or false, got {value!r}")
    return name if value.lower() == "true" else f"--no-{name[2:]}"


def _read(parse: Callable[[str], Any]) -> Callable[..., Any]:
    """A callback for options whose text means something; None is left alone."""

    def read(_: click.Context, __: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(f"{error}, got {value!r}") from error

    return read


def _setting_option(setting: Setting) -> Callable[[Any], Any]:
    if setting.read is None:
        switch = f"{setting.flag}/--no-{setting.flag[2:]}"
        return click.option(switch, default=None, help=setting.help)
    names = [setting.flag, *(["-v"] if setting.flag == "--proxy-version" else [])]

    def read(_: click.Context, __: click.Parameter, value: str | None) -> Any:
        try:
            return (
                None if value is None or setting.read is None else setting.read(value)
            )
        except ValueError as error:
            raise click.BadParameter(f"{error}, got {value!r}") from error

    return click.option(
        *names, metavar=setting.metavar, help=setting.help, callback=read
    )


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    for old in DEPRECATED:
        command = click.option(old, hidden=True)(command)
    for setting in reversed(SETTINGS):
        command = _setting_option(setting)(command)
    return command


@click.command(cls=SwitchCommand, help=_INJECT_HELP)
@_INPUT
@_OUTPUT
@click.option("--manual", is_flag=True, help="Write the containers into the pods.")
@click.option(
    "--values",
    "values_file",
    metavar="FILE",
    help="The chart's values as the cluster has them: YAML, or linkerd-config itself.",
)
@click.option(
    "--trust-anchors",
    metavar="FILE",
    help="The mesh's trust anchors in PEM; they win over those in --values.",
)
@click.option(
    "--ignore-cluster",
    is_flag=True,
    help="Without --values, take the chart's defaults for the cluster's values.",
)
@click.option(
    "-L",
    "--linkerd-namespace",
    default="linkerd",
    envvar="LINKERD_NAMESPACE",
    show_default=True,
    help="Namespace of the control plane.",
)
@click.option("--ingress/--no-ingress", default=False, help="Inject in ingress mode.")
@click.option(
    "--enable-debug-sidecar/--no-enable-debug-sidecar",
    "debug",
    default=False,
    help="Add the container with tools.",
)
@click.option(
    "--close-wait-timeout",
    metavar="DURATION",
    callback=_read(keys.parse_duration_ns),
    help="Timeout of connections in CLOSE_WAIT, such as 30s; needs runAsRoot.",
)
@click.option(
    "--registry",
    envvar="LINKERD_DOCKER_REGISTRY",
    help="Registry to take images from.",
)
@click.option("--verbose", is_flag=True, help="Report what is in order, too.")
@click.option("--disable-identity", is_flag=True, hidden=True)
@_with_settings
def inject(paths: Sequence[str], form: str, **given: Any) -> None:
    """Print what injection makes of manifests, then the report."""
    verbose = bool(given["verbose"])
    color = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    with Run(injection(**given), form) as run:
        run.take(paths)
        found = run.lines()
        run.finish(report.injection(run.checks, found, verbose=verbose, color=color))


@click.command(help=_UNINJECT_HELP)
@_INPUT
@_OUTPUT
def uninject(paths: Sequence[str], form: str) -> None:
    """Print what is left of manifests, then the report."""
    with Run(removal, form) as run:
        run.take(paths)
        run.finish(report.removal(run.lines()))
