"""``proxy-identity issuer``: upstream's flags, and ours beyond them.

Go programs take `-flag`, `--flag`, `-flag=value`; manifests written for upstream's
service are to work here.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from identity import logs
from identity.commands import Command
from identity.errors import Misconfigured
from identity.issuer.config import (
    ANCHORS,
    DEFAULT_LIFETIME,
    DEFAULT_SKEW,
    ISSUER_DIR,
    JWKS,
    KUBERNETES,
    ZERO_LIFETIME,
    IssuerConfig,
    parse_duration,
    split_address,
)
from identity.issuer.policy import Domain
from proxyinit import __version__
from proxyinit.go_flags import two_dashes

_LEVEL_NAMES = {
    "panic": "error",
    "fatal": "error",
    "warn": "warning",
    "trace": "debug",
}
"""Levels by the names that upstream has for them."""

_log = logging.getLogger(__name__)


class GoCommand(Command):
    """A command whose long options may be spelled with one dash."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give every long option two dashes; and switches their Go values."""
        switches = {
            name: option
            for option in self.params
            if isinstance(option, click.Option) and option.is_flag
            for name in option.opts
        }
        spelled = []
        for arg in args:
            word = two_dashes(arg)
            name, _, value = word.partition("=")
            if name in switches and value in ("true", "false"):
                spelled += [name] if value == "true" else []
            else:
                spelled.append(word)
        return super().parse_args(ctx, spelled)


def _path(name: str, text: str, default: Path | None = None) -> click.Option:
    kind = click.Path(path_type=Path)
    return click.Option(
        [name], type=kind, default=default, show_default=True, help=text
    )


def _text(name: str, text: str, default: str = "") -> click.Option:
    return click.Option([name], default=default, show_default=bool(default), help=text)


def _switch(name: str, text: str, *, hidden: bool = False) -> click.Option:
    return click.Option([name], is_flag=True, hidden=hidden, help=text)


def _choice(name: str, text: str, default: str, choices: Sequence[str]) -> click.Option:
    kind = click.Choice(choices)
    return click.Option(
        [name], type=kind, default=default, show_default=True, help=text
    )


def _number(
    name: str, text: str, default: int, kind: click.ParamType[Any]
) -> click.Option:
    return click.Option(
        [name], type=kind, default=default, show_default=True, help=text
    )


_OPTIONS = [
    _text("--addr", "Address to serve gRPC on.", ":8080"),
    _text("--admin-addr", "Address of /ping, /ready and /metrics.", ":9990"),
    _path("--kubeconfig", "How to reach the Kubernetes API; without it, as a pod."),
    _text("--controller-namespace", "Namespace of the control plane."),
    _text("--identity-scheme", "linkerd.io/tls or kubernetes.io/tls: file names."),
    _text("--identity-trust-domain", "Name at the end of all identities."),
    _text("--identity-issuance-lifetime", "Life of certificates.  [default: 24h]"),
    _text(
        "--identity-clock-skew-allowance",
        "Added at both ends, for clocks that are off.  [default: 10s]",
    ),
    _path("--issuer", "Folder of the issuer's certificate and key.", ISSUER_DIR),
    _path("--trust-anchors", "Bundle of trust anchors.", ANCHORS),
    _number(
        "--kube-apiclient-qps",
        "Calls a second to the Kubernetes API.",
        100,
        click.FloatRange(0, min_open=True),
    ),
    _number(
        "--kube-apiclient-burst",
        "Calls that may follow each other without a gap.",
        1,
        click.IntRange(1),
    ),
    _choice(
        "--token-validator",
        "Ask the API about each token, or verify it with the cluster's keys.",
        KUBERNETES,
        [KUBERNETES, JWKS],
    ),
    _path("--jwks", "File with the cluster's keys; without it, the API's are used."),
    _text("--token-issuer", "Issuer that tokens must name (jwks)."),
    _path("--tls-cert", "Serve TLS 1.3 with this certificate chain."),
    _path("--tls-key", "Key of --tls-cert."),
    _switch("--spiffe", "Add spiffe://<trust domain>/ns/<ns>/sa/<sa> to certificates."),
    _number("--workers", "Processes that serve.", 1, click.IntRange(1, 64)),
    _switch("--enable-pprof", "", hidden=True),
    click.Option(["--trace-collector"], default="", hidden=True),
    _choice(
        "--log-level",
        "Least important lines that are written.",
        "info",
        [*logs.LEVELS, *_LEVEL_NAMES],
    ),
    _choice("--log-format", "Form of the lines.", "plain", logs.FORMS),
]


_HELP = """Certify workloads: their tokens prove their names.

\b
Example:
  proxy-identity issuer --controller-namespace linkerd \\
    --identity-scheme kubernetes.io/tls --identity-trust-domain cluster.local
"""


def _serve(**options: Any) -> None:
    level = _LEVEL_NAMES.get(options["log_level"], options["log_level"])
    logs.configure(level, options["log_format"])
    config = configuration({**options, "log_level": level})
    # These bring gRPC, which is not needed for --help.
    if config.workers > 1:
        from identity.issuer import workers  # noqa: PLC0415

        workers.run(config)
    else:
        from identity.issuer import run  # noqa: PLC0415

        run.run(config)


def configuration(options: Mapping[str, Any]) -> IssuerConfig:
    """The configuration that the options ask for.

    Durations that can't be read leave the default, with a warning, as upstream does.
    Raises `Misconfigured` with all other mistakes.
    """
    problems = list(_mistakes(options))
    if problems:
        raise Misconfigured(problems)
    for name in ("enable_pprof", "trace_collector"):
        if options[name]:
            _log.warning("--%s has no meaning here", name.replace("_", "-"))
    return IssuerConfig(
        address=options["addr"],
        admin_address=options["admin_addr"],
        kubeconfig=options["kubeconfig"],
        domain=Domain(
            options["controller_namespace"], options["identity_trust_domain"]
        ),
        scheme=options["identity_scheme"],
        lifetime=_duration(
            options["identity_issuance_lifetime"],
            "Invalid issuance lifetime",
            default=DEFAULT_LIFETIME,
            zero=ZERO_LIFETIME,
        ),
        skew=_duration(
            options["identity_clock_skew_allowance"],
            "Invalid clock skew allowance",
            default=DEFAULT_SKEW,
            zero=DEFAULT_SKEW,
        ),
        issuer_dir=options["issuer"],
        anchors=options["trust_anchors"],
        api_calls_per_s=options["kube_apiclient_qps"],
        api_burst=options["kube_apiclient_burst"],
        validator=options["token_validator"],
        jwks=options["jwks"],
        token_issuer=options["token_issuer"],
        tls_certificate=options["tls_cert"],
        tls_key=options["tls_key"],
        spiffe=options["spiffe"],
        workers=options["workers"],
        log_level=options["log_level"],
        log_format=options["log_format"],
    )


def _mistakes(options: Mapping[str, Any]) -> Iterator[str]:
    for name in ("addr", "admin_addr"):
        try:
            split_address(options[name])
        except ValueError as error:
            yield f"--{name.replace('_', '-')}: {error}"
    if (options["tls_cert"] is None) != (options["tls_key"] is None):
        yield "--tls-cert and --tls-key: expected both or neither"
    if options["token_validator"] == JWKS:
        if options["jwks"] is not None and not options["token_issuer"]:
            yield "--jwks: expected --token-issuer too, which the file lacks"
    elif options["jwks"] is not None or options["token_issuer"]:
        yield "--jwks and --token-issuer: expected --token-validator jwks too"


def _duration(
    text: str, complaint: str, *, default: dt.timedelta, zero: dt.timedelta
) -> dt.timedelta:
    if not text:
        return default
    try:
        found = parse_duration(text)
        if found < dt.timedelta(0):
            raise ValueError(f"negative duration {text!r}")  # noqa: TRY301
    except ValueError as error:
        _log.warning("%s: %s", complaint, error)
        return default
    return found or zero


_say_version = click.version_option(__version__, message="%(version)s")
issuer = _say_version(
    GoCommand(
        "issuer", params=list(_OPTIONS), callback=_serve, help=_HELP, check=_mistakes
    )
)
