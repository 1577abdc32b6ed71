"""The file of the trust anchors, which are replaced while we run."""

from __future__ import annotations

from pathlib import Path

from identity.errors import BadTrustAnchors
from identity.trust import Anchors


def read(path: str) -> Anchors:
    """The trust anchors that the file holds now. Raises `BadTrustAnchors`.

    It is opened by its name each time, as `identity.token` does, and why.
    """
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise BadTrustAnchors(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError:
        text = ""  # which holds none either
    try:
        return Anchors.parse(text)
    except BadTrustAnchors as error:
        raise BadTrustAnchors(f"{path}: {error}") from error
