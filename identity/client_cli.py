"""The commands that talk to the identity service: certify, run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from identity import anchors, config, durations, env, hooks, logs, variables
from identity.agent import Agent
from identity.client import Certifier
from identity.clock import SystemClock
from identity.commands import Command
from identity.errors import Misconfigured
from identity.health import pages, serving
from identity.metrics import Metrics
from identity.resolve import SystemLookup
from identity.trust import Anchors
from identity.variables import TRUST_ANCHORS


class Duration(click.ParamType[timedelta]):
    """A duration with its unit, more than 0."""

    name = "DURATION"

    def convert(self, value: Any, param: Any, ctx: Any) -> timedelta:
        """Parse, or say what is expected."""
        if isinstance(value, timedelta):
            return value
        try:
            return durations.parse_positive(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Address(click.ParamType[tuple[str, int]]):
    """A host and a port; without a host, every address."""

    name = "HOST:PORT"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, int]:
        """Parse, or say what is expected."""
        if isinstance(value, tuple):
            return value[0], value[1]
        host, colon, port = str(value).rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535:
            self.fail("expected an address and a port, as 127.0.0.1:4192", param, ctx)
        return host.strip("[]"), int(port)


def client_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that configure a client, and those of the logs."""
    for setting in reversed(config.SETTINGS):
        command = click.option(
            setting.option,
            setting.variable,
            metavar=setting.metavar,
            help=f"{setting.help}  ({setting.variable})",
        )(command)
    command = click.option(
        "--log-format", type=click.Choice(logs.FORMS), default="plain"
    )(command)
    command = click.option(
        "--log-level", type=click.Choice(logs.LEVELS), default="info"
    )(command)
    return click.option(
        "--call-timeout",
        type=Duration(),
        default="10s",
        show_default=True,
        help="For the service's answer.",
    )(command)


def read_config(
    options: Mapping[str, Any], environ: Mapping[str, str]
) -> config.Config:
    """Options over variables. Raises `Misconfigured`."""
    spelled = {setting.variable: setting.option for setting in config.SETTINGS}
    given = {name: options[name] for name in spelled if options.get(name) is not None}
    values = {**environ, **given}
    inbound = variables.connect_timeout_of("INBOUND")
    outbound = variables.connect_timeout_of("OUTBOUND")
    if outbound in given:  # one option for whichever applies
        values[inbound] = given[outbound]
    names = {name: spelled[name] for name in given}
    in_file = TRUST_ANCHORS in given
    return env.read(values, names, anchors.read if in_file else Anchors.parse)


def make_agent(options: Mapping[str, Any]) -> Agent:
    """An agent with the real clock, network and disk; starts nothing.

    Raises `Misconfigured` with what is wrong with settings and hooks.
    """
    wrong: list[str] = []
    try:
        told = read_hooks(*map(options.get, ("command", "signal_name", "pid_file")))
    except Misconfigured as error:
        told = ()
        wrong += error.problems
    try:
        read = read_config(options, os.environ)
    except Misconfigured as error:
        raise Misconfigured([*error.problems, *wrong]) from error
    if wrong:
        raise Misconfigured(wrong)
    clock = SystemClock()
    roots = options[TRUST_ANCHORS]
    return Agent(
        config=replace(read, call_timeout=options["call_timeout"]),
        certifier=Certifier(lookup=SystemLookup(), now=clock.now),
        # A pipe can be read only once.
        anchors_file=roots if roots and Path(roots).is_file() else None,
        clock=clock,
        metrics=Metrics(),
        hooks=told,
        rotate_key=options.get("rotate_key", False),
    )


def problems(options: Mapping[str, Any]) -> Sequence[str]:
    """What `make_agent` has to say against options."""
    try:
        make_agent(options)
    except Misconfigured as error:
        return error.problems
    return ()


async def until_stopped(work: Coroutine[Any, Any, object]) -> bool:
    """Await, unless SIGTERM or SIGINT comes first; whether it came to its end."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return False
    return True


@click.command(cls=Command, check=problems)
@client_options
@click.option(
    "--timeout",
    type=Duration(),
    default="30s",
    show_default=True,
    help="Give up after so long, retries included.",
)
def certify(timeout: timedelta, **options: Any) -> None:
    """Certify once: for init containers.

    Makes key.p8 and csr.der if there are none, and writes tls.key, tls.crt and
    ca.crt. Every option stands for the variable beside it.
    """
    logs.configure(options["log_level"], options["log_format"])
    agent = make_agent(options)
    if not asyncio.run(until_stopped(agent.certify(timeout))):
        raise click.ClickException("stopped before there was a certificate")


@click.command(cls=Command, check=problems)
@client_options
@click.option(
    "--admin-addr",
    type=Address(),
    default="127.0.0.1:4192",
    show_default=True,
    help="Where to serve /live, /ready and /metrics.",
)
@click.option("--rotate-key", is_flag=True, help="A new key for each renewal.")
@click.option(
    "--exec",
    "command",
    metavar="COMMAND",
    help="Run after each renewal; split into words as a shell does.",
)
@click.option(
    "--signal",
    "signal_name",
    metavar="NAME",
    help="Send after each renewal to the process in --pid-file  [HUP].",
)
@click.option("--pid-file", metavar="FILE", help="Read anew each time.")
def run(admin_addr: tuple[str, int], **options: Any) -> None:
    """Keep the certificate fresh, until stopped.

    Renews at 70 % of what is left, retries what fails, and shows at /ready whether
    there is a valid certificate. Every option stands for the variable beside it.
    """
    logs.configure(options["log_level"], options["log_format"])
    agent = make_agent(options)

    async def serve() -> None:
        async with serving(*admin_addr, pages(agent)):
            await agent.run()

    asyncio.run(until_stopped(serve()))


def read_hooks(
    command: str | None, signal_name: str | None, pid_file: str | None
) -> tuple[hooks.Hook, ...]:
    """Whom to tell of renewals. Raises `Misconfigured`."""
    wrong: list[str] = []
    told: list[hooks.Hook] = []
    if command is not None:
        words: list[str] = []
        with contextlib.suppress(ValueError):
            words = shlex.split(command)
        if words:
            told.append(hooks.Command(tuple(words)))
        else:
            wrong.append(f"--exec {command!r}: expected a program and its arguments")
    if signal_name is not None and pid_file is None:
        wrong.append("--signal needs --pid-file: whom to send it to")
    if pid_file is not None:
        name = (signal_name or "HUP").upper().removeprefix("SIG")
        number = getattr(signal, f"SIG{name}", None)
        if isinstance(number, signal.Signals):
            told.append(hooks.Signal(number, pid_file))
        else:
            wrong.append(f"--signal {signal_name!r}: expected HUP, USR1 or the like")
    if wrong:
        raise Misconfigured(wrong)
    return tuple(told)
