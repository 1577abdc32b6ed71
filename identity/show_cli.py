"""The command `show`: a panel for people, JSON for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import click
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from identity.env import read_refresh
from identity.errors import Misconfigured
from identity.show import Report, examine
from identity.variables import DIRECTORY


@click.command()
@click.argument("directory", required=False, metavar="[DIR]")
@click.option("--format", "form", type=click.Choice(("text", "json")), default="text")
def show(directory: str | None, form: str) -> None:
    """Show who the identity in DIR is, and whether it is in order.

    DIR is LINKERD2_PROXY_IDENTITY_DIR unless given, and the next renewal is told by
    LINKERD2_PROXY_IDENTITY_MIN_REFRESH and ..._MAX_REFRESH, as `run` keeps to them.
    The exit code is 1 when there is no certificate, or something is wrong with it.
    """
    folder = directory or os.environ.get(DIRECTORY)
    if not folder:
        raise click.UsageError(f"expected a directory: give DIR, or set {DIRECTORY}")
    now = datetime.now(UTC)
    try:
        policy = read_refresh(os.environ)
    except Misconfigured as error:
        raise click.UsageError(str(error)) from error
    report = examine(folder, now, policy)
    if form == "json":
        click.echo(json.dumps(report.as_json(), indent=2))
    else:
        Console().print(panel(report, now))
    if report.problems:
        raise SystemExit(1)


def panel(report: Report, now: datetime) -> Panel:
    """The report for people."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in rows(report, now):
        table.add_row(label, text)
    for problem in report.problems:
        table.add_row(Text("problem", style="red"), Text(problem, style="red"))
    color = "red" if report.problems else "green"
    return Panel(table, title=Text(report.directory), border_style=color, expand=False)


def rows(report: Report, now: datetime) -> Iterator[tuple[str, Text]]:
    """Labels and texts, without those that there is nothing to say about."""
    if report.not_before is None or report.not_after is None or report.renewal is None:
        if report.requested is not None:
            yield "requested", Text(report.requested)
        return
    yield "identity", Text("\n".join(report.names) or "none")
    yield "issued by", Text(report.issuer or "nobody")
    yield "serial", Text(report.serial or "")
    yield "sha256", Text(report.sha256 or "")
    yield "valid from", Text(f"{report.not_before:%F %T} UTC")
    yield "valid until", Text(f"{_until(report.not_after, now, 'expired')}")
    yield "renewal", Text(_until(report.renewal, now, "overdue"))
    yield "key", Text("matches" if report.key_matches else "does not match")
    yield "chain", Text("verifies" if report.chain_verifies else "does not verify")


def _until(instant: datetime, now: datetime, past: str) -> str:
    seconds = timedelta(seconds=round((instant - now).total_seconds()))
    return f"{instant:%F %T} UTC, " + (
        f"in {seconds}" if seconds > timedelta() else past
    )
