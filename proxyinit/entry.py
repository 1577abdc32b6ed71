"""From the command line to a run: the lean path that every pod takes.

A plain install imports neither click nor anything else that a pod's start would
wait for; help, mistakes and other commands go on to `proxyinit.cli`.
"""

from __future__ import annotations

import os

from proxyinit import options
from proxyinit.backend import Tables
from proxyinit.errors import NamespaceError, ProxyInitError
from proxyinit.flags import INSTALL_FLAGS
from proxyinit.host import Host
from proxyinit.install import install
from proxyinit.journal import Journal
from proxyinit.logs import Log
from proxyinit.pflag import parse
from proxyinit.runner import SystemRunner
from proxyinit.session import Session
from proxyinit.standard_files import open_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxyinit.options import Options
    from proxyinit.pflag import Arguments

RUN_MARGIN_S = 30
"""How much longer than the lock wait a program may take before it is stopped."""


def main(argv: Sequence[str]) -> int:
    """Run proxy-init; the exit code."""
    open_all()
    arguments = parse(argv, INSTALL_FLAGS)
    if arguments.help or arguments.words or any(problems(arguments)):
        # 27 ms of imports, for those who read what they are told.
        from proxyinit.cli import run  # noqa: PLC0415

        return run(argv)
    return execute(arguments, run_install)


def problems(arguments: Arguments) -> list[str]:
    """Everything wrong with the arguments, their namespace included."""
    found = [*arguments.problems, *options.problems(arguments)]
    chosen = options.options(arguments)
    if chosen.netns:
        problem = _namespace_problem(chosen)
        if problem:
            flag = "pid" if "pid" in arguments.given else "netns"
            found.append(f"--{flag} {arguments.given[flag][-1]!r}: {problem}")
    return found


def _namespace_problem(chosen: Options) -> str:
    """Why no run may work in the namespace that is named; empty when it may."""
    from proxyinit import netns  # noqa: PLC0415

    try:
        fd = netns.open_namespace(chosen.netns)
    except NamespaceError as error:
        return str(error)
    nodes_own = netns.is_nodes_own(fd)
    os.close(fd)
    if nodes_own and not chosen.host and not chosen.simulate:
        return (
            "this is the node's own network namespace, and all its "
            "traffic would change: expected a pod's; say --host if the node is meant"
        )
    return ""


def run_install(session: Session, arguments: Arguments) -> None:
    """Install what the arguments ask for."""
    for warning in options.warnings(arguments):
        session.log.warning(warning)
    install(session, options.redirect_config(arguments))


def execute(
    arguments: Arguments, action: Callable[[Session, Arguments], object]
) -> int:
    """Run an action in the namespace that valid arguments name; the exit code."""
    chosen = options.options(arguments)
    values = arguments.values
    log = Log(str(values["log-level"]), str(values["log-format"]))
    runner = SystemRunner(chosen.bin_dir, chosen.lock_wait_s + RUN_MARGIN_S)
    tables = Tables(runner, log, chosen.lock_wait_s)
    session = Session(chosen, log, Host(), runner, tables, Journal(), _show)
    try:
        if chosen.netns:
            _enter(chosen.netns)
        if not chosen.simulate:
            session.host.lock_namespace(chosen.lock_wait_s)
        action(session, arguments)
    except ProxyInitError as error:
        log.error(str(error), **error.fields)
        return 1
    except KeyboardInterrupt:
        log.error("interrupted")
        return 130
    return 0


def _enter(path: str) -> None:
    from proxyinit import netns  # noqa: PLC0415

    fd = netns.open_namespace(path)
    netns.enter(fd)
    os.close(fd)


def _show(text: str) -> None:
    try:
        os.write(1, text.encode("utf-8", "surrogateescape"))
    except BrokenPipeError:
        return  # the reader has seen enough
    except OSError as error:
        raise ProxyInitError(f"can't print the result: {error.strerror}") from error
