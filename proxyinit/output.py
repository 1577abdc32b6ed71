"""Standard output, for results that are written as a whole."""

from __future__ import annotations

import os

from proxyinit.errors import ProxyInitError


def put(text: str) -> None:
    """Write all of it; who stops reading has seen enough.

    Raises `ProxyInitError` where it can't be written.
    """
    data = text.encode("utf-8", "replace")
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        return
    except OSError as error:
        raise ProxyInitError(f"can't print the answer: {error.strerror}") from error
