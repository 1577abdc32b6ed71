"""``proxy-identity ca``: a trust anchor, and an issuer below it, as files."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from cryptography.hazmat.primitives.asymmetric import ec

from identity import ca as authorities
from identity.ca_files import Files, UnusableParent, read_authority, write
from identity.commands import Command
from identity.issuer import path
from identity.issuer.config import parse_duration

TEN_YEARS = "87600h"
ONE_YEAR = "8760h"


class Lifetime(click.ParamType[dt.timedelta]):
    """A positive duration such as 8760h."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dt.timedelta:
        """Parse it as Go does; X.509 counts whole seconds."""
        try:
            found = parse_duration(str(value))
        except ValueError:
            found = dt.timedelta(0)
        if found < dt.timedelta(seconds=1):
            told = f"expected a duration such as {ONE_YEAR}, got {value!r}"
            self.fail(told, param, ctx)
        try:
            _now() + found
        except OverflowError:
            self.fail(f"{value!r} ends after the year 9999", param, ctx)
        return found


class CommonName(click.ParamType[str]):
    """A name that X.509 has room for."""

    name = "text"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Take the text as it is."""
        text = str(value)
        if not 1 <= len(text) <= 64:
            told = f"expected 1 to 64 characters, as X.509 has it, got {len(text)}"
            self.fail(told, param, ctx)
        return text


def _output(certificate: str, key: str) -> Callable[[Any], Any]:
    """The options that both commands have."""
    file = click.Path(path_type=Path, dir_okay=False)
    options = [
        click.option(
            "--cert",
            type=file,
            default=certificate,
            show_default=True,
            help="Where the certificate goes.",
        ),
        click.option(
            "--key",
            type=file,
            default=key,
            show_default=True,
            help="Where its private key goes.",
        ),
        click.option("--force", is_flag=True, help="Replace files that exist."),
        click.option(
            "--format",
            "form",
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            help="Form of the answer.",
        ),
    ]

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


class Group(click.Group):
    """Commands that tell all mistakes."""

    command_class = Command


@click.group(cls=Group)
def ca() -> None:
    """Make a trust anchor and an issuer, as `step certificate create` does.

    \b
    Example:
      proxy-identity ca root --cert ca.crt --key ca.key
      proxy-identity ca issuer --ca ca.crt --ca-key ca.key \\
        --cert issuer.crt --key issuer.key
    """  # noqa: D301  (the mark for click is the one character)


@ca.command()
@click.option(
    "--name",
    type=CommonName(),
    default="root.linkerd.cluster.local",
    show_default=True,
    help="Common name.",
)
@click.option(
    "--lifetime",
    type=Lifetime(),
    default=TEN_YEARS,
    show_default=True,
    help="How long it is valid.",
)
@_output("ca.crt", "ca.key")
def root(  # noqa: PLR0913  (options)
    *, name: str, lifetime: dt.timedelta, cert: Path, key: Path, force: bool, form: str
) -> None:
    """Make a root: what all workloads of a mesh trust."""
    _check_apart({"--cert": cert, "--key": key})
    private = _new_key()
    validity, serial = _validity(lifetime), _serial()
    made = authorities.create_root(name, private, validity, serial)
    _deliver(made, Files(cert, key), force=force, form=form)


@ca.command()
@click.option(
    "--name",
    type=CommonName(),
    default="identity.linkerd.cluster.local",
    show_default=True,
    help="Common name; not the root's.",
)
@click.option(
    "--lifetime",
    type=Lifetime(),
    default=ONE_YEAR,
    show_default=True,
    help="How long it is valid; never longer than the root.",
)
@click.option(
    "--ca",
    "parent_cert",
    type=click.Path(path_type=Path),
    default="ca.crt",
    show_default=True,
    help="Certificate of the root.",
)
@click.option(
    "--ca-key",
    "parent_key",
    type=click.Path(path_type=Path),
    default="ca.key",
    show_default=True,
    help="Key of the root.",
)
@_output("issuer.crt", "issuer.key")
def issuer(  # noqa: PLR0913  (options)
    *,
    name: str,
    lifetime: dt.timedelta,
    parent_cert: Path,
    parent_key: Path,
    cert: Path,
    key: Path,
    force: bool,
    form: str,
) -> None:
    """Make an issuer: what signs the certificates of workloads."""
    signing = {"--ca": parent_cert, "--ca-key": parent_key}
    _check_apart({"--cert": cert, "--key": key}, signing)
    parent = read_authority(Files(parent_cert, parent_key))
    try:
        path.find_path(parent.certificate, (), (parent.certificate,), _now())
        path.check_authority(parent.certificate, 1)
    except path.NoPath as error:
        raise UnusableParent(f"{parent_cert}: {error}") from error
    if authorities.common_name(name) == parent.certificate.subject:
        raise click.UsageError(f"--name: {name!r} is the root's, take another")
    private = _new_key()
    made = authorities.create_issuer(
        name, private, _validity(lifetime), _serial(), parent=parent
    )
    _deliver(made, Files(cert, key), force=force, form=form)


def _check_apart(written: dict[str, Path], read: dict[str, Path] | None = None) -> None:
    """Refuse to write one file over the other, or over one that is read.

    The options may mean the same one by different paths. The root may have its key
    and its certificate in one file.
    """
    taken: dict[Path, list[str]] = {}
    for option, file in (written | (read or {})).items():
        taken.setdefault(file.resolve(), []).append(option)
    wrong = [
        f"{' and '.join(options)} are the same file, {file}: expected one for each"
        for file, options in taken.items()
        if len(options) > 1 and any(option in written for option in options)
    ]
    if wrong:
        raise click.UsageError("\n".join(wrong))


def _deliver(
    made: authorities.Authority, files: Files, *, force: bool, form: str
) -> None:
    end = made.certificate.not_valid_after_utc
    write(made, files, force=force)
    if form == "json":
        found = {"certificate": str(files.certificate), "key": str(files.key)}
        click.echo(json.dumps({**found, "not_after": end.isoformat()}))
        return
    click.echo(f"certificate  {files.certificate}")
    click.echo(f"key          {files.key}")
    click.echo(f"valid until  {end:%Y-%m-%d %H:%M:%S} UTC")


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _serial() -> int:
    return authorities.serial_from(os.urandom(16))


def _now() -> dt.datetime:
    return dt.datetime.now(tz=dt.UTC)


def _validity(lifetime: dt.timedelta) -> authorities.Validity:
    now = _now().replace(microsecond=0)
    return authorities.Validity(not_before=now, not_after=now + lifetime)
