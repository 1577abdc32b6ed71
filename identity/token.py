"""The service-account token: read anew for every attempt, shown to nobody."""

from __future__ import annotations

from pathlib import Path

from identity.errors import TokenUnusable

MAX_TOKEN = 1 << 20
"""Tokens are 1 to 8 KiB; what is larger than 1 MiB is some other file."""


def read_token(path: str) -> bytes:
    """The file's bytes as they are. Raises `TokenUnusable`.

    It is opened by its name each time: the kubelet replaces it by swapping a link,
    and an open file, or a watch on one, would keep the old token for ever.
    """
    try:
        with Path(path).open("rb") as stream:
            token = stream.read(MAX_TOKEN + 1)
    except OSError as error:
        raise TokenUnusable(
            f"expected a service-account token in {path!r}: {error.strerror}"
        ) from error
    if not token.strip():
        raise TokenUnusable(
            f"expected a service-account token in {path!r}: it is empty"
        )
    if len(token) > MAX_TOKEN:
        raise TokenUnusable(
            f"expected a service-account token in {path!r}: it is over 1 MiB"
        )
    return token
