"""``proxy-injector serve``: upstream's flags, and ours beyond them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from identity import logs
from identity.issuer.config import split_address
from proxyinit import __version__
from proxyinit.commands import PflagCommand
from proxyinit.flags import LOG_FLAGS
from proxyinit.go_flags import two_dashes
from proxyinit.inject import certificates, configuration
from proxyinit.inject.settings import namespace
from proxyinit.logs import Log
from proxyinit.pflag import Arguments, Flag, parse_bool

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

Flags may have one dash as well, as upstream's manifests spell them.
"""


def _address(text: str) -> str:
    split_address(text)
    return text


def _file(text: str) -> Path:
    if not text:
        raise ValueError("expected a file")
    return Path(text)


def _kubeconfig(text: str) -> Path | None:
    """A file; upstream's default is an empty text."""
    return Path(text) if text else None


FLAGS = (
    *(
        Flag(name, text, read, metavar=metavar, default=default)
        for name, read, metavar, default, text in (
            ("addr", _address, "HOST:PORT", ":8443",
             "Address to serve the webhook on."),
            ("metrics-addr", _address, "HOST:PORT", ":9995",
             "Address of /ping, /ready and /metrics."),
            ("kubeconfig", _kubeconfig, "FILE", None,
             "How to reach the Kubernetes API; without it, as a pod."),
            ("linkerd-namespace", namespace, "NAMESPACE", "linkerd",
             "Namespace of the control plane."),
            ("values", _file, "FILE", configuration.VALUES,
             "The chart's values, in YAML."),
            ("trust-roots", _file, "FILE", configuration.TRUST_ROOTS,
             "The mesh's trust anchors."),
            ("tls-cert", _file, "FILE", certificates.CERTIFICATE,
             "Certificate to serve with."),
            ("tls-key", _file, "FILE", certificates.KEY, "Key of --tls-cert."),
            ("self-signed", parse_bool, "", False,
             "Make a certificate, and write its authority into the caBundle."),
            ("enable-pprof", parse_bool, "", False,
             "Taken, as upstream's manifests have it, and without a meaning."),
        )
    ),
    *LOG_FLAGS,
    Flag("version", "Show the version and exit.", parse_bool, default=False),
)  # fmt: skip


class _GoCommand(PflagCommand):
    """A command whose flags may be spelled with one dash."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give every flag two dashes."""
        return super().parse_args(ctx, list(map(two_dashes, args)))


def _serve(arguments: Arguments) -> int:
    # The server's imports are not needed for --help.
    from proxyinit.inject.serve import Options, run  # noqa: PLC0415

    given: dict[str, Any] = arguments.values
    if given["version"]:
        click.echo(__version__)
        return 0
    level = _LEVELS.get(given["log-level"], given["log-level"])
    logs.configure(level, given["log-format"])  # for what libraries have to say
    log = Log(given["log-level"], given["log-format"])
    if given["enable-pprof"]:
        log.warning("--enable-pprof has no meaning here")
    options = Options(
        address=split_address(given["addr"]),
        admin_address=split_address(given["metrics-addr"]),
        kubeconfig=given["kubeconfig"],
        locations=configuration.Locations(
            given["values"], given["trust-roots"], given["linkerd-namespace"]
        ),
        certificate=given["tls-cert"],
        key=given["tls-key"],
        self_signed=given["self-signed"],
        verbose=level == "debug",
    )
    run(options, log)
    return 0


serve = _GoCommand(
    "serve",
    FLAGS,
    _serve,
    _HELP,
    check=lambda arguments: arguments.problems,
    assurance="nothing was started",
)
