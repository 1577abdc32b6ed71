"""Flags of `inject` and `uninject`, spelled as pflag has them: ``--ingress=false``."""

from __future__ import annotations

from proxyinit.inject import typed
from proxyinit.inject.settings import DEPRECATED, SETTINGS, namespace
from proxyinit.pflag import Flag, parse_bool


def _format(text: str) -> str:
    if text not in ("json", "yaml"):
        raise ValueError(f"unsupported format {text}: expected json or yaml")
    return text


OUTPUT = Flag(
    "output",
    "Format of the output.",
    _format,
    short="o",
    metavar="json|yaml",
    default="yaml",
)

UNINJECT_FLAGS = (OUTPUT,)

INJECT_FLAGS = (
    OUTPUT,
    Flag("manual", "Write the containers into the pods.", parse_bool, default=False),
    Flag(
        "values",
        "The chart's values as the cluster has them: YAML, or linkerd-config itself.",
        metavar="FILE",
    ),
    Flag(
        "trust-anchors",
        "The mesh's trust anchors in PEM; they win over those in --values.",
        metavar="FILE",
    ),
    Flag(
        "ignore-cluster",
        "Without --values, take the chart's defaults for the cluster's values.",
        parse_bool,
        default=False,
    ),
    Flag(
        "linkerd-namespace",
        "Namespace of the control plane; LINKERD_NAMESPACE says it as well.",
        namespace,
        short="L",
        metavar="NAMESPACE",
        default="linkerd",
    ),
    Flag("ingress", "Inject in ingress mode.", parse_bool, default=False),
    Flag(
        "enable-debug-sidecar",
        "Add the container with tools.",
        parse_bool,
        default=False,
    ),
    Flag(
        "close-wait-timeout",
        "Timeout of connections in CLOSE_WAIT, such as 30s; needs runAsRoot.",
        typed.parse_duration_ns,
        metavar="DURATION",
    ),
    Flag(
        "registry",
        "Registry to take images from; LINKERD_DOCKER_REGISTRY says it as well.",
        metavar="REGISTRY",
    ),
    Flag("verbose", "Report what is in order, too.", parse_bool, default=False),
    *(setting.flag for setting in SETTINGS),
)

_MEANT = {setting.flag.name: setting.flag for setting in SETTINGS}

HIDDEN_FLAGS = (
    *(
        Flag(old, "", _MEANT[new].parse, metavar=_MEANT[new].metavar)
        for old, new in DEPRECATED.items()
    ),
    Flag("disable-identity", "", parse_bool, default=False),
)
"""What `inject` takes, and doesn't tell of: spellings of old releases."""
