"""The command `proxy-init verify`: its flags, and what they ask for."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from proxyinit import options
from proxyinit.commands import LOOKED_AT, PflagCommand
from proxyinit.config import parse_subnet
from proxyinit.errors import ProxyInitError
from proxyinit.flags import REDIRECT_FLAGS, TARGET_FLAGS, optional
from proxyinit.pflag import Arguments, Flag, parse_bool

if TYPE_CHECKING:
    from proxyinit.verify.discover import Target
    from proxyinit.verify.node import Question, Report

_HELP = """Say whether a pod's traffic is intercepted, and what is wrong if not.

With the flags of an install, rules are held against what these want; without, the
configuration is read back from the rules and checked for sense.

Exit codes: 0 intercepted, 3 differs, 1 could not tell, 2 usage.

\b
Examples, as root on the node:
  proxy-init verify --pod-ip 10.42.0.17
  proxy-init verify --all --format json
  proxy-init verify --pid 4711 -p 4143 -o 4140 -u 2102
"""


def _parse_address(text: str) -> str:
    try:
        whole = parse_subnet(f"{text}/{128 if ':' in text else 32}")
    except ValueError:
        raise ValueError("expected an address such as 10.42.0.17 or fd00::17") from None
    return whole.address


def _parse_format(text: str) -> str:
    if text not in ("text", "json"):
        raise ValueError("expected text or json")
    return text


VERIFY_FLAGS = (
    *(flag for flag in TARGET_FLAGS if flag.name in ("netns", "pid")),
    Flag(
        "pod-ip",
        "The namespace whose interface holds this address.",
        _parse_address,
        metavar="ADDRESS",
    ),
    Flag(
        "all",
        "Every namespace of the node that holds a redirect or runs a proxy.",
        parse_bool,
        default=False,
    ),
    Flag(
        "probe",
        "Prove it by live connections, in both directions.",
        parse_bool,
        default=False,
    ),
    Flag(
        "format",
        "Form of the answer.",
        _parse_format,
        metavar="text|json",
        default="text",
    ),
    *map(optional, REDIRECT_FLAGS),
)
_TARGETS = ("netns", "pid", "pod-ip", "all")


def problems(arguments: Arguments) -> Iterator[str]:
    """Everything that is wrong with the arguments."""
    yield from arguments.problems
    named = [f"--{name}" for name in _TARGETS if arguments.values[name]]
    if len(named) > 1:
        yield f"{', '.join(named)} each name namespaces: give one of them"
    elif _wants(arguments):
        yield from options.problems(arguments)


def _wants(arguments: Arguments) -> bool:
    """Whether any flag says what should be redirected."""
    return any(flag.name in arguments.given for flag in REDIRECT_FLAGS)


def question(arguments: Arguments) -> Question:
    """What is asked of each namespace, from arguments without problems."""
    from proxyinit.verify.node import PROXY_PORTS, Question  # noqa: PLC0415  (needs pyroute2)
    from proxyinit.verify.readback import Wanted  # noqa: PLC0415

    values: dict[str, Any] = arguments.values
    given = None
    ports = PROXY_PORTS
    if _wants(arguments):
        given = Wanted(options.redirect_config(arguments), values["ipv6"])
        ports = given.config.inbound_port, given.config.outbound_port
    return Question(
        given=given, probe=values["probe"], ports=ports if values["all"] else ()
    )


def verify(arguments: Arguments) -> int:
    """Look, and say what was found; the exit code."""
    from proxyinit.verify import discover, node  # noqa: PLC0415  (needs pyroute2)

    values: dict[str, Any] = arguments.values
    asked = question(arguments)
    targets, hidden = discover.targets() if values["all"] else ([_target(values)], 0)
    answers = node.examine_all(asked, targets)
    from proxyinit.verify import report  # noqa: PLC0415  (rich, while workers are at it)

    if values["all"]:
        answers = _with_progress(answers, len(targets))
    reports = [answer for answer in answers if answer]
    if values["format"] == "json":
        report.print_json(reports, hidden)
    elif values["all"]:
        report.print_all(reports, hidden, len(targets) - len(reports))
    else:
        report.print_one(*reports)
    return node.exit_code(reports)


def _target(values: dict[str, Any]) -> Target:
    """The one namespace that is asked for; the caller's own if none is named."""
    from proxyinit.verify import discover, sockets  # noqa: PLC0415  (needs pyroute2)

    if values["pid"]:
        return discover.target(f"/proc/{values['pid']}/ns/net")
    if not values["pod-ip"]:
        return discover.target(values["netns"] or f"/proc/{os.getpid()}/ns/net")
    address = values["pod-ip"]
    found, hidden = discover.targets()
    holders = discover.holding(address, found, sockets.addresses)
    if len(holders) == 1:
        return holders[0]
    if not holders:
        unseen = "; some processes may not be looked at" if hidden else ""
        raise ProxyInitError(
            f"no interface in any of {len(found)} network namespaces has the address "
            f"{address}{unseen}: see that the pod runs on this node, and run as root"
        )
    listed = "".join(f"\n  {_described(holder)}" for holder in holders)
    raise ProxyInitError(
        f"{len(holders)} network namespaces have the address {address}; name one of "
        f"them by --pid or --netns:{listed}"
    )


def _described(target: Target) -> str:
    from proxyinit.verify import discover  # noqa: PLC0415

    identity = discover.identify(target)
    return f"{target.path}: {identity.name}"


def _with_progress(
    reports: Iterator[Report | None], total: int
) -> Iterator[Report | None]:
    """The same reports, with a bar on a terminal; none is shown anywhere else."""
    if not sys.stderr.isatty():
        yield from reports
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    # Without a thread that redraws: workers are forked while it is shown.
    bar = Progress(console=Console(stderr=True), transient=True, auto_refresh=False)
    with bar:
        task = bar.add_task("namespaces", total=total)
        for number, report in enumerate(reports, start=1):
            bar.advance(task)
            if number % 8 == 0 or number == total:
                bar.refresh()
            yield report


def _run(arguments: Arguments) -> int:
    """Verify; a failure that is no answer is `could not tell`."""
    try:
        return verify(arguments)
    except ImportError as error:
        raise ProxyInitError(
            f"verify needs the Python package {error.name}: "
            "pip install 'proxyinit[netns]'"
        ) from error
    except ProxyInitError as error:
        raise ProxyInitError(f"could not tell: {error}") from error


verify_command = PflagCommand(
    "verify", VERIFY_FLAGS, _run, _HELP, check=problems, assurance=LOOKED_AT
)
