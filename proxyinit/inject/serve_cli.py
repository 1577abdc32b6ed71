"""``proxy-injector serve``: upstream's flags, and ours beyond them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from identity import logs
from identity.issuer.cli import GoCommand
from identity.issuer.config import split_address
from proxyinit import __version__
from proxyinit.flags import LOG_FORMATS, LOG_LEVELS
from proxyinit.inject import certificates, configuration
from proxyinit.logs import Log

_LEVELS = {
    "panic": "error",
    "fatal": "error",
    "warn": "warning",
    "trace": "debug",
}
"""Levels that the standard library calls otherwise."""

_HELP = """Serve the admission webhook that injects pods as they are made.

\b
Example:
  proxy-injector serve --linkerd-namespace linkerd
"""


def _path(name: str, text: str, default: Path | None) -> click.Option:
    kind = click.Path(path_type=Path)
    return click.Option(
        [name], type=kind, default=default, show_default=True, help=text
    )


def _text(name: str, text: str, default: str) -> click.Option:
    return click.Option([name], default=default, show_default=True, help=text)


_OPTIONS = (
    _text("--addr", "Address to serve the webhook on.", ":8443"),
    _text("--metrics-addr", "Address of /ping, /ready and /metrics.", ":9995"),
    _path(
        "--kubeconfig", "How to reach the Kubernetes API; without it, as a pod.", None
    ),
    _text("--linkerd-namespace", "Namespace of the control plane.", "linkerd"),
    _path("--values", "The chart's values, in YAML.", configuration.VALUES),
    _path("--trust-roots", "The mesh's trust anchors.", configuration.TRUST_ROOTS),
    _path("--tls-cert", "Certificate to serve with.", certificates.CERTIFICATE),
    _path("--tls-key", "Key of --tls-cert.", certificates.KEY),
    click.Option(
        ["--self-signed"],
        is_flag=True,
        help="Make a certificate, and write its authority into the caBundle.",
    ),
    click.Option(["--enable-pprof"], is_flag=True, hidden=True),
    click.Option(
        ["--log-level"], type=click.Choice(LOG_LEVELS), default="info",
        show_default=True, help="Least important lines that are written.",
    ),
    click.Option(
        ["--log-format"], type=click.Choice(LOG_FORMATS), default="plain",
        show_default=True, help="Form of the lines.",
    ),
    click.Option(
        ["--version"], is_flag=True, is_eager=True, expose_value=False,
        callback=lambda context, _, wanted: _say_version(context, wanted=wanted),
        help="Show the version and exit.",
    ),
)  # fmt: skip


def _say_version(context: click.Context, *, wanted: bool) -> None:
    if wanted:
        click.echo(__version__)
        context.exit()


def _serve(**given: Any) -> None:
    # The server's imports are not needed for --help.
    from proxyinit.inject.serve import Options, run  # noqa: PLC0415

    level = _LEVELS.get(given["log_level"], given["log_level"])
    logs.configure(level, given["log_format"])  # for what libraries have to say
    log = Log(given["log_level"], given["log_format"])
    if given["enable_pprof"]:
        log.warning("--enable-pprof has no meaning here")
    options = Options(
        address=_address("--addr", given["addr"]),
        admin_address=_address("--metrics-addr", given["metrics_addr"]),
        kubeconfig=given["kubeconfig"],
        locations=configuration.Locations(
            given["values"], given["trust_roots"], given["linkerd_namespace"]
        ),
        certificate=given["tls_cert"],
        key=given["tls_key"],
        self_signed=given["self_signed"],
        verbose=level == "debug",
    )
    run(options, log)


def _address(flag: str, text: str) -> tuple[str, int]:
    try:
        return split_address(text)
    except ValueError as error:
        raise click.UsageError(f"{flag}: {error}") from error


serve = GoCommand("serve", params=list(_OPTIONS), callback=_serve, help=_HELP)
